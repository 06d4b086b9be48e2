"""What may join jobs that run already, and which of the jobs these are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.machine import GpuProcess, MpsProcess
from advisor.plan.admission import Running, additions, recognised
from advisor.sharing import Hybrid, Mig, Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn
from tests.report.test_text import LIVE

HOST_BOUND = Job(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_000)
)
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", host_s=0.01, gpu_s=0.001, memory_mib=90_000))


class OnInstances(StandIn):
    """As it, and a hybrid of one job an instance is what MIG is."""

    def predict(self, profiles, sharing):
        if isinstance(sharing, Hybrid):
            sharing = Mig(sharing.instances)
        return super().predict(profiles, sharing)


def added(running, offered, sharing="naive", max_slowdown=0.05, free_mib=None):
    there = Running(jobs=tuple(running), sharing=parse_sharing(sharing), free_mib=free_mib)
    return additions([there], offered, H200, OnInstances(), max_slowdown)


def test_where_nothing_runs_nothing_is_joined():
    with pytest.raises(InvalidInput, match="recommend"):
        additions([], [HOST_BOUND], H200, OnInstances())


def test_on_several_gpus_a_job_joins_where_it_gets_most_and_each_keeps_what_it_runs():
    there = [Running(jobs=(job,), sharing=Naive()) for job in (GPU_BOUND, HOST_BOUND)]
    both = additions(there, [HOST_BOUND], H200, OnInstances(), 5.0)
    alone = [additions([each], [HOST_BOUND], H200, OnInstances(), 5.0).plans for each in there]
    for number, own in enumerate(alone):
        rows = [each for each in both.plans if each.gpu_number == number]
        assert [replace(each, gpu_number=0) for each in rows] == list(own)
    assert both.plans[0].gpu_number == 1
    assert [each.work_added for each in both.plans] == sorted(
        (each.work_added for own in alone for each in own), reverse=True
    )


def test_jobs_are_added_until_those_that_run_would_feel_it():
    found = added([HOST_BOUND], [HOST_BOUND] * 6)
    # 7 ms of host work hide 2 ms of the GPU's: three fit into a step, the fourth makes it 8 ms.
    assert max(len(each.added) for each in found.plans) == 2
    assert found.plans[0].slowed_by == 0
    assert (
        max(len(each.added) for each in added([HOST_BOUND], [HOST_BOUND] * 6, "naive", 0.15).plans)
        == 3
    )


@given(
    st.lists(st.sampled_from([HOST_BOUND, GPU_BOUND, LARGE]), min_size=1, max_size=2),
    st.lists(st.sampled_from([HOST_BOUND, GPU_BOUND, LARGE]), min_size=1, max_size=4),
    st.sampled_from(["naive", "mps"]),
    st.sampled_from([0.0, 0.1, 0.5, 3.0]),
)
def test_no_running_job_slows_by_more_than_allowed_and_only_offered_jobs_are_added(
    running, offered, sharing, max_slowdown
):
    try:
        found = added(running, offered, sharing, max_slowdown)
    except NothingFits:
        return
    for each in found.plans:
        assert each.slowed_by <= max_slowdown
        assert all(each.added.count(job) <= offered.count(job) for job in each.added)
        before = [job.step_s.p50 for job in found.before[0].jobs]
        after = [job.step_s.p50 for job in each.prediction.jobs[: len(running)]]
        assert all(new <= (1 + max_slowdown) * old for new, old in zip(after, before, strict=True))
    assert [each.work_added for each in found.plans] == sorted(
        (each.work_added for each in found.plans), reverse=True
    )


def test_limits_of_those_that_run_are_kept_and_who_joins_may_have_its_own():
    found = added([HOST_BOUND, GPU_BOUND], [HOST_BOUND], "mps=30,70", max_slowdown=0.2)
    limits = found.plans[0].prediction.sharing.limits
    assert limits[:2] == (30, 70)
    assert len(limits) == 3


class LimitsGuard(OnInstances):
    """Who has no limit takes the time of all others; who has one takes none."""

    def _steps(self, profiles, sharing):
        steps = super()._steps(profiles, sharing)
        greedy = isinstance(sharing, Mps) and len(profiles) > 1
        greedy = greedy and (not sharing.limits or sharing.limits[-1] == 100)
        return [2 * each for each in steps] if greedy else steps


def test_a_limit_is_found_where_only_a_limit_protects_those_that_run():
    there = Running(jobs=(HOST_BOUND,), sharing=Mps())
    found = additions([there], [HOST_BOUND], H200, LimitsGuard())
    assert found.plans[0].prediction.sharing.limits[0] == 100
    assert found.plans[0].prediction.sharing.limits[1] < 100


def test_on_mig_a_job_that_joins_takes_what_is_free_and_slows_no_other():
    found = added([GPU_BOUND], [HOST_BOUND, HOST_BOUND], "mig=4g.71gb@0", max_slowdown=0.0)
    sharing = found.plans[0].prediction.sharing
    assert sharing.instances[0].profile == "4g.71gb"
    assert len(found.plans[0].added) == 2
    with pytest.raises(NothingFits, match="no room left"):
        added([GPU_BOUND], [HOST_BOUND], "mig=7g.141gb@0")


def test_memory_that_others_hold_now_is_not_given_out_again():
    assert added([HOST_BOUND], [LARGE]).plans
    with pytest.raises(NothingFits, match="50,000 MiB are free now"):
        added([HOST_BOUND], [LARGE], free_mib=50_000)


def test_what_keeps_all_deadlines_goes_before_what_adds_more_work():
    late = replace(HOST_BOUND, deadline_s=1.0)
    slower = Job(replace(HOST_BOUND.profile, gpu_s=0.001))
    found = added([HOST_BOUND], [late, slower], max_slowdown=1.0)
    assert [each.late for each in found.plans] == [(), (late.name,), (late.name,)]
    assert found.plans[0].added == (slower,)
    assert found.plans[0].work_added < found.plans[1].work_added


@pytest.mark.parametrize(
    ("sharing", "said"),
    [("serial", "naive, mps, mps=50,50 or mig="), ("mps=50", "1 limit for 2 jobs")],
)
def test_what_cannot_run_is_refused(sharing, said):
    with pytest.raises(InvalidInput, match=said):
        added([HOST_BOUND] * 2, [HOST_BOUND], sharing)


RESNET = Job(synthetic.profile("resnet26-cifar10-bs128", memory_mib=2_000))
DLRM = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=90_000))
ALIKE = Job(synthetic.profile("bert-base-finetune-bs16", memory_mib=2_010))


def seen(jobs, *held_mib, mps=()):
    processes = tuple(GpuProcess(pid, mib) for pid, mib in enumerate(held_mib))
    return recognised(replace(LIVE, processes=processes, mps=mps), jobs)


def test_a_process_is_the_job_that_holds_as_much():
    assert seen([RESNET, DLRM], 91_000) == (1,)
    assert seen([RESNET, DLRM], 2_040, 89_000) == (0, 1)


def test_copies_are_as_many_as_there_are_processes():
    assert seen([RESNET, RESNET, RESNET], 2_000, 2_000) == (0, 1)
    assert seen([RESNET], 2_000, 2_000) == (0,)


def test_what_may_be_either_of_two_jobs_or_is_not_told_is_none():
    assert seen([RESNET, ALIKE], 2_005) == ()
    assert seen([RESNET, DLRM], None, 0, 40_000) == ()


def test_an_mps_server_is_no_job_whatever_it_holds():
    assert seen([RESNET], 2_000, mps=(MpsProcess(0, "server", "ada", None),)) == ()
