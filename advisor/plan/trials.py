"""Hyper-parameter search on one GPU: how many trials to run at once, and trials per hour.

All trials are assumed to be alike: each is the same number of steps of the same job, whatever it
tries out.
"""

from dataclasses import dataclass
from math import isfinite

from advisor.errors import InvalidInput
from advisor.plan.copies_search import PAYS, Copies, CopiesRow
from advisor.plan.recommendation import Predicts, Standing
from advisor.prediction.mix_prediction import Interval
from advisor.sharing.traversal import restricted

MAX_TRIALS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A whole search, from the first step of its first trials to the last step of its last.

    Starting processes and building models takes additional time.

    Attributes:
        trials: Number of trials.
        wall_s: Seconds with `Trials.at_once` trials at once; fewer share the GPU in the last round.
        one_by_one_s: Seconds with one trial after another.
    """

    trials: int
    wall_s: Interval
    one_by_one_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How many trials to run at once, and how.

    Attributes:
        copies: What 1, 2, ... trials at once achieve.
        steps: Training steps of one trial.
        at_once: Number of processes to run: as many as pay. For a search of known length, the
            fewest of these that end it within `PAYS` of the soonest.
        study: The whole search; None where its number of trials is not known.
    """

    copies: Copies
    steps: float
    at_once: int
    study: Study | None

    @property
    def standing(self) -> Standing:
        return self.copies.standing

    @property
    def row(self) -> CopiesRow:
        """The row of `at_once` trials; its prediction says how they share the GPU."""
        return self.copies.rows[self.at_once - 1]

    def trial_s(self, row: CopiesRow) -> Interval:
        """Seconds of one of the trials of `row`."""
        return row.prediction.jobs[0].step_s.scaled(self.steps)

    def per_hour(self, row: CopiesRow) -> Interval:
        """Trials that end in an hour, run as `row` says."""
        trial_s = self.trial_s(row)
        ends = (trial_s.p95, trial_s.p50, trial_s.p05)
        return Interval(*(3600 * row.copies / each for each in ends))


def trials_that_pay(
    copies: Copies, predictor: Predicts, steps: float | None = None, count: int | None = None
) -> Trials:
    """How many trials to run at once, given what `copies` of one trial achieve.

    Args:
        copies: What copies of the job achieve on a GPU.
        predictor: The predictor of `copies`.
        steps: Training steps of a trial; None: those of the job.
        count: Number of trials; None: the search is open-ended.

    Raises:
        InvalidInput: The length of a trial is not known, or a number is impossible.
    """
    length = _length(copies, steps)
    if count is None:
        return Trials(copies=copies, steps=length, at_once=copies.pay, study=None)
    if not 1 <= count <= MAX_TRIALS:
        raise InvalidInput(f"a search has 1 to {MAX_TRIALS:,} trials, got {count}")
    most = min(copies.pay, count)
    walls = [_wall_s(copies, row, predictor, length, count) for row in copies.rows[:most]]
    soonest_s = min(each.p50 for each in walls)
    at_once = 1 + next(n for n, each in enumerate(walls) if each.p50 <= (1 + PAYS) * soonest_s)
    study = Study(trials=count, wall_s=walls[at_once - 1], one_by_one_s=walls[0])
    return Trials(copies=copies, steps=length, at_once=at_once, study=study)


def _length(copies: Copies, steps: float | None) -> float:
    if steps is None and (steps := copies.job.work_steps) is None:
        raise InvalidInput(
            f"{copies.job.name}: how long a trial is, is not known: its profile does not say how "
            f"many examples a pass has. Say --steps."
        )
    if not (isfinite(steps) and steps >= 1):
        raise InvalidInput(f"a trial has at least 1 training step, got {steps:g}")
    return steps


def _wall_s(
    copies: Copies, row: CopiesRow, predictor: Predicts, steps: float, count: int
) -> Interval:
    """Seconds of a search: full rounds of `row.copies` trials, then the trials that are left.

    In the last round the limits stay as the processes started with them.
    """
    rounds, left = divmod(count, row.copies)
    full = row.prediction.jobs[0].step_s.scaled(steps * rounds)
    if left == 0:
        return full
    sharing = restricted(row.prediction.sharing, range(left))
    rest = predictor.predict([copies.job.profile] * left, sharing).jobs[0].step_s.scaled(steps)
    return Interval(full.p05 + rest.p05, full.p50 + rest.p50, full.p95 + rest.p95)
