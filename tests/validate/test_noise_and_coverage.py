import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.prediction.interval import Interval
from advisor.validate.noise_and_coverage import coverage_of
from advisor.validate.predicted_and_measured import JobComparison


def job(family, inside):
    return JobComparison(
        job=f"{family}-1", family=family, busy_share=1.0, alone_s=0.01,
        measured_s=0.02 if inside else 0.03, predicted_s=Interval(0.019, 0.02, 0.021),
        memory_mib=None, measured_memory_mib=None, baselines_s={},
    )  # fmt: skip


def jobs(**inside_of):
    return [job(family, each) for family, said in inside_of.items() for each in said]


def test_coverage_is_the_share_of_measured_steps_inside():
    assert coverage_of(jobs(a=[True, True], b=[True, False])).share == 0.75


def test_families_that_err_alike_leave_coverage_less_certain_than_jobs_that_do_not():
    spread = coverage_of(jobs(**{f"f{n}": [True] * 9 + [False] for n in range(8)}))
    lumped = coverage_of(jobs(bad=[False] * 8, **{f"f{n}": [True] * 9 for n in range(8)}))
    assert (spread.low, spread.high) == pytest.approx((0.9, 0.9))
    assert lumped.low < 0.8
    assert lumped.high == 1.0


def test_one_family_says_nothing_of_how_certain_its_coverage_is():
    alone = coverage_of(jobs(a=[True, False]))
    assert (alone.low, alone.high) == (None, None)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=2, max_size=6))
def test_the_range_is_within_0_and_1_and_the_same_each_time(said):
    families = jobs(**{f"f{n}": each for n, each in enumerate(said)})
    once = coverage_of(families)
    assert 0 <= once.low <= once.high <= 1
    assert coverage_of(families) == once
