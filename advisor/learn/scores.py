"""Compares real runs with their predictions, and sums up the errors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Annotated, get_args

import numpy as np

from advisor.documents import As, Mark, in_document
from advisor.errors import InvalidInput, UnknownName, counted
from advisor.files.reading import read_bytes
from advisor.files.records import parse_record
from advisor.files.units import DAY_S, LEAST_STEP_S, check_number
from advisor.plan.objectives import weighed
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval
from advisor.prediction.shared_loader import of_one_loader
from advisor.sharing import Arrangement, Mode, Mps, Serial, parse_sharing
from advisor.sharing.groups import without_phases
from advisor.workload.profile import Profile
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class JobComparison:
    """One tenant of a run.

    Attributes:
        alone_s: Its solo step, from its profile.
        baselines_s: Its step by other rules, by their names; None if a rule is not defined.
        memory_mib: Predicted device memory of the process; None if not predicted.
    """

    job: str
    family: str
    alone_s: float
    measured_s: float
    predicted_s: Interval
    baselines_s: Annotated[Mapping[str, float | None], Mark.LEFT_OUT] = field(default_factory=dict)
    memory_mib: float | None = None

    @property
    @in_document
    def error(self) -> float:
        """Predicted over measured step, minus 1."""
        return self.predicted_s.p50 / self.measured_s - 1

    @property
    @in_document
    def inside(self) -> bool:
        """True if the measured step lies in the predicted interval."""
        return self.predicted_s.contains(self.measured_s)


@dataclass(frozen=True, slots=True)
class RunComparison:
    """All tenants of one run, in its order."""

    run: Annotated[Run, As("id")]
    jobs: tuple[JobComparison, ...]

    @property
    @in_document
    def sharing(self) -> str:
        return "serial" if len(self.jobs) == 1 else self.run.sharing

    @property
    @in_document
    def measured_memory_mib(self) -> tuple[float | None, ...]:
        """Device memory of each process; None: not measured."""
        memories = (tenant.memory for tenant in self.run.tenants)
        return tuple(None if memory is None else memory.device_mib for memory in memories)

    @property
    @in_document
    def measured_speedup(self) -> float:
        """Sum over jobs of solo step over measured step."""
        return sum(job.alone_s / job.measured_s for job in self.jobs)

    @property
    @in_document
    def predicted_speedup(self) -> float:
        """Sum over jobs of solo step over predicted step."""
        return sum(job.alone_s / job.predicted_s.p50 for job in self.jobs)


def sharing_of(run: Run) -> Arrangement:
    """Return how the tenants of `run` shared; a tenant alone on the GPU without MPS is serial.

    Raises:
        InvalidInput: They ran in phases, which are several runs.
    """
    sharing = without_phases(parse_sharing(run.sharing))
    if sharing is None:
        raise InvalidInput(f"{run.id}: {run.sharing} is several runs. Record each group as a run.")
    return Serial() if len(run.tenants) == 1 and sharing.mode == "naive" else sharing


def profiles_of(run: Run, profiles: Mapping[str, Profile]) -> tuple[Profile, ...]:
    """Return the solo profile of each tenant of `run` in its order.

    Raises:
        UnknownName: A tenant has none.
    """
    for name in run.names:
        if name not in profiles:
            remedy = f"Run {run.id} needs it for a comparison. Measure it: `advisor profile {name}`"
            raise UnknownName("profile", name, profiles, remedy)
    return tuple(
        of_one_loader(profiles[each.name]) if each.shared_loader else profiles[each.name]
        for each in (tenant.workload for tenant in run.tenants)
    )


def compare(run: Run, alone: Sequence[Profile], predictor: Predicts) -> RunComparison:
    """Predict `run` from its tenants' profiles alone and compare it with the measurement."""
    jobs = predictor.predict(alone, sharing_of(run)).jobs
    compared = compared_run(run, alone, [job.step_s for job in jobs])
    pairs = zip(compared.jobs, jobs, strict=True)
    return replace(compared, jobs=tuple(replace(c, memory_mib=p.memory_mib) for c, p in pairs))


def compared_run(run: Run, alone: Sequence[Profile], steps_s: Sequence[Interval]) -> RunComparison:
    """Compare `run` with the predicted step of each tenant."""
    return RunComparison(
        run,
        tuple(
            JobComparison(
                job=tenant.workload.name,
                family=tenant.workload.family,
                alone_s=profile.step_s,
                measured_s=tenant.step_s,
                predicted_s=step_s,
            )
            for tenant, profile, step_s in zip(run.tenants, alone, steps_s, strict=True)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeScores:
    """Errors of the steps of all jobs that shared in one way, as shares of the measured steps.

    Attributes:
        n: Number of jobs.
        mape, median, p90: Mean, median and 90 % quantile of the absolute errors.
        coverage90: Share of measured steps in their 90 % intervals; None without intervals.
    """

    mode: Mode
    runs: int
    n: int
    mape: float
    median: float
    p90: float
    coverage90: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceScores:
    """Share of the best measured throughput that choices gave away, over some job sets.

    Attributes:
        sets: Number of job sets that ran together in several ways, which are the choices.
        mean, worst: Mean and worst share for the choice of `recommend`.
        always_mps: Mean share for the choice of MPS; None if a set did not run under MPS.
    """

    sets: int
    mean: float
    worst: float
    always_mps: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores of the predictions of runs on one GPU.

    Attributes:
        runs: Number of runs that are scored.
        left_out: Runs in which a tenant ended early or has no profile.
        modes: Modes in which something ran, jobs alone first.
        choices: None if no job set ran in several ways.
    """

    gpu: str
    runs: int
    left_out: int
    modes: tuple[ModeScores, ...]
    choices: ChoiceScores | None


def scores_of(comparisons: Sequence[RunComparison], gpu: str, left_out: int = 0) -> Scores:
    """Sum up `comparisons` of runs on `gpu`."""
    by_mode: dict[Mode, list[RunComparison]] = {}
    for compared in comparisons:
        by_mode.setdefault(sharing_of(compared.run).mode, []).append(compared)
    return Scores(
        gpu=gpu,
        runs=len(comparisons),
        left_out=left_out,
        modes=tuple(_of_mode(mode, by_mode[mode]) for mode in get_args(Mode) if mode in by_mode),
        choices=_choices(comparisons),
    )


def _of_mode(mode: Mode, comparisons: Sequence[RunComparison]) -> ModeScores:
    jobs = [job for compared in comparisons for job in compared.jobs]
    errors = np.abs([job.error for job in jobs])
    bounded = any(job.predicted_s.p05 < job.predicted_s.p95 for job in jobs)
    return ModeScores(
        mode=mode,
        runs=len(comparisons),
        n=len(jobs),
        mape=float(errors.mean()),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        coverage90=sum(job.inside for job in jobs) / len(jobs) if bounded else None,
    )


def _choices(comparisons: Iterable[RunComparison]) -> ChoiceScores | None:
    """Regret of choosing a way to share for each job set that ran together in several ways."""
    shared = [each for each in comparisons if len(each.jobs) > 1]
    shared.sort(key=lambda each: each.run.names)
    lost, lost_by_mps = [], []
    for _, runs in groupby(shared, key=lambda each: each.run.names):
        ways: dict[Arrangement, list[RunComparison]] = {}
        for run in runs:
            ways.setdefault(sharing_of(run.run), []).append(run)
        if len(ways) > 1:
            measured = {way: mean(r.measured_speedup for r in same) for way, same in ways.items()}
            costs = {way: weighed(1 / same[0].predicted_speedup, way) for way, same in ways.items()}
            best = max(measured.values())
            lost.append(1 - measured[min(costs, key=costs.__getitem__)] / best)
            lost_by_mps += [1 - measured[Mps()] / best] if Mps() in measured else []
    if not lost:
        return None
    always = mean(lost_by_mps) if len(lost_by_mps) == len(lost) else None
    return ChoiceScores(sets=len(lost), mean=mean(lost), worst=max(lost), always_mps=always)


_REMEDY = "Correct the file; docs/accuracy.md shows a line."


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The predicted step of one tenant, in seconds; both bounds or neither."""

    p50: float
    p05: float | None = None
    p95: float | None = None

    def __post_init__(self) -> None:
        if (self.p05 is None) != (self.p95 is None):
            raise InvalidInput("an interval has both bounds, p05 and p95, or is left out")
        if not self.interval.p05 > 0:
            raise InvalidInput(f"a step takes more than 0 s, got {self}")
        check_number("a predicted step in seconds", self.interval.p95, DAY_S, LEAST_STEP_S)

    @property
    def interval(self) -> Interval:
        """The range from p05 to p95; only p50 without bounds."""
        if self.p05 is None or self.p95 is None:
            return Interval(self.p50, self.p50, self.p50)
        return Interval(self.p05, self.p50, self.p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedRun:
    """One line of a file of predictions: a run's id, and the steps of its tenants in order."""

    run: str
    step_s: tuple[PredictedStep, ...]


def read_predictions(path: Path) -> dict[str, PredictedRun]:
    """Return the lines of a file of predictions by the run's id, one JSON object a line.

    Raises:
        InvalidInput: A line is malformed, a run occurs twice, or some tenants have an interval and
            others none.
    """
    entries: dict[str, PredictedRun] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if line.strip():
            entry = parse_record(PredictedRun, line, f"{path}:{number}", _REMEDY)
            if entry.run in entries:
                raise InvalidInput(f"{path}:{number}: run {entry.run} occurs twice. {_REMEDY}")
            entries[entry.run] = entry
    if len({step.p05 is None for entry in entries.values() for step in entry.step_s}) > 1:
        raise InvalidInput(
            f"{path}: some tenants have an interval, others none. Give all of them one, or none."
        )
    return entries


def compare_predictions(
    path: Path, profiles: Mapping[str, Profile], runs: Iterable[Run]
) -> tuple[RunComparison, ...]:
    """Compare each line of the file of predictions `path` with the run of `runs` that it names.

    Raises:
        InvalidInput: See `read_predictions`; or a run is not among `runs`, a tenant of it ended
            early, or the line has not a step for each of its tenants.
        UnknownName: A tenant has no profile.
    """
    by_id = {run.id: run for run in runs if run.shows_pace}
    comparisons = []
    for entry in read_predictions(path).values():
        if entry.run not in by_id:
            raise InvalidInput(
                f"{path}: run {entry.run} not found among the runs whose tenants all ran to the "
                "end. Correct its id."
            )
        comparisons.append(compare_entry(path, entry, by_id[entry.run], profiles))
    return tuple(comparisons)


def compare_entry(
    path: Path, entry: PredictedRun, run: Run, profiles: Mapping[str, Profile]
) -> RunComparison:
    """Compare one line of the file of predictions `path` with its run.

    Raises:
        InvalidInput: It has not a step for each tenant.
    """
    if len(entry.step_s) != len(run.tenants):
        raise InvalidInput(
            f"{path}: run {run.id} has {counted(len(run.tenants), 'tenant')}, but "
            f"{counted(len(entry.step_s), 'step')}. {_REMEDY}"
        )
    return compared_run(run, profiles_of(run, profiles), [step.interval for step in entry.step_s])
