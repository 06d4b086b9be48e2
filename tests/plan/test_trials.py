"""How many trials of a search run at once, on one GPU and on several, and when all end."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.api import Advisor
from advisor.hardware.gpus import gpu
from advisor.plan.copies import MIN_GAIN, CopiesTable
from advisor.plan.trials import TrialTerms, search_trials, worthwhile_trials
from advisor.plan.values import GpuPool
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.simulation.simulate import Fleet
from advisor.workload.job import MAX_JOBS, Arrival, Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

HOST_BOUND = Job(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_000)
)


def trials(steps=1000, count=None, start_s=0.0):
    return worthwhile_trials(CopiesTable(HOST_BOUND, H200, StandIn()), steps, count, start_s)


def trained_s(at_once):
    # Alone 7 ms a step, of which the GPU works 2 ms; under MPS it does with 1.6 ms of each.
    return max(7.0, 1.6 * at_once)


def test_an_hour_holds_as_many_trials_as_its_seconds_allow():
    answer = trials()
    assert answer.at_once == 5
    assert answer.row.trial_s.p50 == pytest.approx(8.0)
    assert answer.row.trials_per_hour.p50 == pytest.approx(5 * 3600 / 8.0)


@given(st.floats(0, 1000))
def test_no_number_at_once_does_more_trials_an_hour_with_their_start(start_s):
    answer = trials(start_s=start_s)

    def an_hour(at_once):
        return 3600 * at_once / (start_s + trained_s(at_once))

    most = max(map(an_hour, range(1, min(answer.copies.fit, MAX_JOBS) + 1)))
    assert an_hour(answer.at_once) >= 0.97 * most
    assert all(an_hour(fewer) * (1 + MIN_GAIN) < most for fewer in range(1, answer.at_once))
    assert answer.row.trials_per_hour.p50 == pytest.approx(an_hour(answer.at_once))


def test_the_longer_a_start_takes_the_more_trials_start_at_once():
    assert trials(start_s=0.0).at_once < trials(start_s=30.0).at_once


@given(st.integers(1, 40), st.floats(0, 100))
def test_each_round_of_a_study_waits_for_its_processes_to_start(count, start_s):
    study, at_once = (answer := trials(1000, count, start_s)).study, answer.at_once
    rounds, left = divmod(count, at_once)
    assert study.rounds == rounds + bool(left)
    wall_s = rounds * trained_s(at_once) + (trained_s(left) if left else 0.0)
    assert study.wall_s.p50 == pytest.approx(wall_s + start_s * study.rounds)
    assert study.one_by_one_s.p50 == pytest.approx((7.0 + start_s) * count)


@given(st.integers(1, 40))
def test_no_other_number_at_once_ends_a_study_much_sooner(count):
    def wall_s(at_once):
        rounds, left = divmod(count, at_once)
        return rounds * trained_s(at_once) + (trained_s(left) if left else 0.0)

    answer = trials(1000, count)
    soonest_s = min(map(wall_s, range(1, min(count, MAX_JOBS) + 1)))
    assert wall_s(answer.at_once) <= 1.02 * soonest_s + 1e-9
    assert all(wall_s(fewer) > 1.02 * soonest_s for fewer in range(1, answer.at_once))


def test_trials_shorter_than_their_start_are_not_predicted_at_every_number_at_once():
    predictor = StandIn()
    tiny = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.0001))
    answer = worthwhile_trials(CopiesTable(tiny, H200, predictor), 10, None, 10.0)
    fit = min(answer.copies.fit, MAX_JOBS)
    assert fit / 1.03 <= answer.at_once <= fit
    assert predictor.asked < 5 * fit
    assert sum(row.copies > 8 for row in answer.copies.rows) < fit / 4


A100 = gpu("a100-40gb")


@cache
def equal_gpus(times, model):
    """A GPU on which the trial works so many times as long as on an H200."""
    slower = synthetic.profile(
        "resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002 * times, memory_mib=2_000
    )
    return GpuPool(
        gpu=model,
        hosts=1,
        host_gpus=1,
        jobs=(Job(slower),),
        predictor=CachingPredictor(StandIn(model)),
    )


def pool(gpus, hosts=1, times=1.0, model=H200):
    return replace(equal_gpus(times, model), hosts=hosts, host_gpus=gpus)


def search(*pools, count=None, start_s=0.0):
    return search_trials(pools, TrialTerms(count=count, steps=1000, start_s=start_s))


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 3), st.floats(0, 60))
def test_trials_on_equal_gpus_take_as_long_as_their_part_on_one(count, gpus, hosts, start_s):
    whole = search(pool(gpus, hosts), count=count, start_s=start_s)
    (part,) = search(pool(1), count=ceil(count / (gpus * hosts)), start_s=start_s).hosts
    assert whole.wall_s == part.trials.study.wall_s
    one_s, whole_s = part.trials.study.one_by_one_s, whole.one_by_one_s
    assert [one_s.p05, one_s.p95] == pytest.approx([whole_s.p05, whole_s.p95])
    (on,) = whole.hosts
    assert (on.trials, on.count) == (part.trials, count)
    assert dict(whole.idle).get(H200.key, 0) == max(0, gpus * hosts - count)


SLOWER = st.sampled_from([1.0, 1.3, 2.0, 5.0])


@given(st.integers(1, 24), st.lists(st.integers(1, 4), min_size=2, max_size=2), SLOWER)
def test_more_gpus_never_end_a_search_later(count, gpus, times):
    few, more = sorted(gpus)
    other = pool(2, times=times, model=A100)
    for others in ((), (other,)):
        alone_s = search(pool(few), *others, count=count, start_s=10.0).wall_s.p50
        assert search(pool(more), *others, count=count, start_s=10.0).wall_s.p50 <= (
            (1 + MIN_GAIN) * alone_s
        )
    with_other_s = search(pool(few), other, count=count, start_s=10.0).wall_s.p50
    assert with_other_s <= (1 + MIN_GAIN) * search(pool(few), count=count, start_s=10.0).wall_s.p50


@given(
    st.integers(1, 24),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    SLOWER,
    st.sampled_from([0.0, 3.0, 30.0]),
)
def test_no_other_spread_over_two_models_ends_much_sooner(count, gpus, times, start_s):
    pools = pool(gpus[0]), pool(gpus[1], times=times, model=A100)

    def end_s(one, trials):
        return search(replace(one, host_gpus=1), count=trials, start_s=start_s).wall_s.p50

    spreads = (
        (first, ceil((count - first * gpus[0]) / gpus[1]))
        for first in range(ceil(count / gpus[0]) + 1)
    )
    soonest_s = min(
        max(end_s(one, trials) for one, trials in zip(pools, spread, strict=True) if trials > 0)
        for spread in spreads
    )
    answer = search(*pools, count=count, start_s=start_s)
    assert sum(on.count for on in answer.hosts) == answer.count == count
    assert answer.wall_s.p50 <= (1 + MIN_GAIN) * soonest_s
    ends = [on.trials.study.wall_s for on in answer.hosts]
    assert answer.wall_s.p95 == max(each.p95 for each in ends)
    assert [on.trials.study.trials for on in answer.hosts] == [
        ceil(on.count / on.gpus) for on in answer.hosts
    ]


def test_each_model_has_its_own_number_at_once_and_the_faster_one_more_trials():
    answer = search(pool(1), pool(1, times=3.0, model=A100), count=100)
    fast, slow = answer.hosts
    assert fast.trials.at_once > slow.trials.at_once
    assert fast.count > 1.5 * slow.count
    fast_s, slow_s = (on.trials.study.wall_s.p50 for on in answer.hosts)
    assert fast_s == pytest.approx(slow_s, rel=0.1)


def test_an_hour_of_all_gpus_holds_the_trials_of_each():
    answer = search(pool(4, hosts=2), pool(3, times=2.0, model=A100))
    assert (answer.count, answer.wall_s) == (None, None)
    rates = [on.trials.row.trials_per_hour for on in answer.hosts]
    for level in ("p05", "p50", "p95"):
        assert answer.trials_per_hour.at(level) == pytest.approx(
            8 * rates[0].at(level) + 3 * rates[1].at(level)
        )


def test_the_gpus_of_a_host_share_its_cores():
    one = Advisor("h200-141gb", host_cores=1)
    four = Advisor("h200-141gb", host_cores=4)
    job, terms = "resnet26-cifar10-bs128", TrialTerms(count=8, gpus=4)
    assert four.trials(job, terms).wall_s == one.trials(job, replace(terms, gpus="4x1")).wall_s
    assert (
        four.trials(job, terms).wall_s.p50 > four.trials(job, replace(terms, gpus="4x1")).wall_s.p50
    )


NUMBERS_OF_CORES = (1, 2, 4, 64)


@given(st.integers(1, 60), st.sampled_from([1, 2]), st.floats(0, 60), st.floats(0, 10))
def test_starts_of_trials_share_the_cores_of_their_host(count, gpus, start_s, cpu_s):
    terms = TrialTerms(count=count, steps=100, start_s=start_s, start_cpu_s=cpu_s)
    walls = {}
    for cores in (*NUMBERS_OF_CORES, 10_000, inf):
        on_gpu = pool(gpus)
        if cores < inf:
            shared = CachingPredictor(StandIn(), cores=cores / gpus)
            on_gpu = replace(on_gpu, predictor=shared)
        walls[cores] = search_trials([on_gpu], terms).wall_s
        least_s = count * min(cpu_s, start_s) / cores
        assert walls[cores].p50 >= least_s - 1e-6
    ordered = [each.p50 for each in walls.values()]
    assert all(more <= (1 + MIN_GAIN) * few for few, more in pairwise(ordered))
    assert walls[10_000] == walls[inf]


def test_ranges_are_wide_where_starts_wait_for_cores():
    job, terms = "cnn-cifar10-bs128", TrialTerms(count=100, start_s=10.0)
    few, many = (Advisor("h200-141gb", host_cores=cores).trials(job, terms) for cores in (1, 64))
    assert few.wall_s.p50 >= 300
    assert few.wall_s.p95 / few.wall_s.p50 > many.wall_s.p95 / many.wall_s.p50 > 1.3


@pytest.mark.parametrize(
    "gpu_key", ["h200-141gb", pytest.param("a30-24gb", marks=pytest.mark.exhaustive)]
)
def test_jobs_with_starts_share_cores_in_every_kind_of_plan(gpu_key):
    def ends_s(cores):
        advisor = Advisor(gpu_key, host_cores=cores)
        profile = advisor.find_profile("vit_small_patch16_224-imagenet-bs32-amp")
        jobs = [Job(profile, epochs=0.001, start_s=4.0)] * 8
        arrivals = [*map(Arrival, jobs)]
        yield from (advisor.predict(jobs, way).makespan_s for way in ("serial", "mps", "mps/3"))
        yield advisor.recommend(jobs, gpus=2).best.makespan_s
        for policy in ("first-come", "max-min"):
            fleet = Fleet(gpu_key, 2, policy, round_s=5)
            yield advisor.simulate(arrivals, "mps", fleet, at_once=2).simulation.makespan_s.p50

    by_cores = [list(ends_s(cores)) for cores in (1, 4, 64, None)]
    assert all(end_s >= 8 * 3.0 for end_s in by_cores[0])
    for few, more in pairwise(by_cores):
        assert all(end_s >= 0.98 * least for end_s, least in zip(few, more, strict=True))
    assert by_cores[-2] == pytest.approx(by_cores[-1])
