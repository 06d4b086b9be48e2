"""Trials of a hyper-parameter search on one GPU: how many at once, and what an hour of them gives.

Trials are taken to be alike: each is as many training steps of one job, whatever it tries out.
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

    Processes that start, and models that are built, come on top.

    Attributes:
        trials: In all.
        wall_s: With `Trials.at_once` of them at once; the last ones have the GPU to themselves.
        one_by_one_s: One after another.
    """

    trials: int
    wall_s: Interval
    one_by_one_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How many trials to run at once, and how.

    Attributes:
        copies: What comes of 1, 2, ... at once.
        steps: Training steps of one trial.
        at_once: Processes to run: as many as pay; of a search of known length, as many of these as
            end it soonest, and of those within `PAYS` of that the fewest.
        study: None where nobody said how many trials there are.
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
        """Of `at_once`: its prediction says how to share."""
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
    """What `copies` mean for a search, each of whose trials is one such job.

    Args:
        copies: Of a job on a GPU.
        predictor: What they were found with.
        steps: Training steps of a trial; None: all work of the job.
        count: Trials of the search; None: it goes on.

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
    """Seconds of a search: full rounds of as many trials as `row` has, then what is left over.

    Limits stay as processes started with them.
    """
    rounds, left = divmod(count, row.copies)
    full = row.prediction.jobs[0].step_s.scaled(steps * rounds)
    if left == 0:
        return full
    sharing = restricted(row.prediction.sharing, range(left))
    rest = predictor.predict([copies.job.profile] * left, sharing).jobs[0].step_s.scaled(steps)
    return Interval(full.p05 + rest.p05, full.p50 + rest.p50, full.p95 + rest.p95)
