from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.plan.copies_search import copies_that_pay
from advisor.plan.trials import trials_that_pay
from advisor.sharing import Mps
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.stand_in import H200, StandIn

# Alone 7 ms a step, of which the GPU works 2 ms; under MPS it does with 1.6 ms.
HOST_BOUND = Job(
    synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002, memory_mib=2_000)
)
GPU_BOUND = Job(synthetic.profile("resnet152-imagenet-bs128", host_s=0.01, gpu_s=0.2))
COPIES = copies_that_pay(HOST_BOUND, H200, StandIn())


def trials(steps=1000, count=None, copies=COPIES, start_s=0.0):
    return trials_that_pay(copies, StandIn(), steps, count, start_s)


def test_as_many_trials_run_at_once_as_pay():
    found = trials()
    assert found.at_once == COPIES.pay == 5
    assert isinstance(found.row.prediction.sharing, Mps)
    assert found.study is None


def test_an_hour_holds_as_many_trials_as_its_seconds_allow():
    found = trials()
    # 5 x 1.6 ms of GPU time a step of each: 8 s a trial.
    assert found.trial_s(found.row).p50 == pytest.approx(8.0)
    assert found.per_hour(found.row).p50 == pytest.approx(5 * 3600 / 8.0)


def test_what_a_process_takes_to_start_counts_in_an_hour_and_training_is_told_apart():
    found = trials(start_s=12.0)
    assert found.per_hour(found.row).p50 == pytest.approx(5 * 3600 / 20.0)
    assert found.trained_per_hour(found.row) == trials().per_hour(found.row)
    assert found.trial_s(found.row).p50 == pytest.approx(8.0)


@given(st.integers(1, 40), st.floats(0, 100))
def test_each_round_of_a_study_waits_for_its_processes_to_start(count, start_s):
    found = trials(1000, count, start_s=start_s)
    rounds, left = divmod(count, found.at_once)
    assert found.study.rounds == rounds + bool(left)
    trained_s = rounds * max(7.0, 1.6 * found.at_once) + (max(7.0, 1.6 * left) if left else 0.0)
    assert found.study.wall_s.p50 == pytest.approx(trained_s + start_s * found.study.rounds)
    assert found.study.one_by_one_s.p50 == pytest.approx((7.0 + start_s) * count)


@pytest.mark.parametrize("start_s", [-1.0, inf, float("nan"), 1e6])
def test_a_start_that_takes_no_time_or_forever_is_refused(start_s):
    with pytest.raises(InvalidInput, match="starts in 0 s to a day"):
        trials(start_s=start_s)


def test_slow_trials_are_few_an_hour():
    found = trials()
    row, rate = found.row, found.per_hour(found.row)
    assert rate.p05 == pytest.approx(3600 * row.copies / found.trial_s(row).p95)
    assert rate.p95 == pytest.approx(3600 * row.copies / found.trial_s(row).p05)


def test_a_trial_is_the_whole_job_where_nobody_says_its_steps():
    copies = copies_that_pay(GPU_BOUND, H200, StandIn())
    assert trials(None, copies=copies).steps == GPU_BOUND.work_steps


def test_a_search_of_one_trial_runs_one():
    assert trials(100, 1).at_once == 1


@given(st.integers(1, 40))
def test_a_study_is_as_long_as_its_rounds_and_what_is_left_over(count):
    found = trials(1000, count)
    rounds, left = divmod(count, found.at_once)
    full_s = rounds * max(7.0, 1.6 * found.at_once)
    left_s = max(7.0, 1.6 * left) if left else 0.0
    assert found.study.wall_s.p50 == pytest.approx(full_s + left_s)
    assert found.study.one_by_one_s.p50 == pytest.approx(7.0 * count)


@given(st.integers(1, 40))
def test_no_other_number_at_once_ends_a_study_much_sooner(count):
    def wall_s(at_once):
        rounds, left = divmod(count, at_once)
        return rounds * max(7.0, 1.6 * at_once) + (max(7.0, 1.6 * left) if left else 0.0)

    found = trials(1000, count)
    soonest_s = min(wall_s(each) for each in range(1, min(COPIES.pay, count) + 1))
    assert wall_s(found.at_once) <= 1.02 * soonest_s + 1e-9
    assert all(wall_s(fewer) > 1.02 * soonest_s for fewer in range(1, found.at_once))


@pytest.mark.parametrize("steps", [0, -1, inf, float("nan")])
def test_a_trial_without_steps_is_refused(steps):
    with pytest.raises(InvalidInput, match="at least 1 training step"):
        trials(steps)


@pytest.mark.parametrize("count", [0, -3, 10**9])
def test_a_search_of_no_or_endless_trials_is_refused(count):
    with pytest.raises(InvalidInput, match="a search has 1 to"):
        trials(1000, count)


def test_a_trial_of_unknown_length_is_asked_for():
    profile = HOST_BOUND.profile
    endless = replace(profile, workload=replace(profile.workload, examples_per_epoch=None))
    copies = copies_that_pay(Job(endless), H200, StandIn())
    with pytest.raises(InvalidInput, match="Say --steps"):
        trials(None, copies=copies)
