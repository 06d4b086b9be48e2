"""Finds the round of a training program: the shortest period of steps that repeats.

Work between two steps that occurs once in many steps, such as a validation, is an epoch end, and
part of no step.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.workload.profile import EpochEnd, Window

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTimes:
    """Seconds of each step of one process, and what the hook saw in it, each of shape (steps,).

    Attributes:
        intervals_s: Seconds from one end to the next; the time that measuring took is left out.
        new_pass: Whether the program made a new iterator of its training's loader.
        loader_s: Seconds in which it made that iterator and took the first batch.
        work: A count that does not depend on the host's pace; NaN where not counted.
    """

    intervals_s: Floats
    new_pass: NDArray[np.bool_]
    loader_s: Floats
    checkpoint_s: Floats
    validation_s: Floats
    work: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rounds:
    """The round of a program, as far as `StepTimes` show it.

    Attributes:
        steps_s: Seconds of each of its `steps`, in the median, the longest first, shape (steps,).
        unclear: Whether fewer than two rounds were seen: `steps` may be wrong.
        intervals_s: Seconds of each step seen, without epoch ends, shape (intervals,).
        epoch_end: Mean epoch end; None if the `epoch_ends` that were seen take no time.
    """

    steps: int
    steps_s: tuple[float, ...]
    unclear: bool
    intervals_s: Floats
    epoch_end: EpochEnd | None
    epoch_ends: int

    @property
    def whole(self) -> int:
        """Rounds that were seen from beginning to end."""
        return len(self.intervals_s) // self.steps

    def windows(self, least_s: float) -> tuple[Window, ...]:
        """Return windows of whole rounds of at least `least_s` each, without epoch ends."""
        bounds = self.window_bounds(least_s)
        done_s = np.append(0.0, np.cumsum(self.intervals_s))
        return tuple(map(Window, np.diff(done_s[bounds]).tolist(), np.diff(bounds).tolist()))

    def window_bounds(self, least_s: float) -> list[int]:
        """Return the indices of the steps at whose ends the `windows` begin and end.

        If all rounds together are shorter, they are one window; without a whole round, all steps.
        """
        bounds, taken_s = [0], 0.0
        for begin in range(0, self.whole * self.steps, self.steps):
            taken_s += float(self.intervals_s[begin : begin + self.steps].sum())
            if taken_s >= least_s:
                bounds, taken_s = [*bounds, begin + self.steps], 0.0
        last = self.whole * self.steps or len(self.intervals_s)
        return bounds if len(bounds) > 1 else [0, last]


# A period, or an end, that changes the mean step by less makes no difference to any prediction.
_MATTERS = 0.03
# What happens more often than once in so many steps is a part of a round: a loader that is read
# once for each of a few updates, a checkpoint after each of a few large steps.
_SELDOM = 20
# Errors of two periods differ by chance with this many standard deviations of their noise.
_BY_CHANCE = 2.0
# The shortest period may predict this share of what the best predicts less well.
_OF_GAIN = 1 / 3
_LONGEST_ROUND = 1024
# In two rounds any two stalls repeat. So what errs by more than so many times the usual error must
# nearly be alike: all but this share is explained.
_STALL, _UNEXPLAINED = 5.0, 0.4
# A step that takes so many times as long as predicted is more than noise. If there are few of these
# and they take this share of the time, perhaps rounds are longer than what was seen.
_LONG, _LONG_SHARE, _FEW = 4.0, 0.1, 4
# Steps whose work was counted, before a round is taken from that instead of from their times.
_ENOUGH_COUNTED = 8
# Forward passes without gradients are rollouts where they take more of the time than this.
_VALIDATION_SHARE = 0.25


def find_rounds(times: StepTimes) -> Rounds:
    """Find the round and the epoch ends of the program whose steps ended at `times`."""
    intervals_s = times.intervals_s
    rolls_out = times.validation_s.sum() > _VALIDATION_SHARE * intervals_s.sum()
    marks = [times.new_pass, times.checkpoint_s > 0, (times.validation_s > 0) & ~rolls_out]
    seldom = []
    for mark in marks:
        at = np.flatnonzero(mark)
        rare = len(at) == 1 or (len(at) > 1 and float(np.median(np.diff(at))) >= _SELDOM)
        seldom.append(mark & rare)
    at_end = np.logical_or.reduce(seldom)
    if at_end.all():
        at_end = np.zeros_like(at_end)
    steps_s = np.where(at_end, np.nan, intervals_s)  # a step in an epoch end was not timed
    period, unclear = _period(steps_s)
    if np.isfinite(times.work).sum() >= _ENOUGH_COUNTED:
        by_work, unclear_work = _period(np.where(at_end, np.nan, times.work))
        if by_work > 1 and not unclear_work:
            period, unclear = by_work, False
    usual_s = _usual_s(steps_s, period)
    over_s = np.maximum(0.0, intervals_s - usual_s)[at_end]
    # The mean end, if it matters; ends of another kind are counted to the most frequent.
    most_often = max(seldom, key=np.count_nonzero)
    count, total_s, end = int(np.count_nonzero(most_often)), float(over_s.sum()), None
    if count and total_s >= _MATTERS * (float(intervals_s.sum()) - total_s):
        seconds = {"seconds": total_s / count}
        for name in ("checkpoint_s", "validation_s", "loader_s"):
            taken_s = np.minimum(over_s, getattr(times, name)[at_end])
            over_s = over_s - taken_s
            seconds[name] = float(taken_s.sum()) / count
        gaps = np.diff(np.flatnonzero(most_often))
        end = EpochEnd(steps=round(float(np.median(gaps))) if len(gaps) else None, **seconds)
    return Rounds(
        steps=period,
        steps_s=tuple(np.roll(usual_s[:period], -np.argmax(usual_s[:period])).tolist()),
        unclear=unclear,
        intervals_s=np.where(at_end, usual_s, intervals_s),
        epoch_end=end,
        epoch_ends=count,
    )


def _period(steps_s: Floats) -> tuple[int, bool]:
    """Return the shortest period that predicts steps as well as any, and whether it is unclear.

    The median of those at the same place in other rounds predicts a step, so neither noise nor a
    multiple of the period seems to repeat. NaN is a step that was not timed.
    """
    steps = len(steps_s)
    plain_s = float(np.nanmedian(steps_s))
    totals_s, margins_s, stalls_s = [], [], 0.0
    for period in range(1, max(2, min(_LONGEST_ROUND, steps - 1) + 1)):
        error_s, expected_s = _errors_s(steps_s, period, plain_s)
        totals_s.append(float(error_s.sum()))
        noise_s = np.minimum(error_s, expected_s)  # a stall is no noise
        margins_s.append(_BY_CHANCE * float(np.sqrt((noise_s**2).sum())))
        if period == 1:
            stalls_s = _beyond_noise_s(error_s)
        elif steps < 3 * period and _beyond_noise_s(error_s) >= _UNEXPLAINED * stalls_s:
            totals_s[-1] = np.inf
    beyond_s = np.array(totals_s) - min(totals_s)
    margin_s = np.maximum(_MATTERS * float(np.nansum(steps_s)), margins_s)
    margin_s[1:] = np.minimum(margin_s[1:], _OF_GAIN * beyond_s[0])
    period = 1 + int(np.argmax(beyond_s <= margin_s))
    usual_s = _usual_s(steps_s, period)  # a few long steps may remain that no round explains
    long_s = (steps_s - usual_s)[steps_s > _LONG * usual_s]
    in_part = float(long_s.sum()) > _LONG_SHARE * float(np.nansum(steps_s))
    return period, steps < 2 * period or (in_part and len(long_s) <= _FEW)


def _beyond_noise_s(error_s: Floats) -> float:
    return float(np.maximum(0.0, error_s - _STALL * np.median(error_s)).sum())


def _folded(steps_s: Floats, period: int) -> Floats:
    """Return steps by their place in a round, sorted, shape (period, rounds); NaN at the ends."""
    rounds = -(-len(steps_s) // period)
    padded = np.append(steps_s, np.full(rounds * period - len(steps_s), np.nan))
    return np.sort(padded.reshape(rounds, period).T, axis=1)


def _errors_s(steps_s: Floats, period: int, plain_s: float) -> tuple[Floats, Floats]:
    """Return the distance of each step from the median of others at its place, and the median."""
    folded = _folded(steps_s, period)
    timed = np.isfinite(folded)
    others = timed.sum(axis=1, keepdims=True) - 1
    rank = np.arange(folded.shape[1])
    middle = np.zeros_like(folded)
    for half in ((others - 1) // 2, others // 2):
        at = np.clip(np.where(rank <= half, half + 1, half), 0, folded.shape[1] - 1)
        middle += np.take_along_axis(folded, at, axis=1) / 2
    middle = np.where(others > 0, middle, plain_s)
    return np.abs(folded - middle)[timed], middle[timed]


def _usual_s(steps_s: Floats, period: int) -> Floats:
    """Return the median seconds of a step at each step's place in the round, in its shape."""
    folded = _folded(steps_s, period)
    plain_s = float(np.nanmedian(steps_s))
    places_s = [plain_s if np.isnan(row).all() else float(np.nanmedian(row)) for row in folded]
    return np.resize(np.array(places_s), len(steps_s))
