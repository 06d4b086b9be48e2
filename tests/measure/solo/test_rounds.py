"""The round of a program: the shortest period of steps that repeats, without its epoch ends."""

from dataclasses import replace
from math import inf, sqrt
from statistics import median

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from advisor.measure.rounds import StepTimes, find_rounds
from advisor.workload.profile import unsteady

STEP_S = 0.01


def times(steps_s, *, passes_at=(), passes_s=0.0, saves_at=(), saves_s=0.0, forwards_s=None):
    """Steps that take `steps_s`, with the seconds that the hook saw in some of them."""
    steps_s = np.asarray(steps_s, float)
    seen = {name: np.zeros(len(steps_s)) for name in ("new_pass", "loader", "saved")}
    seen["new_pass"][list(passes_at)] = 1
    seen["loader"][list(passes_at)] = passes_s
    seen["saved"][list(saves_at)] = saves_s
    return StepTimes(
        intervals_s=steps_s,
        new_pass=seen["new_pass"] > 0,
        loader_s=seen["loader"],
        checkpoint_s=seen["saved"],
        work=np.full(len(steps_s), np.nan),
        validation_s=np.zeros(len(steps_s)) if forwards_s is None else np.asarray(forwards_s),
    )


def noisy(round_s, steps, *, noise=0.1, seed=0, shift=0):
    """`steps` steps of a program whose round takes `round_s`, on a busy host."""
    plain_s = np.resize(np.roll(round_s, -shift), steps)
    return plain_s * np.exp(np.random.default_rng(seed).normal(0, noise, steps))


def rollout(updates, rollout_s):
    return [rollout_s + STEP_S, *[STEP_S] * (updates - 1)]


ALTERNATING = [STEP_S, STEP_S, STEP_S, 0.3 * STEP_S]


@pytest.mark.parametrize(
    ("round_s", "steps"),
    [
        (rollout(4, 1.5 * STEP_S), 400),
        (rollout(16, 2.0), 200),
        (rollout(320, 2.0), 1000),
        (ALTERNATING, 200),
        ([2.0 + STEP_S, *ALTERNATING * 4], 200),
        ([STEP_S, 0.6 * STEP_S], 200),
    ],
    ids=["4 short", "16 long", "320", "alternating", "both", "gan"],
)
@pytest.mark.parametrize("noise", [0.15])
def test_a_round_is_the_rollout_and_its_updates(round_s, steps, noise):
    for shift in (0, len(round_s) // 2):
        rounds = find_rounds(times(noisy(round_s, steps, noise=noise, shift=shift)))
        assert rounds.steps == len(round_s)
        assert rounds.whole == steps // len(round_s)
        assert not rounds.unclear
        assert rounds.epoch_end is None
        assert sum(rounds.steps_s) == pytest.approx(sum(round_s), rel=0.1)
    assert rounds.steps_s[0] == max(rounds.steps_s)


@pytest.mark.parametrize("noise", [0.05, 0.3])
@pytest.mark.parametrize("steps", [100, 600])
def test_a_plain_loop_is_a_round_of_one_step_whatever_the_noise(noise, steps):
    for seed in range(2):
        assert find_rounds(times(noisy([STEP_S], steps, noise=noise, seed=seed))).steps == 1


@pytest.mark.parametrize("every", [10, 50])
def test_a_log_that_costs_a_third_of_a_step_makes_no_round(every):
    log = [1.3 * STEP_S, *[STEP_S] * (every - 1)]
    for noise in (0.02, 0.3):
        assert find_rounds(times(noisy(log, 600, noise=noise))).steps == 1


def test_one_stall_changes_no_round():
    for round_s in ([STEP_S], rollout(16, 0.3)):
        steps_s = noisy(round_s, 400)
        steps_s[200] += 0.3
        rounds = find_rounds(times(steps_s))
        assert (rounds.steps, rounds.unclear) == (len(round_s), False)


def test_what_is_seen_less_than_twice_is_unclear():
    for updates, steps, shift in ((320, 500, 100), (32, 40, 20), (16, 28, 12)):
        rounds = find_rounds(times(noisy(rollout(updates, 3.0), steps, shift=shift)))
        assert rounds.unclear
    assert (rounds.steps, rounds.whole) == (16, 1), "two rollouts are a guess"
    assert find_rounds(times([STEP_S])).unclear
    assert find_rounds(times([STEP_S, STEP_S])).steps == 1


@settings(max_examples=15)
@given(
    updates=st.integers(2, 40),
    longer=st.floats(0.15, 30),
    noise=st.floats(0.01, 0.1),
    rounds=st.integers(12, 20),
    shift=st.integers(0, 40),
    seed=st.integers(0, 1000),
)
def test_any_planted_round_is_recovered_from_wherever_it_is_seen(
    updates, longer, noise, rounds, shift, seed
):
    """A rollout of `longer` times its updates."""
    round_s = rollout(updates, longer * updates * STEP_S)
    steps_s = noisy(round_s, rounds * updates, noise=noise, shift=shift % updates, seed=seed)
    assume(longer > 5 * noise)
    seen = find_rounds(times(steps_s))
    later = find_rounds(times(steps_s[updates // 3 :]))
    assert seen.steps == later.steps == updates
    assert seen.steps_s == pytest.approx(later.steps_s, rel=0.2)


def slow_period(steps_s):
    """The shortest period whose medians of other rounds predict nearly as well as the best."""

    def errors(period):
        pairs = []
        for at, step_s in enumerate(steps_s):
            others = [steps_s[i] for i in range(at % period, len(steps_s), period) if i != at]
            expected = median(others) if others else median(steps_s)
            pairs.append((abs(step_s - expected), expected))
        return pairs

    def stalls(period):
        off = [error for error, _ in errors(period)]
        return sum(max(0, error - 5 * median(off)) for error in off)

    def total(period):
        if period > 1 and len(steps_s) < 3 * period and stalls(period) >= 0.4 * stalls(1):
            return inf
        return sum(error for error, _ in errors(period))

    totals = {period: total(period) for period in range(1, len(steps_s))}
    best = min(totals.values())
    for period, off in totals.items():
        chance = 2 * sqrt(sum(min(pair) ** 2 for pair in errors(period)))
        margin = max(0.03 * sum(steps_s), chance)
        if off - best <= (margin if period == 1 else min(margin, (totals[1] - best) / 3)):
            return period
    return None


@given(
    round_s=st.lists(st.floats(0.5, 8), min_size=1, max_size=9),
    steps=st.integers(3, 45),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 1000),
)
def test_a_search_through_all_periods_one_by_one_agrees(round_s, steps, noise, seed):
    steps_s = noisy(round_s, steps, noise=noise, seed=seed)
    assert find_rounds(times(steps_s)).steps == slow_period(steps_s.tolist())


PASS = 80


def epochs(count, end_s, *, noise=0.05):
    """Steps of 10 ms, and what comes after each 80 of them; the places of those ends."""
    steps_s = noisy([STEP_S], count * PASS + 30, noise=noise)
    ends = [PASS * each for each in range(1, count + 1)]
    steps_s[ends] += end_s
    return steps_s, ends


def test_steps_of_10_ms_and_an_end_of_3_s_are_steady():
    steps_s, ends = epochs(4, 3.0)
    rounds = find_rounds(times(steps_s, passes_at=ends, passes_s=2.0, saves_at=ends, saves_s=0.7))
    assert (rounds.steps, rounds.unclear, rounds.epoch_ends) == (1, False, 4)
    end = rounds.epoch_end
    assert end.seconds == pytest.approx(3.0, rel=0.01)
    assert end.steps == PASS
    assert (end.loader_s, end.checkpoint_s, end.validation_s) == pytest.approx((2.0, 0.7, 0))
    assert end.other_s == pytest.approx(0.3, abs=0.02)
    windows = rounds.windows(0.5)
    assert unsteady(windows) is None
    assert [each.step_s for each in windows] == pytest.approx([STEP_S] * len(windows), rel=0.05)


def test_a_validation_every_250_steps_is_no_part_of_a_step():
    steps_s = noisy([STEP_S], 900)
    forwards_s = np.zeros(900)
    forwards_s[[100, 350, 600, 850]] = 0.4
    rounds = find_rounds(times(steps_s + forwards_s, forwards_s=forwards_s))
    assert (rounds.steps, rounds.epoch_end.steps, rounds.epoch_ends) == (1, 250, 4)
    assert rounds.epoch_end.validation_s == pytest.approx(0.4, rel=0.01)


def test_an_end_seen_once_has_no_frequency():
    steps_s, ends = epochs(1, 3.0)
    end = find_rounds(times(steps_s, passes_at=ends, passes_s=1.0)).epoch_end
    assert end.steps is None
    assert end.seconds == pytest.approx(3.0, rel=0.01)


def test_rarer_checkpoints_are_spread_over_the_ends():
    steps_s, ends = epochs(6, 1.0)
    saves = [ends[2] + 10, ends[5] + 10]
    steps_s[saves] += 2.0
    end = find_rounds(times(steps_s, passes_at=ends, saves_at=saves, saves_s=2.0)).epoch_end
    assert (end.steps, end.checkpoint_s) == (PASS, pytest.approx(2 * 2.0 / 6, rel=0.02))
    assert end.seconds == pytest.approx(1.0 + 2 * 2.0 / 6, rel=0.03)


def test_a_pass_that_starts_in_no_time_is_no_epoch_end():
    steps_s, ends = epochs(4, 0.0)
    rounds = find_rounds(times(steps_s, passes_at=ends))
    assert (rounds.epoch_end, rounds.epoch_ends, rounds.steps) == (None, 4, 1)


def test_a_new_iterator_in_every_step_or_every_few_is_a_part_of_the_round():
    every = find_rounds(times(noisy([STEP_S], 200), passes_at=range(200), passes_s=0.005))
    assert (every.steps, every.epoch_end) == (1, None)
    short = noisy([0.5, *[STEP_S] * 7], 240)
    rounds = find_rounds(times(short, passes_at=range(0, 240, 8), passes_s=0.4))
    assert (rounds.steps, rounds.epoch_end) == (8, None)


def test_forward_passes_that_take_most_of_the_time_are_rollouts():
    steps_s = noisy(rollout(64, 2.0), 400)
    forwards_s = np.where(steps_s > 1, 0.8 * steps_s, 0)
    rounds = find_rounds(times(steps_s, forwards_s=forwards_s))
    assert (rounds.steps, rounds.epoch_end) == (64, None)


@settings(max_examples=15)
@given(
    updates=st.integers(1, 20),
    least_s=st.floats(0.01, 3),
    shift=st.integers(0, 19),
    noise=st.floats(0, 0.1),
)
def test_windows_hold_whole_rounds_and_are_as_long_as_asked_for(updates, least_s, shift, noise):
    steps_s = noisy(rollout(updates, 0.4 * (updates > 1)), 300, noise=noise, shift=shift % updates)
    rounds = find_rounds(times(steps_s))
    windows = rounds.windows(least_s)
    assert all(each.steps % updates == 0 for each in windows)
    assert len(windows) == 1 or min(each.seconds for each in windows) >= least_s - 1e-9
    bounds = rounds.window_bounds(least_s)
    assert [each.steps for each in windows] == np.diff(bounds).tolist()
    ends_s = np.append(0.0, np.cumsum(steps_s))
    assert [each.seconds for each in windows] == pytest.approx(np.diff(ends_s[bounds]).tolist())


@pytest.mark.parametrize("noise", [0.5, 0.8])
def test_what_a_step_allocates_shows_a_round_that_the_noise_of_a_host_hides(noise):
    steps_s = noisy(rollout(50, 6 * STEP_S), 300, noise=noise)
    work = np.resize([900.0, *[300.0] * 49], 300) + np.resize([5.0, *[0.0] * 9], 300)  # a log
    found = find_rounds(replace(times(steps_s), work=work))
    assert (found.steps, found.unclear) == (50, False)


def test_one_large_evaluation_makes_no_round_of_equal_steps():
    work = np.where(np.arange(300) == 170, 3000.0, 300.0)
    assert find_rounds(replace(times(noisy([STEP_S], 300, noise=0.3)), work=work)).steps == 1


def test_a_rollout_with_its_updates_is_not_unsteady():
    steps_s = noisy(rollout(16, 1.0), 16 * 12, noise=0.03, shift=5)
    windows = find_rounds(times(steps_s)).windows(0.5)
    assert len(windows) == 12
    assert unsteady(windows) is None
