"""The copies of a job that fit a GPU, and how many are worthwhile."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from typing import Annotated

from advisor.documents import As, Inline, Mark, in_document
from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu
from advisor.plan import step
from advisor.plan.limits import equal_vectors
from advisor.plan.objectives import weighed
from advisor.plan.rules import (
    EXACT_JOBS,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    memory_problem,
    mps_clients,
    refuse_confined,
)
from advisor.plan.values import OneLoader, Standing, equal_work
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Mps, Naive, PartitionSharing, Serial
from advisor.sharing.groups import restricted
from advisor.workload.job import MAX_JOBS, Job

MIN_GAIN = 0.02
"""Share by which more copies must raise the throughput: twice what two runs of the same jobs with
fresh processes differ by (the noise floor of the scoreboard is 0.3 to 0.9 %)."""

PATIENCE = 2
"""If neither one more copy nor this many more are worthwhile, the search ends."""

_CLOSE = 3  # limits that are tried for more copies than one GPU's plan searches all for


@dataclass(frozen=True, slots=True)
class CopiesRow:
    """The performance of a number of copies under the way to share that comes first.

    Attributes:
        throughput: Work done per time, that of one copy alone being 1.
    """

    copies: int
    prediction: Annotated[
        MixPrediction,
        Inline(
            "sharing",
            "memory_total_mib",
            "memory_capacity_mib",
            "oom_probability",
            "confirmed_on_hardware",
        ),
    ]
    throughput: float

    @property
    @in_document
    def step_s(self) -> Interval:
        """Seconds of a step of each copy."""
        return self.prediction.jobs[0].step_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The performance of copies of a job on one GPU.

    Attributes:
        rows: For increasing numbers of copies from 1 on, as far as more can be worthwhile.
        fit: Most copies that fit: their memory suffices, and they may share the GPU at all. Beyond
            `MAX_JOBS`, extrapolated from the memory that one of `MAX_JOBS` copies holds.
        worthwhile: The number of copies that is worthwhile.
        mps_clients: Copies that an MPS server serves at most; more would be time-sliced.
        one_loader: A better number if they share a data loader; None: there is none.
    """

    gpu: Annotated[Gpu, As("key")]
    job: Annotated[Job, As("name")]
    rows: tuple[CopiesRow, ...]
    fit: int
    limited_by: str
    worthwhile: int
    mps_clients: int
    level: Level = "p50"
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)
    one_loader: OneLoader | None = None

    @property
    def at_best(self) -> CopiesRow:
        """The row of the number of copies that is worthwhile."""
        return next(row for row in self.rows if row.copies == self.worthwhile)

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
        more = f"{fit + 1} copies take up to {(fit + 1) * each_mib:,.0f} MiB of {room_mib:,.0f} MiB"
        return fit, f"does not fit: {more}"

    def row(self, copies: int, fewer: CopiesRow | None = None) -> CopiesRow:
        """Predict so many copies, which fit, under the best way to share, handicaps included.

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
        best = min(mixes, key=lambda mix: weighed(equal_work(mix).at(self.level), mix.sharing))
        return CopiesRow(copies, best, 1 / equal_work(best).at(self.level))

    def restricted(self, row: CopiesRow, copies: int) -> CopiesRow:
        """Predict fewer copies than those of `row`, under the same limits."""
        step()
        sharing = restricted(row.prediction.sharing, range(copies))
        mix = self.predictor.predict([self.job.profile] * copies, sharing)
        return CopiesRow(copies, mix, 1 / equal_work(mix).at(self.level))

    def copies(self, rows: Sequence[CopiesRow], best: int, fit: int, limited_by: str) -> Copies:
        """Return the answer of a search."""
        return Copies(
            gpu=self.gpu,
            job=self.job,
            rows=tuple(rows),
            fit=fit,
            limited_by=limited_by,
            worthwhile=best,
            mps_clients=mps_clients(self.gpu, self.conditions.cuda),
            level=self.level,
        )

    def _problem(self, copies: int) -> str | None:
        """Why `copies` copies cannot run at once, limits aside; None where they can."""
        why = self._predicted(copies, Naive())
        if isinstance(why, str) and isinstance(self._predicted(copies, Mps()), str):
            return why
        return None

    def _predicted(self, copies: int, sharing: PartitionSharing) -> MixPrediction | str:
        """The prediction; else why this is not allowed."""
        step()
        jobs = [self.job] * copies
        if problem := broken_rule(jobs, sharing, self.gpu, self.conditions):
            return problem
        mix = self.predictor.predict([each.profile for each in jobs], sharing)
        return memory_problem(mix, self.gpu, self.conditions.memory_margin) or mix


def worthwhile_copies(table: CopiesTable) -> Copies:
    """Count the copies that fit at once, and those worthwhile; errors: see `CopiesTable.most`.

    The worthwhile number is the least for which neither one more nor `PATIENCE` more copies do
    more work.
    """
    fit, limited_by = table.most()
    rows, best = [table.row(1)], 1
    while len(rows) < min(fit, MAX_JOBS, best + PATIENCE):
        rows.append(table.row(len(rows) + 1, rows[-1]))
        while max((row.throughput for row in rows[best : best + PATIENCE]), default=0.0) > (
            (1 + MIN_GAIN) * rows[best - 1].throughput
        ):
            best += 1
    return table.copies(rows, best, fit, limited_by)
