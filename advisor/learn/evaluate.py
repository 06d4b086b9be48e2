"""Scores predictions for model families that the model was not fitted to, ours or those of a file.

For each family F the model is fitted, tuned and calibrated on the runs without any tenant of F;
then F's jobs are scored, once in every scored run that contains F. The panels of plans are
predicted in the same way, so a choice from them is one by models that saw no run of those jobs.

A file of predictions has one JSON object a line: the id of a run, and the predicted step of each
tenant in the run's order, in seconds. A 90 % interval is optional; if one tenant has it, every
tenant has.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from math import inf
from pathlib import Path
from statistics import median

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.learn.scores import (
    UNFITTED,
    Baseline,
    JobComparison,
    RunComparison,
    View,
    baseline_steps,
    baselines,
    compare,
    compared_job,
    profiles_of,
    sharing_of,
)
from advisor.learn.surrogate_fit import with_surrogate_without
from advisor.prediction.cache import fitting_in_one_thread, in_processes
from advisor.prediction.model import Model
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import Predictor
from advisor.sharing import parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.reading import DAY_S, LEAST_STEP_S, check_number, read_bytes
from advisor.workload.records import parse_record
from advisor.workload.run import Run

SPLIT = "leave-one-family-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The runs of one GPU, by their use in evaluation.

    Attributes:
        scored: Runs drawn by a seed, whose tenants all ran to the end and have profiles.
        unusable: Ids of drawn runs that cannot be scored.
        advice: Shared runs of advice and their repeats: the panels from which plans are chosen.
        alone: Runs of one tenant.
        repeats: Pairs of a scored run and its repeat with fresh workers.
    """

    scored: tuple[Run, ...]
    unusable: tuple[str, ...]
    advice: tuple[Run, ...]
    alone: tuple[Run, ...]
    repeats: tuple[tuple[Run, Run], ...]


def select(profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu) -> Selection:
    """Sort `runs` of `gpu`.

    Raises:
        InvalidInput: No run can be scored.
    """
    ordinary = of_pace(runs)
    shared = [run for run in ordinary if len(run.tenants) > 1]
    drawn = [run for run in shared if run.purpose == "drawn"]
    scored = tuple(run for run in drawn if _usable(run, profiles))
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Expected drawn runs whose tenants all "
            f"ran to the end and have profiles; read: {counted(len(runs), 'run')}."
        )
    by_id = {run.id: run for run in scored}
    advised = {run.id for run in shared if run.purpose == "validation"}
    return Selection(
        scored=scored,
        unusable=tuple(run.id for run in drawn if run.id not in by_id),
        advice=tuple(
            run for run in shared
            if (run.id in advised or run.repeats in advised) and _usable(run, profiles)
        ),
        alone=tuple(
            run for run in ordinary if len(run.tenants) == 1 and _usable(run, profiles)
        ),
        repeats=tuple((by_id[run.repeats], run) for run in shared
                      if run.ok and run.repeats in by_id),
    )  # fmt: skip


def of_pace(runs: Iterable[Run]) -> list[Run]:
    """Return `runs` whose tenants all ran all the time, without experiments on memory or host."""
    return [run for run in runs if run.purpose not in ("memory", "control", "completion")]


def families_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the families of the tenants of `runs`, in alphabetical order."""
    return tuple(sorted({tenant.workload.family for run in runs for tenant in run.tenants}))


def cores_known(run: Run) -> bool:
    """Return whether `run` recorded the speed of each tenant's core; the first campaigns did not.

    Their speed varies by 40 % on virtual machines, and a user who predicts does not know it.
    """
    return all(tenant.host_check_s is not None for tenant in run.tenants)


# Campaigns whose ids begin otherwise than with their names.
_CAMPAIGNS = {"drawn": "first", "cross": "control"}


def hosts_of(runs: Iterable[Run]) -> dict[str, str]:
    """Return the host of each of `runs`, by id, the first first: the name of its campaign.

    If a campaign ran on several processors, or on several days, these follow the name.
    """
    places = {}
    for run in sorted(runs, key=lambda run: run.provenance.date):
        begin, _, _ = run.id.partition("-")
        processor = re.sub(r"\(\w+\)| Processor$", "", run.provenance.host_cpu)
        campaign = _CAMPAIGNS.get(begin, begin)
        places[run.id] = campaign, (processor, run.provenance.date[:10])
    of_campaign: dict[str, list[tuple[str, str]]] = {}
    for campaign, where in places.values():
        of_campaign.setdefault(campaign, []).append(where)
    several = {
        campaign: [len(set(column)) > 1 for column in zip(*wheres, strict=True)]
        for campaign, wheres in of_campaign.items()
    }
    return {
        name: ", ".join((campaign, *compress(where, several[campaign])))
        for name, (campaign, where) in places.items()
    }


def _usable(run: Run, profiles: Mapping[str, Profile]) -> bool:
    profiled = all(tenant.workload.name in profiles for tenant in run.tenants)
    return run.ok and profiled and together(parse_sharing(run.sharing)) is not None


# With fewer runs than this, processes take longer to start than they save.
_WORTH_SPREADING = 100

# By run and place in it: a job predicted without its family.
Held = dict[tuple[str, int], JobComparison]


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Jobs predicted without their families, and the models that did.

    Attributes:
        raw: Predictions from profiles as measured.
        adjusted: Predictions from profiles converted to the cores that the jobs had.
        models: By family: the model that saw none of its runs.
    """

    raw: Held = field(default_factory=dict)
    adjusted: Held = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)

    def __or__(self, other: "HeldOut") -> "HeldOut":
        return HeldOut(
            self.raw | other.raw, self.adjusted | other.adjusted, self.models | other.models
        )


Tell = Callable[[int, int], None]
"""Called with the number of parts done and the number of all parts."""


@dataclass(frozen=True, slots=True)
class Folds:
    """The data of an evaluation, in which one family is left out at a time.

    Attributes:
        profiles: Solo profiles by name.
        runs: All runs that models may be fitted to.
        wanted: Runs whose jobs are predicted, from profiles as measured.
        on_cores: Runs that are predicted again, from profiles converted to their cores.
        playback: Cached replays, which are the same in each fold.
    """

    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    wanted: Sequence[Run]
    on_cores: Sequence[Run]
    gpu: Gpu
    playback: ReplayCache

    def without(self, family: str) -> HeldOut:
        """Predict the jobs of `family` by a model that saw none of its runs; also the model."""
        return self.predicted_by(self.model_without(family), family)

    def predicted_by(self, model: Model, family: str) -> HeldOut:
        """Predict the jobs of `family` by `model`, which may be of runs on another GPU."""
        predictor = Predictor(self.gpu, model, play=self.playback.play)
        on_cores = predictor.on_known_cores()
        rivals = baselines(model.of(self.gpu).physics, self.playback.play)
        return HeldOut(
            self._jobs_of(family, self.wanted, "raw", predictor, rivals),
            self._jobs_of(family, self.on_cores, "core-adjusted", on_cores, {}),
            {family: model},
        )

    def _jobs_of(
        self,
        family: str,
        runs: Sequence[Run],
        view: View,
        predictor: Predictor,
        rivals: Mapping[str, Baseline],
    ) -> Held:
        of_it = [run for run in runs if family in families_of([run])]
        alone = [profiles_of(run, self.profiles, view) for run in of_it]
        return {
            (run.id, place): job
            for run, mix in zip(of_it, alone, strict=True)
            for place, job in enumerate(compare(run, mix, predictor, self.gpu, rivals).jobs)
            if job.family == family
        }

    def model_without(self, family: str) -> Model:
        """Fit the model to the runs without any job of `family`."""
        seen = {name: p for name, p in self.profiles.items() if p.workload.family != family}
        runs = [run for run in self.runs if family not in families_of([run])]
        model = fit([MeasuredGpu(self.gpu, seen, runs)], self.playback)
        every = list(self.profiles.values())
        return with_surrogate_without(family, model, every, self.gpu, self.playback.play)


def held_out(folds: Folds, processes: int = 1, tell: Tell | None = None) -> HeldOut:
    """Predict every job of the wanted runs without its family."""
    families = families_of(folds.wanted)

    def merged(parts: Iterable[HeldOut]) -> HeldOut:
        held = HeldOut()
        if tell is not None:
            tell(0, len(families))
        for done, part in enumerate(parts, start=1):
            if tell is not None:
                tell(done, len(families))
            held |= part
        return held

    if processes == 1 or len(folds.wanted) < _WORTH_SPREADING:
        return merged(map(folds.without, families))
    with in_processes(_without, families, min(processes, len(families)), _begin, (folds,)) as parts:
        return merged(parts)


def compared_by(held: Held, runs: Sequence[Run]) -> tuple[RunComparison, ...]:
    """Return `runs` with the predictions of `held` for each job."""
    return tuple(
        RunComparison(run, tuple(held[run.id, place] for place in range(len(run.tenants))))
        for run in runs
    )


_here: list[Folds] = []  # of a worker process: the data, sent once and not with each family


def _begin(folds: Folds) -> None:
    fitting_in_one_thread()  # one process a core; threads of its own would wait for each other
    _here.append(folds)


def _without(family: str) -> HeldOut:
    return _here[0].without(family)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Differences between profiles and the solo runs among shared ones, as shares.

    Attributes:
        n: Solo runs.
        median: Median absolute difference.
        worst: Largest absolute difference.
        worst_job: Job with the largest difference.
    """

    n: int
    median: float
    worst: float
    worst_job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every scored run, each of its jobs predicted without that job's family.

    Attributes:
        gpu: Catalogue key.
        families: Of the scored jobs; left out one after another.
        runs: Scored runs in the order of the files, predicted from profiles as measured, which is
            what users have.
        repeats: Pairs of a scored run and its repeat with fresh workers.
        unusable: Ids of drawn runs that could not be scored; see `Selection`.
        drift: None if no solo run lies between the shared ones.
        advice: Runs of advice, predicted in the same way: never scored, but plans are chosen from
            them.
        adjusted: Those of `runs` that recorded the speed of each tenant's core, predicted again
            from profiles converted to these cores; empty for predictions from a file.
        alone: Runs of one tenant.
        profiles: Profiles of all tenants, by name.
        intervals: Whether the predictions have intervals.
        models: By family: the model fitted without it; empty for predictions from a file.
    """

    gpu: str
    families: tuple[str, ...]
    runs: tuple[RunComparison, ...]
    repeats: tuple[tuple[Run, Run], ...]
    unusable: tuple[str, ...]
    drift: Drift | None
    advice: tuple[RunComparison, ...] = ()
    adjusted: tuple[RunComparison, ...] = ()
    alone: tuple[Run, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    intervals: bool = True
    models: Mapping[str, Model] = field(default_factory=dict)


def evaluate(
    profiles: Mapping[str, Profile],
    runs: Sequence[Run],
    gpu: Gpu,
    processes: int = 1,
    playback: ReplayCache | None = None,
    tell: Tell | None = None,
) -> Evaluation:
    """Score each family's jobs with a model that was fitted without that family.

    `playback` are cached replays; `tell` is called with the number of families done and of all.

    Raises:
        InvalidInput: No run can be scored.
    """
    chosen = select(profiles, runs, gpu)
    wanted = (*chosen.scored, *chosen.advice)
    on_cores = tuple(filter(cores_known, chosen.scored))
    folds = Folds(profiles, runs, wanted, on_cores, gpu, playback or ReplayCache())
    held = held_out(folds, processes, tell)
    scored, advice = (compared_by(held.raw, part) for part in (chosen.scored, chosen.advice))
    return replace(
        evaluation_of(chosen, profiles, scored, advice),
        adjusted=compared_by(held.adjusted, on_cores), models=held.models,
    )  # fmt: skip


def evaluation_of(
    chosen: Selection,
    profiles: Mapping[str, Profile],
    scored: tuple[RunComparison, ...],
    advice: tuple[RunComparison, ...],
    intervals: bool = True,
) -> Evaluation:
    """Return the evaluation of the predictions in `scored` and `advice`."""
    drift, solo = None, [run for run in chosen.alone if run.purpose == "solo"]
    differences = [
        (abs(tenant.step_s / profiles[tenant.workload.name].step_s - 1), tenant.workload.name)
        for run in solo
        for tenant in run.tenants
    ]
    if differences:
        worst, worst_job = max(differences)
        middle = median(difference for difference, _ in differences)
        drift = Drift(n=len(differences), median=middle, worst=worst, worst_job=worst_job)
    return Evaluation(
        gpu=chosen.scored[0].gpu,
        families=families_of(chosen.scored),
        runs=scored,
        repeats=chosen.repeats,
        unusable=chosen.unusable,
        drift=drift,
        advice=advice,
        alone=chosen.alone,
        profiles=profiles,
        intervals=intervals,
    )


_REMEDY = "Correct the file; profiles/DATA_CARD.md shows a line."


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The predicted step of one tenant, in seconds.

    Attributes:
        p05: 5 % quantile; None if `p95` is.
        p95: 95 % quantile.

    Raises:
        InvalidInput: The numbers are not positive and increasing, or one bound is missing.
    """

    p50: float
    p05: float | None = None
    p95: float | None = None

    def __post_init__(self) -> None:
        if (self.p05 is None) != (self.p95 is None):
            raise InvalidInput("an interval has both bounds, p05 and p95, or is left out")
        if not 0 < self.interval.p05 <= self.interval.p95 < inf:
            raise InvalidInput(f"a step takes more than 0 s, got {self}")
        check_number("a predicted step in seconds", self.interval.p95, DAY_S, LEAST_STEP_S)

    @property
    def interval(self) -> Interval:
        """From p05 to p95; only p50 where there are no bounds."""
        low = self.p50 if self.p05 is None else self.p05
        return Interval(low, self.p50, self.p50 if self.p95 is None else self.p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a file of predictions.

    Attributes:
        run: The run's id.
        step_s: Predicted step of each tenant, in the run's order.
    """

    run: str
    step_s: tuple[PredictedStep, ...]


def entries_text(evaluation: Evaluation) -> str:
    """Return the predictions of every scored run and of every run of a panel, one line each."""
    lines = []
    for run in (*evaluation.runs, *evaluation.advice):
        steps = [
            {"p05": job.predicted_s.p05, "p50": job.predicted_s.p50, "p95": job.predicted_s.p95}
            for job in run.jobs
        ]
        entry = {"run": run.run.id, "step_s": steps}
        lines.append(json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n")
    return "".join(lines)


def read_entries(path: Path) -> dict[str, Entry]:
    """Read the predictions in `path`, by run.

    Raises:
        InvalidInput: A line is malformed, a run occurs twice, or some tenants have an interval
            and others none.
    """
    entries: dict[str, Entry] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if line.strip():
            entry = parse_record(Entry, line, f"{path}:{number}", _REMEDY)
            if entry.run in entries:
                raise InvalidInput(f"{path}:{number}: run {entry.run} occurs twice. {_REMEDY}")
            entries[entry.run] = entry
    if len({step.p05 is None for entry in entries.values() for step in entry.step_s}) > 1:
        raise InvalidInput(
            f"{path}: some tenants have an interval, others none. Give all of them one, or none."
        )
    return entries


def score_entries(
    path: Path, profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu
) -> Evaluation:
    """Score the predictions in `path` on the fixed splits, as ours are scored.

    The author of the file is responsible that each prediction came from a model that saw no run of
    the family. Baselines are those that need no fit.

    The file has every scored run, and either every run of a panel or none.

    Raises:
        InvalidInput: The file is malformed, lacks a run, or has one that is not scored.
    """
    entries = read_entries(path)
    chosen = select(profiles, runs, gpu)
    expected = {run.id for run in (*chosen.scored, *chosen.advice)}
    _refuse(path, "these runs are not scored", entries.keys() - expected)
    _refuse(path, "scored runs are missing", {run.id for run in chosen.scored} - entries.keys())
    panels = chosen.advice if any(run.id in entries for run in chosen.advice) else ()
    _refuse(path, "runs of panels are missing", {run.id for run in panels} - entries.keys())
    scored, advice = (
        tuple(_compared(run, entries[run.id], profiles, gpu, path) for run in part)
        for part in (chosen.scored, panels)
    )
    has_intervals = all(step.p05 is not None for each in entries.values() for step in each.step_s)
    return evaluation_of(chosen, profiles, scored, advice, has_intervals)


def _refuse(path: Path, complaint: str, ids: Iterable[str]) -> None:
    if listed := sorted(ids):
        shown = ", ".join(listed[:5]) + (" and others" if len(listed) > 5 else "")
        raise InvalidInput(
            f"{path}: {complaint}: {shown} ({len(listed)} in all). "
            "`advisor evaluate --export FILE` writes a file with exactly the expected runs."
        )


def _compared(
    run: Run, entry: Entry, profiles: Mapping[str, Profile], gpu: Gpu, path: Path
) -> RunComparison:
    if len(entry.step_s) != len(run.tenants):
        raise InvalidInput(
            f"{path}: run {run.id} has {counted(len(run.tenants), 'tenant')}, but "
            f"{counted(len(entry.step_s), 'step')}. {_REMEDY}"
        )
    alone = profiles_of(run, profiles, "raw")
    rivals = baseline_steps(UNFITTED, alone, sharing_of(run), gpu)
    rows = zip(run.tenants, alone, entry.step_s, rivals, strict=True)
    return RunComparison(
        run, tuple(compared_job(tenant, p, step.interval, steps) for tenant, p, step, steps in rows)
    )
