"""Hyper-parameter search on one GPU: how many trials to run at once, and trials per hour.

All trials are assumed to be alike: each is the same number of steps of the same job, whatever it
tries out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from advisor.errors import InvalidInput
from advisor.plan.copies_search import PAYS, Copies, CopiesRow
from advisor.plan.recommendation import Standing
from advisor.prediction.interval import Interval
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing.traversal import restricted
from advisor.workload.plausible import DAY_S

MAX_TRIALS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A whole search, from the first step of its first trials to the last step of its last.

    Building models takes additional time.

    Attributes:
        trials: Number of trials.
        rounds: Rounds in which they run; the last may have fewer trials than the others.
        wall_s: Seconds with `Trials.at_once` trials at once; fewer share the GPU in the last round.
        one_by_one_s: Seconds with one trial after another.
    """

    trials: int
    rounds: int
    wall_s: Interval
    one_by_one_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How many trials to run at once, and how.

    Attributes:
        copies: What 1, 2, ... trials at once achieve.
        steps: Training steps of one trial.
        start_s: Seconds in which the process of a trial starts, before its first step.
        at_once: Number of processes to run: as many as pay. For a search of known length, the
            fewest of these that end it within `PAYS` of the soonest.
        study: The whole search; None where its number of trials is not known.
    """

    copies: Copies
    steps: float
    start_s: float
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
        """Seconds that one of the trials of `row` trains for."""
        return row.prediction.jobs[0].step_s.scaled(self.steps)

    def per_hour(self, row: CopiesRow) -> Interval:
        """Trials that start and end in an hour, run as `row` says."""
        return _per_hour(row.copies, self.trial_s(row).later(self.start_s))

    def trained_per_hour(self, row: CopiesRow) -> Interval:
        """As `per_hour`, of processes that are started already."""
        return _per_hour(row.copies, self.trial_s(row))


def trials_that_pay(
    copies: Copies,
    predictor: Predicts,
    steps: float | None = None,
    count: int | None = None,
    start_s: float = 0.0,
) -> Trials:
    """How many trials to run at once, given what `copies` of one trial achieve.

    Args:
        copies: What copies of the job achieve on a GPU.
        predictor: The predictor of `copies`.
        steps: Training steps of a trial; None: those of the job.
        count: Number of trials; None: the search is open-ended.
        start_s: Seconds that the process of a trial takes to start; 0: it goes on with the next.

    Raises:
        InvalidInput: The length of a trial is not known, or a number is impossible.
    """
    length = _length(copies, steps)
    if not 0 <= start_s <= DAY_S:
        raise InvalidInput(f"a process starts in 0 s to a day, got {start_s:g} s")
    if count is None:
        return Trials(
            copies=copies, steps=length, start_s=start_s, at_once=copies.pay, study=None
        )  # fmt: skip
    if not 1 <= count <= MAX_TRIALS or count % 1:
        raise InvalidInput(f"a search has 1 to {MAX_TRIALS:,} trials, got {count}")
    walls = [
        _wall_s(copies, row, predictor, length, count).later(start_s * ceil(count / row.copies))
        for row in copies.rows[: min(copies.pay, count)]
    ]
    at_once = _fewest_that_pay(walls)
    study = Study(
        trials=count, rounds=ceil(count / at_once), wall_s=walls[at_once - 1],
        one_by_one_s=walls[0],
    )  # fmt: skip
    return Trials(copies=copies, steps=length, start_s=start_s, at_once=at_once, study=study)


def _fewest_that_pay(walls_s: Sequence[Interval]) -> int:
    """The fewest trials at once with which a study ends about as soon as it can.

    Args:
        walls_s: Seconds of the study with 1, 2, ... trials at once.
    """
    soonest_s = min(each.p50 for each in walls_s)
    return 1 + next(at for at, each in enumerate(walls_s) if each.p50 <= (1 + PAYS) * soonest_s)


def _per_hour(copies: int, each_s: Interval) -> Interval:
    ends = (each_s.p95, each_s.p50, each_s.p05)
    return Interval(*(3600 * copies / each for each in ends))


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
    """Seconds of training: full rounds of `row.copies` trials, then the trials that are left.

    In the last round the limits stay as the processes started with them.
    """
    rounds, left = divmod(count, row.copies)
    full = row.prediction.jobs[0].step_s.scaled(steps * rounds)
    if left == 0:
        return full
    sharing = restricted(row.prediction.sharing, range(left))
    rest = predictor.predict([copies.job.profile] * left, sharing).jobs[0].step_s.scaled(steps)
    return Interval(full.p05 + rest.p05, full.p50 + rest.p50, full.p95 + rest.p95)
