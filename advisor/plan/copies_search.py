"""How many copies of a job fit on one GPU, how many pay, and how many MPS serves: three numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from advisor.errors import NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.plan.objectives.pace import throughput
from advisor.plan.recommendation import Standing
from advisor.plan.rules import (
    UNCONDITIONAL,
    Conditions,
    FitsMemory,
    first_broken,
    mps_clients,
    rules,
)
from advisor.prediction.interval import Level
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.surrogate_answers import Predicts
from advisor.sharing import Mps, Naive, PartitionSharing, Serial
from advisor.workload.job import Job
from advisor.workload.job_count import MAX_JOBS

PAYS = 0.02
"""Share by which more copies must raise the throughput: twice what two runs of the same jobs with
fresh processes differ by (the noise floor of the scoreboard is 0.3 to 0.9 %)."""

PATIENCE = 2
"""If neither one more copy nor so many more pay, none more is looked at."""

# Sums of the equal limits of all copies that are tried, in per cent.
_LIMIT_SUMS = (100, 200)


@dataclass(frozen=True, slots=True)
class CopiesRow:
    """What a given number of copies achieves.

    Attributes:
        prediction: Prediction under the way to share that gives most throughput.
        throughput: Work done per time, that of one copy alone being 1.
        gain: Share by which the throughput exceeds that of one copy less; None for one copy.
    """

    copies: int
    prediction: MixPrediction
    throughput: float
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """What 1 to n copies of a job on one GPU achieve.

    Attributes:
        rows: For 1, 2, ... copies: until no more fit, until `PATIENCE` more copies would not pay,
            or up to the most that one question may ask about.
        fit: Most copies that fit: their memory suffices, and they may share the GPU at all. Beyond
            `MAX_JOBS`, extrapolated from the memory that one of `MAX_JOBS` copies holds.
        limited_by: Why no more fit.
        pay: Fewest copies of which neither one more nor `PATIENCE` more would raise the throughput
            by more than `PAYS`.
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
        """The row of the number of copies that pays."""
        return self.rows[self.pay - 1]


def copies_that_pay(
    job: Job,
    gpu: Gpu,
    predictor: Predicts,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
) -> Copies:
    """How many copies of `job` fit on `gpu` at once, and how many pay.

    `level` says by which point of a step's interval copies are judged: ``"p50"``, the median, or
    ``"p95"``, the upper end.

    Raises:
        NothingFits: Not even one copy fits.
    """
    table = _CopiesTable(job, gpu, predictor, conditions, level)
    first = table.best(1)
    if isinstance(first, str):
        raise NothingFits(f"{job.name} on {gpu.key}: {first}. Use a smaller batch.")
    rows, pay = [CopiesRow(1, first, table.throughput(first), None)], 1
    fit, limited_by = table.most()
    while len(rows) < min(fit, pay + PATIENCE, MAX_JOBS):
        found = table.after(rows)
        if isinstance(found, str):  # memory is not all that a rule looks at
            fit, limited_by = len(rows), found
            break
        rows.append(found)
        while pay < len(rows) and _best_of_more(rows, pay) > (1 + PAYS) * rows[pay - 1].throughput:
            pay += 1
    return Copies(
        gpu=gpu, job=job, rows=tuple(rows), fit=fit, limited_by=limited_by, pay=pay,
        mps_clients=mps_clients(gpu, conditions.cuda),
    )  # fmt: skip


def _best_of_more(rows: Sequence[CopiesRow], copies: int) -> float:
    """The most throughput of `rows` with up to `PATIENCE` copies more than `copies`."""
    return max(row.throughput for row in rows[copies : copies + PATIENCE])


@dataclass(frozen=True, slots=True)
class _CopiesTable:
    """Predicts numbers of copies of `job` under each way to share."""

    job: Job
    gpu: Gpu
    predictor: Predicts
    conditions: Conditions
    level: Level

    def throughput(self, mix: MixPrediction) -> float:
        return throughput(mix, self.level)

    def after(self, rows: Sequence[CopiesRow]) -> CopiesRow | str:
        """The row of one copy more than the last of `rows`; else why none is allowed."""
        found = self.best(len(rows) + 1)
        if isinstance(found, str):
            return found
        done = self.throughput(found)
        return CopiesRow(len(rows) + 1, found, done, done / rows[-1].throughput - 1)

    def most(self) -> tuple[int, str]:
        """The most copies that fit, and why no more do."""
        if (why := self._problem(MAX_JOBS)) is None:
            return self._extrapolated()
        fits, too_many = 1, MAX_JOBS
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if problem := self._problem(middle):
                too_many, why = middle, problem
            else:
                fits = middle
        return fits, why

    def _extrapolated(self) -> tuple[int, str]:
        """As `most`, of more copies than are predicted."""
        mix = self.predictor.predict([self.job.profile] * MAX_JOBS, Naive())
        each_mib = mix.jobs[0].memory_interval_mib.p95
        room_mib = mix.memory_capacity_mib * (1 - self.conditions.memory_margin)
        fits = max(MAX_JOBS, int(room_mib // each_mib))
        return fits, (
            f"does not fit: {fits + 1} take up to {(fits + 1) * each_mib:,.0f} MiB of "
            f"{room_mib:,.0f} MiB"
        )

    def best(self, copies: int) -> MixPrediction | str:
        """Prediction under the way to share with most throughput; else why none is allowed."""
        asked = [self._asked(copies, sharing) for sharing in _ways(copies)]
        answers = [each for each in asked if isinstance(each, MixPrediction)]
        problems = [each for each in asked if isinstance(each, str)]
        return max(answers, key=self.throughput) if answers else problems[0]

    def _problem(self, copies: int) -> str | None:
        """Why `copies` copies cannot run at once, limits aside; None where they can."""
        first = self._asked(copies, Naive())
        if not isinstance(first, str) or not isinstance(self._asked(copies, Mps()), str):
            return None
        return first

    def _asked(self, copies: int, sharing: PartitionSharing) -> MixPrediction | str:
        jobs: Sequence[Job] = [self.job] * copies
        if problem := first_broken(rules(self.gpu, self.conditions), jobs, sharing):
            return problem
        answer = self.predictor.predict([each.profile for each in jobs], sharing)
        fits = FitsMemory(self.gpu, self.conditions.memory_margin)
        return fits.broken(answer) or answer


def _ways(copies: int) -> Iterator[PartitionSharing]:
    if copies == 1:
        yield Serial()
        return
    yield from (Naive(), Mps())
    for total in _LIMIT_SUMS:
        limit = round(total / copies)
        if limit <= 100:
            yield Mps((float(limit),) * copies)
