"""The copies of a job that fit a GPU, those worthwhile, and the largest batch on each slice."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, isfinite, log

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import Gpu, MigProfile
from advisor.hardware.mig import profiles_named
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
from advisor.prediction.other_batch import FARTHEST, at_batch
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Instance, Mig, Mps, Naive, PartitionSharing, Serial, Sharing
from advisor.sharing.groups import restricted
from advisor.workload.job import MAX_JOBS, Job
from advisor.workload.profile import Profile, batch_name
from advisor.workload.reading import DAY_S

PAYS = 0.02
"""Share by which more copies must raise the throughput: twice what two runs of the same jobs with
fresh processes differ by (the noise floor of the scoreboard is 0.3 to 0.9 %)."""

PATIENCE = 2
"""If neither one more copy nor this many more are worthwhile, the search ends."""

# How many limits are tried for more copies than one GPU's plan searches all for.
_CLOSE = 3


@dataclass(frozen=True, slots=True)
class CopiesRow:
    """The performance of a number of copies under the way to share that gives most throughput.

    Attributes:
        throughput: Work done per time, that of one copy alone being 1.
        gain: Share by which the throughput exceeds that of one copy less; None for one copy.
    """

    copies: int
    prediction: MixPrediction
    throughput: float
    gain: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """The performance of copies of a job on one GPU.

    Attributes:
        rows: For 1, 2, ... copies: until no more fit, until no more are worthwhile, or up to
            `MAX_JOBS`.
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
        return self.rows[self.pay - 1]


@dataclass(frozen=True, slots=True)
class CopiesTable:
    """Predicts 1, 2, ... copies of `job` on `gpu`, each number under its best way to share."""

    job: Job
    gpu: Gpu
    predictor: Predicts
    conditions: Conditions = UNCONDITIONAL
    level: Level = "p50"

    def copies(self, most: Callable[[Sequence[CopiesRow]], int], pay: "RowsThatPay") -> Copies:
        """Return rows of 1, 2, ... copies up to `most` of the rows before, as far as they fit.

        `pay` chooses the number of copies that is worthwhile.

        Raises:
            NothingFits: Not even one copy fits.
        """
        refuse_confined(self.conditions)
        first = self._best(1, None)
        if isinstance(first, str):
            raise NothingFits(f"{self.job.name} on {self.gpu.key}: {first}. Use a smaller batch.")
        rows = [CopiesRow(1, first, throughput(first, self.level), None)]
        fit, limited_by = self._most()
        while (copies := len(rows) + 1) <= min(fit, most(rows), MAX_JOBS):
            mix = self._best(copies, rows[-1].prediction.sharing)
            if isinstance(mix, str):  # memory is not all that a rule looks at
                fit, limited_by = len(rows), mix
                break
            work = throughput(mix, self.level)
            rows.append(CopiesRow(copies, mix, work, work / rows[-1].throughput - 1))
        return Copies(
            gpu=self.gpu, job=self.job, rows=tuple(rows), fit=fit, limited_by=limited_by,
            pay=pay(rows), mps_clients=mps_clients(self.gpu, self.conditions.cuda),
        )  # fmt: skip

    def _most(self) -> tuple[int, str]:
        """The most copies that fit, and why no more do."""
        why = self._problem(MAX_JOBS)
        if why is None:  # extrapolate the memory of the most copies that are predicted
            mix = self.predictor.predict([self.job.profile] * MAX_JOBS, Naive())
            each_mib = mix.jobs[0].memory_interval_mib.p95
            room_mib = mix.memory_capacity_mib * (1 - self.conditions.memory_margin)
            fits = max(MAX_JOBS, int(room_mib // each_mib))
            return fits, (
                f"does not fit: {fits + 1} take up to {(fits + 1) * each_mib:,.0f} MiB of "
                f"{room_mib:,.0f} MiB"
            )
        fits = 1 + bisect_left(range(2, MAX_JOBS), True, key=lambda n: self._problem(n) is not None)
        return fits, self._problem(fits + 1) or why

    def _best(self, copies: int, fewer: Sharing | None) -> MixPrediction | str:
        """Prediction under the way to share with most throughput; else why none is allowed.

        `fewer` is the best way of one copy less: more than `EXACT_JOBS` have limits close to its.
        """
        ways: list[PartitionSharing] = [Serial()]
        if copies > 1:
            limits = equal_vectors(copies)
            if copies > EXACT_JOBS and fewer is not None and fewer.limits:
                limits.sort(key=lambda each: abs(log(each.limits[0] / fewer.limits[0])))
                limits = limits[:_CLOSE]
            ways = [Naive(), Mps(), *limits]
        answers = [self._predicted(copies, sharing) for sharing in ways]
        mixes = [each for each in answers if isinstance(each, MixPrediction)]
        problems = [each for each in answers if isinstance(each, str)]
        return max(mixes, key=lambda mix: throughput(mix, self.level)) if mixes else problems[0]

    def _problem(self, copies: int) -> str | None:
        """Why `copies` copies cannot run at once, limits aside; None where they can."""
        naive, mps = (self._predicted(copies, sharing) for sharing in (Naive(), Mps()))
        return naive if isinstance(naive, str) and isinstance(mps, str) else None

    def _predicted(self, copies: int, sharing: PartitionSharing) -> MixPrediction | str:
        jobs = [self.job] * copies
        if problem := broken_rule(jobs, sharing, self.gpu, self.conditions):
            return problem
        mix = self.predictor.predict([each.profile for each in jobs], sharing)
        return memory_problem(mix, self.gpu, self.conditions.memory_margin) or mix


RowsThatPay = Callable[[Sequence[CopiesRow]], int]
"""Chooses the number of copies that is worthwhile by the rows of 1, 2, ... copies."""


def copies_that_pay(table: CopiesTable) -> Copies:
    """Count the copies that fit at once, and those worthwhile; errors as of `CopiesTable.copies`.

    Fewest copies are worthwhile of which neither one more nor `PATIENCE` more do more work.
    """

    def pay(rows: Sequence[CopiesRow]) -> int:
        copies = 1
        while copies < len(rows) and (
            max(row.throughput for row in rows[copies : copies + PATIENCE])
            > (1 + PAYS) * rows[copies - 1].throughput
        ):
            copies += 1
        return copies

    return table.copies(lambda rows: pay(rows) + PATIENCE, pay)


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
        copies: The performance of 1, 2, ... trials at once.
        at_once: Fewest processes within `PAYS` of the most trials an hour; for a search of known
            length, of its soonest end.
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
        """Return the seconds that one of the trials of `row` trains for."""
        return row.prediction.jobs[0].paced_s.scaled(self.steps)

    def per_hour(self, row: CopiesRow) -> Interval:
        """Return the number of trials that start and end in an hour, run as in `row`."""
        return _rate(3600 * row.copies, self.trial_s(row).later(self.start_s))

    def trained_per_hour(self, row: CopiesRow) -> Interval:
        """Return the trials an hour of processes that are started already."""
        return _rate(3600 * row.copies, self.trial_s(row))


def trials_that_pay(
    table: CopiesTable, steps: float | None = None, count: int | None = None, start_s: float = 0.0
) -> Trials:
    """Choose the fewest trials at once that end within `PAYS` of the most trials an hour.

    `steps` are those of a trial, else of the job; `count` is the number of trials, None: unknown. A
    process takes `start_s` to start; 0: it goes on with the next trial.

    Raises:
        InvalidInput: The length of a trial is not known, or a number is impossible.
        NothingFits: Not even one trial fits.
    """
    steps = table.job.work_steps if steps is None else steps
    if steps is None:
        raise InvalidInput(
            f"the length of a trial of {table.job.name} is not known, because its profile has no "
            f"number of examples. Pass --steps."
        )
    if not (isfinite(steps) and steps >= 1):
        raise InvalidInput(f"a trial has at least 1 training step, got {steps:g}")
    if not 0 <= start_s <= DAY_S:
        raise InvalidInput(f"a process starts in 0 s to a day, got {start_s:g} s")
    if count is not None and (not 1 <= count <= MAX_TRIALS or count % 1):
        raise InvalidInput(f"a search has 1 to {MAX_TRIALS:,} trials, got {count}")

    def seconds(rows: Sequence[CopiesRow], start_s: float) -> list[float]:
        """Seconds of the GPU for each trial, of as many at once as in each row."""
        trial_s = [row.prediction.jobs[0].paced_s.at(table.level) * steps for row in rows]
        return [(start_s + each_s) / at for at, each_s in enumerate(trial_s, start=1)]

    def pay(rows: Sequence[CopiesRow]) -> int:
        return _fewest(seconds(rows, start_s))

    def most(rows: Sequence[CopiesRow]) -> int:
        """The most trials at once that could do more an hour by sparing starts alone."""
        least_s = start_s / MAX_JOBS + seconds(rows, 0.0)[-1]
        if least_s * (1 + PAYS / 2) < min(seconds(rows, start_s)):
            return MAX_JOBS
        return pay(rows) + max(PATIENCE, pay(rows) // 2)

    copies = table.copies(most, pay)
    if count is None:
        return Trials(copies=copies, steps=steps, start_s=start_s, at_once=copies.pay, study=None)
    walls_s = [
        _wall_s(row, table, steps, count).later(start_s * ceil(count / row.copies))
        for row in copies.rows[:count]
    ]
    at_once = _fewest([each.at(table.level) for each in walls_s])
    study = Study(
        trials=count, rounds=ceil(count / at_once), wall_s=walls_s[at_once - 1],
        one_by_one_s=walls_s[0],
    )  # fmt: skip
    return Trials(copies=copies, steps=steps, start_s=start_s, at_once=at_once, study=study)


def _fewest(times_s: Sequence[float]) -> int:
    """The fewest at once whose time is within `PAYS` of the shortest; `times_s` are of 1, 2, ..."""
    return 1 + next(at for at, each in enumerate(times_s) if each <= (1 + PAYS) * min(times_s))


def _rate(work: float, takes_s: Interval) -> Interval:
    return Interval(*(work / each for each in (takes_s.p95, takes_s.p50, takes_s.p05)))


def _wall_s(row: CopiesRow, table: CopiesTable, steps: float, count: int) -> Interval:
    """Seconds of training: full rounds of `row.copies` trials, then the trials that are left.

    In the last round the limits stay as the processes started with them.
    """
    rounds, left = divmod(count, row.copies)
    full = row.prediction.jobs[0].paced_s.scaled(steps * rounds)
    if left == 0:
        return full
    sharing = restricted(row.prediction.sharing, range(left))
    mix = table.predictor.predict([table.job.profile] * left, sharing)
    rest = mix.jobs[0].paced_s.scaled(steps)
    return Interval(full.p05 + rest.p05, full.p50 + rest.p50, full.p95 + rest.p95)


WHOLE = "whole"
"""Instead of a MIG profile: the GPU with MIG off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBatch:
    """The largest batch on one kind of slice: a MIG profile, or `WHOLE`.

    Attributes:
        largest: The largest batch size that fits even at the upper end of its memory; None where
            not even the smallest one does.
        open_ended: Whether a larger batch size, beyond what can be estimated, may fit.
    """

    name: str
    instances: int
    capacity_mib: float
    largest: int | None
    open_ended: bool
    memory_mib: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesForJob:
    """The largest batch of one job on each kind of slice, the smallest slice first.

    Attributes:
        job: The workload's name without a batch size.
        measured: Batch sizes at which the job was measured, increasing.
        confirmed_on_hardware: Whether all of it is confirmed by real runs of this kind.
    """

    gpu: Gpu
    job: str
    measured: tuple[int, ...]
    slices: tuple[SliceBatch, ...]
    confirmed_on_hardware: bool
    standing: Standing = field(default_factory=Standing)


def slices_for_job(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts, on: Sequence[str] = ()
) -> SlicesForJob:
    """Return the largest batch of one workload on slices of `gpu`.

    `profiles` are those of its measured batch sizes. `on` are names of MIG profiles, or `WHOLE`;
    none: all of the GPU's, and the whole GPU.

    Raises:
        InvalidInput: The profiles differ in more than their batch size.
        NothingFits: The GPU has no MIG, and a slice of it is asked about.
    """
    measured = tuple(sorted(each.workload.batch for each in profiles))
    kinds: list[MigProfile | None] = [None] if not on or WHOLE in on else []  # the whole GPU
    names = [name for name in on if name != WHOLE]
    if names or not on:
        kinds = [*mig_kinds(gpu, names), *kinds]
    slices = tuple(_on_slice(profiles, measured, gpu, predictor, kind) for kind in kinds)
    name = batch_name(profiles[0].name)
    return SlicesForJob(
        gpu=gpu, job=name.work if name else profiles[0].name, measured=measured, slices=slices,
        confirmed_on_hardware=not any(each.is_estimate for each in profiles)
        and all(each.name == WHOLE and each.largest in (*measured, None) for each in slices),
    )  # fmt: skip


def mig_kinds(gpu: Gpu, names: Sequence[str] = ()) -> list[MigProfile]:
    """Return the MIG profiles called `names`, or all, smallest memory first.

    Instances with media engines are equal to those without for a training job.
    """
    names = names or [each.name for each in gpu.mig if "+" not in each.name]
    named = profiles_named(gpu, names) if names else ()
    return sorted(named, key=lambda each: (each.memory_mib, each.compute_slices))


def _on_slice(
    profiles: Sequence[Profile], measured: Sequence[int], gpu: Gpu, predictor: Predicts,
    kind: MigProfile | None,
) -> SliceBatch:  # fmt: skip
    sharing = Serial() if kind is None else Mig((Instance(kind.name),))

    def mix(batch: int) -> MixPrediction:
        return predictor.predict([at_batch(tuple(profiles), batch)], sharing)

    def holds(batch: int) -> bool:
        """Check that a batch fits at the upper end of its memory, without giving up a cache."""
        alone = mix(batch)
        within = alone.jobs[0].memory_interval_mib.p95 <= alone.memory_capacity_mib
        return within and memory_problem(alone, gpu) is None

    largest: int | None = measured[0]
    open_ended = True
    if len(measured) < 2:
        if memory_problem(mix(measured[0]), gpu):
            largest, open_ended = None, False
    elif not holds(fits := ceil(measured[0] / FARTHEST)):
        largest, open_ended = None, False
    elif holds(breaks := int(measured[-1] * FARTHEST)):
        largest = breaks
    else:
        more = bisect_left(range(fits + 1, breaks), True, key=lambda batch: not holds(batch))
        largest, open_ended = fits + more, False
    return SliceBatch(
        name=WHOLE if kind is None else kind.name,
        instances=1 if kind is None else kind.max_instances,
        capacity_mib=mix(measured[0]).memory_capacity_mib, largest=largest, open_ended=open_ended,
        memory_mib=None if largest is None else mix(largest).jobs[0].memory_interval_mib,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SliceSpeed:
    """Speed of one job on one kind of instance, with the rest of the GPU idle.

    Attributes:
        where: The MIG profile's name, or `WHOLE`.
        compute_share: Share of the GPU's compute slices, 0..1.
        speed: Speed over the median speed on the whole GPU; None: the job does not fit.
    """

    job: str
    where: str
    compute_share: float
    speed: Interval | None


def slice_speeds(
    profiles: Sequence[Profile], gpu: Gpu, predictor: Predicts
) -> tuple[SliceSpeed, ...]:
    """Compute the speed of each profile on each kind of instance, smallest first, and on the GPU.

    Raises:
        NothingFits: The GPU has no MIG, or a job is too big for it.
    """
    if not gpu.mig:
        raise NothingFits(f"{gpu.key} has no MIG: its jobs share by time slices or MPS.")
    most, speeds = max(each.compute_slices for each in gpu.mig), []
    for profile in profiles:
        whole = predictor.predict([profile], Serial())
        if memory_problem(whole, gpu):
            raise NothingFits(f"{profile.name} does not fit on {gpu.key}, not even alone.")
        full_s = whole.jobs[0].step_s
        for kind in mig_kinds(gpu):
            part = predictor.predict([profile], Mig((Instance(kind.name),)))
            fits = memory_problem(part, gpu) is None
            speed = _rate(full_s.p50, part.jobs[0].step_s) if fits else None
            speeds.append(SliceSpeed(profile.name, kind.name, kind.compute_slices / most, speed))
        speeds.append(SliceSpeed(profile.name, WHOLE, 1.0, _rate(full_s.p50, full_s)))
    return tuple(speeds)
