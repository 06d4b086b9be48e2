"""One data loader for jobs that read the same data: what it changes, and what it cannot."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor import Advisor, Arrival, Fleet
from advisor.errors import InvalidInput
from advisor.plan.one_loader import sharing_loader
from advisor.plan.rules import loader_problem
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.shared_loader import (
    as_consumers,
    batch_mib,
    busy_cores,
    consumer,
    host_memory_mib,
    loader_work,
    loaders,
    send_s,
    works_s,
)
from advisor.sharing import Mps, Naive, Serial, parse_sharing
from advisor.workload.catalogue import workload
from advisor.workload.job import Job
from advisor.workload.profile import HostSide
from tests import synthetic
from tests.plan.stand_in import Apart

NAME = "resnet50-imagenet64-bs128-loader4"
SECONDS = st.floats(1e-3, 0.2)
RECEIVING_S = 0.005  # more than receiving and handing on cost, but for what a batch's size adds


def job(main_s=0.004, loader_s=0.02, loader_cpu_s=0.06, gpu_s=0.005, name=NAME):
    """A job whose host path is its own work or its loader, whichever takes longer."""
    made = synthetic.profile(name, host_s=max(main_s, loader_s), gpu_s=gpu_s)
    host = HostSide(main_s=main_s, loader_s=loader_s, loader_cpu_s=loader_cpu_s)
    return Job(replace(made, host=host, host_memory_mib=5000.0))


def predicted(jobs, sharing, cores=None):
    """The prediction for a GPU on which jobs do not disturb each other."""
    return CachingPredictor(Apart(), cores=cores).predict([each.profile for each in jobs], sharing)


def steps(jobs, cores=None, sharing=None):
    mix = predicted(jobs, sharing or Mps(), cores)
    return [each.step_s.p50 for each in mix.jobs]


def path_with_loader_s(one):
    """The host path of a job that receives its batches."""
    work = loader_work(one.profile)
    return max(work.main_s + RECEIVING_S, work.path_s, send_s(one.profile))


@given(SECONDS, SECONDS, SECONDS, st.integers(2, 6))
def test_with_enough_cores_a_shared_loader_costs_no_more_than_receiving(main_s, path_s, gpu_s, k):
    own = [job(main_s, path_s, path_s * 3, gpu_s)] * k
    longest_s = max(own[0].profile.step_s, path_with_loader_s(own[0]))
    assert own[0].profile.step_s <= steps(sharing_loader(own))[0] * (1 + 1e-9)
    assert steps(sharing_loader(own))[0] <= longest_s * (1 + 1e-9)


@given(SECONDS, SECONDS, SECONDS, st.integers(2, 6), st.floats(0.5, 32))
def test_with_too_few_cores_a_shared_loader_never_loses(main_s, path_s, gpu_s, k, cores):
    own = [job(main_s, path_s, path_s * 3, gpu_s)] * k
    stretch = max(1.0, path_with_loader_s(own[0]) / own[0].profile.host_s)
    received = steps(sharing_loader(own), cores)[0]
    # Receiving is host work, which gets longer as all of it does.
    work = loader_work(own[0].profile)
    added_s = k * RECEIVING_S + send_s(own[0].profile)
    if added_s <= (k - 1) * work.cores_s:
        assert received <= steps(own, cores)[0] * stretch * (1 + 1e-6)


@given(SECONDS, SECONDS, st.integers(2, 8))
def test_core_seconds_fall_by_all_loaders_but_one(main_s, loader_cpu_s, k):
    own = [job(main_s, loader_cpu_s / 4, loader_cpu_s).profile] * k
    sharing = [each.profile for each in sharing_loader([Job(each) for each in own])]
    shared = loaders(sharing, Mps())
    before = sum(works_s(own, ()))
    after = sum(works_s(as_consumers(sharing, shared), shared))
    handing_s = k * RECEIVING_S + send_s(own[0])
    assert before - after <= (k - 1) * loader_cpu_s + 1e-12
    assert before - after >= (k - 1) * loader_cpu_s - handing_s


def test_a_job_with_a_loader_that_nobody_else_uses_takes_what_receiving_costs():
    one = job(main_s=0.02, loader_s=0.005).profile
    received = consumer(one, 1)
    assert one.step_s < received.step_s < one.step_s + RECEIVING_S
    # Alone, or one after another, there is nothing to share.
    sharers = sharing_loader([job()] * 2)
    assert steps(sharers, sharing=Serial()) == steps([job()] * 2, sharing=Serial())


def test_jobs_that_share_a_loader_advance_at_the_pace_of_the_slowest():
    other = "mobilenetv3_large_100-imagenet64-bs128-loader4"
    slow, fast = job(gpu_s=0.05), job(gpu_s=0.004, name=other)
    assert steps([slow, fast]) == pytest.approx([0.05, 0.02])
    assert steps(sharing_loader([slow, fast])) == pytest.approx([0.05, 0.05])
    mix = predicted(sharing_loader([slow, fast]), Naive())
    assert mix.jobs[1].slowdown == pytest.approx(0.05 / 0.02, rel=0.01)


def test_the_loader_holds_memory_on_the_gpu_once_and_one_set_of_workers_on_the_host():
    three = sharing_loader([job()] * 3)
    profiles = [each.profile for each in three]
    mixes = predicted([job()] * 3, Mps()), predicted(three, Mps())
    own_mib, shared_mib = (mix.memory_total_mib for mix in mixes)
    assert shared_mib - own_mib > (2 + 3 * 5) * batch_mib(profiles[0])
    # Five processes of one job: its own and four workers.
    assert host_memory_mib([job().profile] * 3, Mps()) == 15_000
    assert host_memory_mib(profiles, Mps()) == pytest.approx(3 * 1000 + 5000)


def test_cores_are_busy_with_one_loader_instead_of_three():
    own, shared = [job()] * 3, sharing_loader([job()] * 3)
    each = [predicted(jobs, Mps()) for jobs in (own, shared)]
    busy = [
        busy_cores([job.profile for job in jobs], mix)
        for jobs, mix in zip((own, shared), each, strict=True)
    ]
    assert busy[0] == pytest.approx(3 * 0.064 / 0.02)
    assert busy[1] == pytest.approx((3 * 0.007 + 0.06 + send_s(own[0].profile)) / 0.02, rel=0.05)


@pytest.mark.parametrize(
    "change",
    [{"batch": 64}, {"data": "/other"}, {"loader_workers": 2}, {"examples_per_epoch": 7}],
    ids=str,
)
def test_jobs_that_read_other_data_or_other_batches_cannot_share_a_loader(change):
    other = replace(job().profile, workload=replace(workload(NAME), **change))
    with pytest.raises(InvalidInput, match="different"):
        sharing_loader([job(), Job(other)])


def test_a_job_without_a_loader_or_with_bare_numbers_has_none_to_share():
    for one in (Job(synthetic.profile()), Job(synthetic.numbers().whole())):
        with pytest.raises(InvalidInput, match="no data loader"):
            sharing_loader([one] * 2)


@pytest.mark.parametrize("sharing", ["mig=3g.71gb,3g.71gb", "mps/2[1,2,3]", "naive/2"])
def test_instances_and_queues_are_refused_with_the_reason(sharing):
    jobs = [job()] * (2 if "mig" in sharing else 3)
    way = parse_sharing(sharing)
    assert loader_problem(sharing_loader(jobs), way)
    assert loader_problem(jobs, way) is None


@pytest.mark.parametrize("key", ["a100-40gb", "h100-sxm-80gb", "h200-141gb", "b200-180gb"])
def test_on_any_gpu_one_loader_is_named_where_it_helps_and_never_assumed(key):
    few = Advisor(key, host_cores=1)
    own = few.recommend([f"{NAME}:3"])
    assert not any(each.profile.workload.shared_loader for each in own.jobs)
    shared = Advisor(key, host_cores=1, share_loader=True).recommend([f"{NAME}:3"])
    assert shared.one_loader is None
    assert not any(loader_problem(shared.jobs, each.sharing) for each in shared.plans)
    assert own.one_loader.gain > 1
    assert own.one_loader.cores <= own.one_loader.cores_now * 1.001
    assert shared.best.prediction.weighted_speedup > own.best.prediction.weighted_speedup
    assert Advisor(key, host_cores=64).recommend([f"{NAME}:3"]).one_loader is None


def test_copies_and_trials_name_what_one_loader_would_give():
    few = Advisor(host_cores=2)
    copies, shared = few.recommend_copies(NAME), Advisor(host_cores=2, share_loader=True)
    assert copies.one_loader.jobs == shared.recommend_copies(NAME).worthwhile
    assert shared.recommend_copies(NAME).one_loader is None
    assert few.trials(NAME).one_loader.gain > 1
    assert few.recommend_copies("resnet50-imagenet64-bs128").one_loader is None


@pytest.mark.parametrize(("copies", "gpus"), [(12, 1), (11, 2)])
def test_many_jobs_of_one_loader_never_join_others_that_have_begun(copies, gpus):
    shared = Advisor(host_cores=4, share_loader=True)
    best = shared.recommend([f"{NAME}:{copies}"], gpus=gpus).best
    for on in best.gpus:
        assert loader_problem(on.members, on.sharing) is None
    with pytest.raises(InvalidInput, match="missed"):
        shared.admit(shared.running([NAME], "mps"), [NAME])
    arrivals = [Arrival(each, 9.0 * at) for at, each in enumerate(shared.jobs([NAME] * 2))]
    with pytest.raises(InvalidInput, match="missed"):
        shared.simulate(arrivals, "mps", Fleet("h200-141gb", 1, "first-come"))
