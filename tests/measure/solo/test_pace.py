from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.measure.pace import (
    Schedule,
    StepsTaken,
    schedule,
    solo_windows,
    step_times,
    windows_of,
)
from advisor.measure.planned_runs import Timing
from advisor.measure.rounds import find_rounds

steps = st.lists(st.floats(0.001, 0.5), min_size=1, max_size=60)


def ends_of(steps_s):
    return list(accumulate(steps_s))


@given(steps, st.floats(0.05, 0.5), st.integers(1, 4))
def test_windows_hold_all_steps_between_their_ends_and_no_step_twice(steps_s, first_share, windows):
    ends = ends_of(steps_s)
    first, last = first_share * ends[-1], ends[-1]
    bounds = tuple(first + (last - first) * n / windows for n in range(windows + 1))
    found = windows_of(Schedule(0.0, bounds), ends)
    begun = sum(end <= first for end in ends)
    assert sum(window.steps for window in found) <= len(ends) - begun + 1e-6
    assert sum(window.steps for window in found) >= len(ends) - begun - 1 - 1e-6
    assert sum(window.seconds for window in found) == pytest.approx(last - first)


@given(st.floats(0.001, 0.3), st.floats(0, 1e9))
def test_equal_steps_give_their_pace_wherever_windows_cut_them(step_s, start_at):
    plan = schedule(start_at, Timing(), step_s)
    count = round((plan.stop_at - start_at) / step_s) + 2
    ends = [start_at + step_s * number for number in range(1, count + 1)]
    for window in windows_of(plan, ends):
        assert window.step_s == pytest.approx(step_s, rel=1e-3, abs=1e-6)


def test_a_stall_counts_where_it_happened():
    plan = Schedule(100.0, (1.0, 2.0, 3.0))
    ends = [100 + 0.1 * n for n in range(1, 21)] + [102.5] + [102.5 + 0.1 * n for n in range(1, 9)]
    calm, stalled = windows_of(plan, ends)
    assert calm.steps == pytest.approx(10)
    assert stalled.steps == pytest.approx(6)


@given(st.floats(0, 100))
def test_one_looks_longer_at_slow_steps_but_never_for_ever(slowest_s):
    plan = schedule(0.0, Timing(window_s=1.0, windows=3), slowest_s)
    length_s = plan.end_at - plan.begin_at
    assert 3.0 - 1e-9 <= length_s <= 8.0 + 1e-9
    assert length_s >= min(6 * slowest_s, 8.0) - 1e-9
    assert plan.start_at < plan.begin_at < plan.end_at < plan.stop_at
    assert plan.begin_at <= 2.0


PLAN = Schedule(0.0, (0.5, 1.0, 1.5))


def taken(steps_s, checked_after, took_s=0.02):
    """Steps as a hook reports them, with a check after each of these numbers of steps."""
    paused = [took_s * sum(number < at for number in checked_after) for at in range(1, 99999)]
    ends = [end + paused[at] for at, end in enumerate(ends_of(steps_s))]
    checks = [[number, 1e-3 * (1 + at), took_s] for at, number in enumerate(checked_after)]
    return StepsTaken(0.0, {"completed_at": ends, "checks": checks, "between": []})


def windows_between(steps_s, checked_after):
    steps = taken(steps_s, checked_after)
    return solo_windows(steps, PLAN, find_rounds(step_times([steps])))


def test_windows_lie_between_checks_of_the_core_whose_time_does_not_count():
    first, second = windows_between([0.01] * 151, (50, 100, 150))
    assert first.steps == second.steps == 49
    assert [first.step_s, second.step_s] == pytest.approx([0.01, 0.01])
    assert [first.check_s, second.check_s] == pytest.approx([1.5e-3, 2.5e-3], rel=0.02)


@settings(max_examples=6)
@given(st.integers(0, 15))
def test_windows_of_a_rollout_and_its_updates_hold_whole_rounds(shift):
    round_s = [0.3, *[0.01] * 15]
    steps_s = (round_s * 12)[shift:]
    windows = windows_between(steps_s, (40, 80, 120))
    assert len(windows) >= 3
    for window in windows:
        assert window.steps % 16 == 0
        assert window.step_s == pytest.approx(0.45 / 16, rel=0.02)
