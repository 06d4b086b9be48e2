"""The copies of a job that fit a GPU, how many are worthwhile, and how many trials of a search."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite, log

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import Gpu
from advisor.plan.limits import equal_vectors
from advisor.plan.objectives import throughput
from advisor.plan.rules import (
    EXACT_JOBS,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    memory_problem,
    mps_clients,
    refuse_confined,
)
from advisor.plan.values import Standing
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import LEVELS, Interval, Level, MixPrediction
from advisor.sharing import Mps, Naive, PartitionSharing, Serial
from advisor.sharing.groups import restricted
from advisor.workload.job import MAX_JOBS, Job
from advisor.workload.reading import DAY_S

PAYS = 0.02
"""Share by which more copies must raise the throughput: twice what two runs of the same jobs with
fresh processes differ by (the noise floor of the scoreboard is 0.3 to 0.9 %)."""

PATIENCE = 2
"""If neither one more copy nor this many more are worthwhile, the search ends."""

# How many limits are tried for more copies than one GPU's plan searches all for; and the factor
# from one number of trials at once to the next beyond these.
_CLOSE, _GROWTH = 3, 1.5


@dataclass(frozen=True, slots=True)
class CopiesRow:
    """The performance of a number of copies under the way to share that gives most throughput.

    Attributes:
        throughput: Work done per time, that of one copy alone being 1.
    """

    copies: int
    prediction: MixPrediction
    throughput: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The performance of copies of a job on one GPU.

    Attributes:
        rows: For increasing numbers of copies from 1 on, as far as more can be worthwhile.
        fit: Most copies that fit: their memory suffices, and they may share the GPU at all. Beyond
            `MAX_JOBS`, extrapolated from the memory that one of `MAX_JOBS` copies holds.
        pay: The number of copies that is worthwhile.
        mps_clients: Copies that an MPS server serves at most; more would be time-sliced.
    """

    gpu: Gpu
    job: Job
    rows: tuple[CopiesRow, ...]
    fit: int
    limited_by: str
    pay: int
    mps_clients: int
    standing: Standing = field(default_factory=Standing)

    @property
    def at_best(self) -> CopiesRow:
        """The row of the number of copies that is worthwhile."""
        return next(row for row in self.rows if row.copies == self.pay)

    def gain(self, row: CopiesRow) -> float | None:
        """Return the share by which its throughput exceeds that of one copy less; None: no row."""
        fewer = (each.throughput for each in self.rows if each.copies == row.copies - 1)
        return next((row.throughput / before - 1 for before in fewer), None)


@dataclass(frozen=True, slots=True)
class CopiesTable:
    """Predicts copies of `job` on `gpu`, each number under its best way to share."""

    job: Job
    gpu: Gpu
    predictor: Predicts
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    def most(self) -> tuple[int, str]:
        """Return the most copies that fit, and why no more do.

        Raises:
            NothingFits: Not even one copy fits.
        """
        refuse_confined(self.conditions)
        if isinstance(alone := self._predicted(1, Serial()), str):
            raise NothingFits(f"{self.job.name} on {self.gpu.key}: {alone}. Use a smaller batch.")
        if why := self._problem(MAX_JOBS):
            numbers = range(2, MAX_JOBS)
            fit = 1 + bisect_left(numbers, True, key=lambda n: self._problem(n) is not None)
            return fit, self._problem(fit + 1) or why
        # Extrapolate the memory of the most copies that are predicted.
        mix = self.predictor.predict([self.job.profile] * MAX_JOBS, Naive())
        each_mib = mix.jobs[0].memory_interval_mib.p95
        room_mib = mix.memory_capacity_mib * (1 - self.conditions.memory_margin)
        fit = max(MAX_JOBS, int(room_mib // each_mib))
        more = f"{fit + 1} take up to {(fit + 1) * each_mib:,.0f} MiB of {room_mib:,.0f} MiB"
        return fit, f"does not fit: {more}"

    def row(self, copies: int, fewer: CopiesRow | None = None) -> CopiesRow:
        """Predict so many copies, which fit, under the way to share with most throughput.

        More than `EXACT_JOBS` have limits close to those of `fewer` copies.
        """
        ways: list[PartitionSharing] = [Serial()] if copies == 1 else [Naive(), Mps()]
        limits = equal_vectors(copies) if copies > 1 else []
        if fewer is not None and copies > EXACT_JOBS:
            limit = next(iter(fewer.prediction.sharing.limits), None)
            limits.sort(key=lambda each: abs(log(each.limits[0] / (limit or 100.0))))
            ways, limits = ways[:1] if limit else ways, limits[:_CLOSE]
        answers = [self._predicted(copies, sharing) for sharing in (*ways, *limits)]
        mixes = [each for each in answers if isinstance(each, MixPrediction)]
        best = max(mixes, key=lambda mix: throughput(mix, self.level))
        return CopiesRow(copies, best, throughput(best, self.level))

    def restricted(self, row: CopiesRow, copies: int) -> CopiesRow:
        """Predict fewer copies than those of `row`, under the same limits."""
        sharing = restricted(row.prediction.sharing, range(copies))
        mix = self.predictor.predict([self.job.profile] * copies, sharing)
        return CopiesRow(copies, mix, throughput(mix, self.level))

    def copies(self, rows: Sequence[CopiesRow], pay: int, fit: int, limited_by: str) -> Copies:
        """Return the answer of a search."""
        return Copies(
            gpu=self.gpu, job=self.job, rows=tuple(rows), fit=fit, limited_by=limited_by, pay=pay,
            mps_clients=mps_clients(self.gpu, self.conditions.cuda),
        )  # fmt: skip

    def _problem(self, copies: int) -> str | None:
        """Why `copies` copies cannot run at once, limits aside; None where they can."""
        why = self._predicted(copies, Naive())
        if isinstance(why, str) and isinstance(self._predicted(copies, Mps()), str):
            return why
        return None

    def _predicted(self, copies: int, sharing: PartitionSharing) -> MixPrediction | str:
        """The prediction; else why this is not allowed."""
        jobs = [self.job] * copies
        if problem := broken_rule(jobs, sharing, self.gpu, self.conditions):
            return problem
        mix = self.predictor.predict([each.profile for each in jobs], sharing)
        return memory_problem(mix, self.gpu, self.conditions.memory_margin) or mix


def copies_that_pay(table: CopiesTable) -> Copies:
    """Count the copies that fit at once, and those worthwhile; errors as of `CopiesTable.most`.

    Fewest copies are worthwhile of which neither one more nor `PATIENCE` more do more work.
    """
    fit, limited_by = table.most()
    rows, pay = [table.row(1)], 1
    while len(rows) < min(fit, MAX_JOBS, pay + PATIENCE):
        rows.append(table.row(len(rows) + 1, rows[-1]))
        while max((row.throughput for row in rows[pay : pay + PATIENCE]), default=0.0) > (
            (1 + PAYS) * rows[pay - 1].throughput
        ):
            pay += 1
    return table.copies(rows, pay, fit, limited_by)


MAX_TRIALS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A whole search, from the first step of its first trials to the last step of its last.

    Attributes:
        rounds: Rounds in which trials run; the last may have fewer trials than the others.
        wall_s: Seconds with `Trials.at_once` trials at once; fewer share the GPU in the last round.
    """

    trials: int
    rounds: int
    wall_s: Interval
    one_by_one_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Number of equal trials to run at once, and how.

    Each is the same number of steps of the same job, whatever it tries out.

    Attributes:
        copies: The performance of some numbers of trials at once; worthwhile are the fewest within
            `PAYS` of the most trials an hour; for a search of known length, of its soonest end.
        study: The whole search; None where its number of trials is not known.
    """

    copies: Copies
    steps: float
    start_s: float
    study: Study | None

    @property
    def standing(self) -> Standing:
        return self.copies.standing

    @property
    def at_once(self) -> int:
        return self.copies.pay

    @property
    def row(self) -> CopiesRow:
        """The row of `at_once` trials; its prediction says how they share the GPU."""
        return self.copies.at_best

    def trial_s(self, row: CopiesRow) -> Interval:
        """Return the seconds that one of the trials of `row` trains for."""
        return row.prediction.jobs[0].paced_s.scaled(self.steps)

    def per_hour(self, row: CopiesRow) -> Interval:
        """Return the number of trials that start and end in an hour, run as in `row`."""
        return self.trial_s(row).later(self.start_s).rate(3600 * row.copies)

    def trained_per_hour(self, row: CopiesRow) -> Interval:
        """Return the trials an hour of processes that are started already."""
        return self.trial_s(row).rate(3600 * row.copies)


def trials_that_pay(
    table: CopiesTable, steps: float | None = None, count: int | None = None, start_s: float = 0.0
) -> Trials:
    """Choose the fewest trials at once that end within `PAYS` of the most trials an hour.

    `steps` are those of a trial, else of the job; `count` is the number of trials, None: unknown. A
    process takes `start_s` to start; 0: it goes on with the next trial. Of more than `EXACT_JOBS`
    at once only some numbers are predicted, because more never take longer a trial until they do.

    Raises:
        InvalidInput: The length of a trial is not known, or a number is impossible.
        NothingFits: Not even one trial fits.
    """
    steps = _checked_steps(table.job, steps, count, start_s)
    fit, limited_by = table.most()
    # Of the numbers at once that take as many rounds, the fewest.
    numbers = sorted({at if count is None else ceil(count / ceil(count / at))
                      for at in range(1, min(fit, MAX_JOBS, count or MAX_JOBS) + 1)})  # fmt: skip

    def spent_s(row: CopiesRow) -> Interval:
        """Seconds of all rounds, without `count` of one; limits stay in the last round."""
        rounds, left = divmod(count or row.copies, row.copies)
        paced_s = row.prediction.jobs[0].paced_s.scaled(rounds)
        if left:
            last_s = table.restricted(row, left).prediction.jobs[0].paced_s
            paced_s = Interval(*(paced_s.at(level) + last_s.at(level) for level in LEVELS))
        return paced_s.scaled(steps).later(start_s * (rounds + bool(left)))

    rows: dict[int, CopiesRow] = {}
    trial_s: dict[int, float] = {}  # seconds of the GPU for each trial, by the number at once

    def enough(row: CopiesRow) -> bool:
        """Add `row`; whether no other takes much less time."""
        rows[row.copies] = row
        trial_s[row.copies] = spent_s(row).at(table.level) / (count or row.copies)
        return trial_s[row.copies] <= (1 + PAYS) * min(trial_s.values())

    fewest = fewer = 0
    for at_once in _spaced(numbers):
        enough(row := table.row(at_once, rows.get(fewer)))
        best_s = min(trial_s.values())
        fewest = next(at for at, each_s in trial_s.items() if each_s <= (1 + PAYS) * best_s)
        trained_s = row.prediction.jobs[0].paced_s.at(table.level) * steps / at_once
        may_gain = (trained_s + start_s / numbers[-1]) * (1 + PAYS / 2) < best_s  # by fewer starts
        if at_once >= fewest + max(PATIENCE, fewest // 2) and not may_gain:
            break
        fewer = at_once
    between = [
        at for at in numbers if max((n for n in rows if n < fewest), default=0) < at < fewest
    ]
    later = bisect_left(between, True, key=lambda at: enough(table.restricted(rows[fewest], at)))
    pay = [*between, fewest][later]
    copies = table.copies([row for _, row in sorted(rows.items())], pay, fit, limited_by)
    if count is None:
        return Trials(copies=copies, steps=steps, start_s=start_s, study=None)
    study = Study(
        trials=count, rounds=ceil(count / pay), wall_s=spent_s(rows[pay]),
        one_by_one_s=spent_s(rows[1]),
    )  # fmt: skip
    return Trials(copies=copies, steps=steps, start_s=start_s, study=study)


def _spaced(numbers: Sequence[int]) -> Iterator[int]:
    """Yield all up to `EXACT_JOBS`, then some, each larger by half or more, and the last."""
    before = 0
    for number in numbers:
        if number <= EXACT_JOBS or number >= _GROWTH * before or number == numbers[-1]:
            yield number
            before = number


def _checked_steps(job: Job, steps: float | None, count: int | None, start_s: float) -> float:
    """The steps of a trial, by default those of the job; refuses impossible numbers."""
    steps = job.work_steps if steps is None else steps
    if steps is None:
        raise InvalidInput(
            f"the length of a trial of {job.name} is not known, because its profile has no number "
            f"of examples. Pass --steps."
        )
    if not (isfinite(steps) and steps >= 1):
        raise InvalidInput(f"a trial has at least 1 training step, got {steps:g}")
    if not 0 <= start_s <= DAY_S:
        raise InvalidInput(f"a process starts in 0 s to a day, got {start_s:g} s")
    if count is not None and (not 1 <= count <= MAX_TRIALS or count % 1):
        raise InvalidInput(f"a search has 1 to {MAX_TRIALS:,} trials, got {count}")
    return steps
