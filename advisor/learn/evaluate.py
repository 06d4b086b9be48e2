"""Scores predictions for model families that the model was not fitted to.

For each family F the model is fitted, tuned and calibrated on the runs without any tenant of F;
then F's jobs are scored, once in every scored run that contains F. The panels of plans are
predicted in the same way, so a choice from them is one by models that saw no run of those jobs.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import compress
from operator import or_
from statistics import median
from typing import Final, Literal

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.learn.baselines import Baseline, baselines
from advisor.learn.fit import fit
from advisor.learn.observations import MeasuredGpu, ReplayCache
from advisor.learn.scores import JobComparison, RunComparison, View, compare, profiles_of
from advisor.learn.surrogate_fit import with_surrogate_without
from advisor.prediction.cache import fitting_in_one_thread, in_processes
from advisor.prediction.model import Model
from advisor.prediction.predictor import Predictor
from advisor.sharing import Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

SPLIT = "leave-one-family-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The runs of one GPU, by what evaluation does with them.

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
    """Sorts `runs` of `gpu`.

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.

    Raises:
        InvalidInput: No run can be scored.
    """
    ordinary = of_pace(runs)
    shared = [run for run in ordinary if len(run.tenants) > 1]
    drawn = [run for run in shared if run.purpose == "drawn"]
    scored = tuple(run for run in drawn if _usable(run, profiles))
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Wanted are drawn runs whose tenants all "
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
    """Those of `runs` whose tenants all ran all the time, in no experiment on memory or host."""
    return [run for run in runs if run.purpose not in ("memory", "control", "completion")]


def families_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Families of the tenants of `runs`, in alphabetical order."""
    return tuple(sorted({tenant.workload.family for run in runs for tenant in run.tenants}))


def cores_known(run: Run) -> bool:
    """Whether `run` says how fast the core of each tenant was; before the third campaign none did.

    Their speed varies by 40 % on virtual machines, and nobody who asks for a prediction knows it.
    """
    return all(tenant.host_check_s is not None for tenant in run.tenants)


# Campaigns whose ids begin otherwise than with their names.
_CAMPAIGNS = {"drawn": "first", "cross": "control"}


def hosts_of(runs: Iterable[Run]) -> dict[str, str]:
    """On which host each of `runs` was made, by id, the first first: the name of its campaign.

    Where a campaign ran on several processors, or on several days, these are said with it.
    """
    places = {run.id: _place(run) for run in sorted(runs, key=lambda run: run.provenance.date)}
    of_campaign: dict[str, list[tuple[str, str]]] = {}
    for campaign, *where in places.values():
        of_campaign.setdefault(campaign, []).append((where[0], where[1]))
    several = {
        campaign: [len(set(column)) > 1 for column in zip(*of_it, strict=True)]
        for campaign, of_it in of_campaign.items()
    }
    return {
        name: ", ".join((campaign, *compress(where, several[campaign])))
        for name, (campaign, *where) in places.items()
    }


def _place(run: Run) -> tuple[str, str, str]:
    """Campaign, processor and day."""
    begin, _, _ = run.id.partition("-")
    processor = re.sub(r"\(\w+\)| Processor$", "", run.provenance.host_cpu)
    return _CAMPAIGNS.get(begin, begin), processor, run.provenance.date[:10]


def _usable(run: Run, profiles: Mapping[str, Profile]) -> bool:
    known = all(tenant.workload.name in profiles for tenant in run.tenants)
    return run.ok and known and together(parse_sharing(run.sharing)) is not None


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
        """The jobs of `family`, predicted by a model that saw none of its runs; and the model."""
        return self.predicted_by(self.model_without(family), family)

    def predicted_by(self, model: Model, family: str) -> HeldOut:
        """The jobs of `family`, predicted by `model`, which may be of runs on another GPU."""
        predictor = Predictor(self.gpu, model, play=self.playback.play)
        known = predictor.on_known_cores()
        rivals = baselines(model.of(self.gpu).physics, self.playback.play)
        return HeldOut(
            self._jobs_of(family, self.wanted, "raw", predictor, rivals),
            self._jobs_of(family, self.on_cores, "core-adjusted", known, {}),
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
        """The model fitted to the runs without any job of `family`."""
        seen = {name: p for name, p in self.profiles.items() if p.workload.family != family}
        runs = [run for run in self.runs if family not in families_of([run])]
        everyone, replays = list(self.profiles.values()), self.playback
        model = fit([MeasuredGpu(self.gpu, seen, runs)], replays)
        return with_surrogate_without(family, model, everyone, self.gpu, replays.play)


def held_out(folds: Folds, processes: int = 1, tell: Tell | None = None) -> HeldOut:
    """Every job of the wanted runs, predicted without its family.

    Args:
        folds: The data.
        processes: Number of processes; the result does not depend on it.
        tell: Called with the number of families done and the number of all.
    """
    families = families_of(folds.wanted)
    if processes == 1 or len(folds.wanted) < _WORTH_SPREADING:
        return reduce(or_, _told(map(folds.without, families), len(families), tell), HeldOut())
    with in_processes(_without, families, min(processes, len(families)), _begin, (folds,)) as parts:
        return reduce(or_, _told(parts, len(families), tell), HeldOut())


def _told(parts: Iterable[HeldOut], total: int, tell: Tell | None) -> Iterator[HeldOut]:
    """`parts`, with a call of `tell` before the first and after each."""
    if tell is not None:
        tell(0, total)
    for done, part in enumerate(parts, start=1):
        if tell is not None:
            tell(done, total)
        yield part


def compared_by(held: Held, runs: Sequence[Run]) -> tuple[RunComparison, ...]:
    """`runs` with the answers of `held` for each job."""
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
        unusable: Ids of drawn runs that could not be scored; see `selection.Selection`.
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

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.
        processes: Number of processes for the fits; the result does not depend on it.
        playback: Cached replays, if other callers need the same ones.
        tell: Called with the number of families done and the number of all.

    Raises:
        InvalidInput: No run can be scored.
    """
    chosen = select(profiles, runs, gpu)
    wanted = (*chosen.scored, *chosen.advice)
    on_cores = tuple(filter(cores_known, chosen.scored))
    folds = Folds(profiles, runs, wanted, on_cores, gpu, playback or ReplayCache())
    held = held_out(folds, processes, tell)
    scored, advice = (compared_by(held.raw, part) for part in (chosen.scored, chosen.advice))
    found = evaluation_of(chosen, profiles, scored, advice)
    return replace(found, adjusted=compared_by(held.adjusted, on_cores), models=held.models)


def evaluation_of(
    chosen: Selection,
    profiles: Mapping[str, Profile],
    scored: tuple[RunComparison, ...],
    advice: tuple[RunComparison, ...],
    intervals: bool = True,
) -> Evaluation:
    """The source of the predictions in `scored` and `advice`, with its description."""
    return Evaluation(
        gpu=chosen.scored[0].gpu,
        families=families_of(chosen.scored),
        runs=scored,
        repeats=chosen.repeats,
        unusable=chosen.unusable,
        drift=_drift(profiles, chosen.alone),
        advice=advice,
        alone=chosen.alone,
        profiles=profiles,
        intervals=intervals,
    )


def _drift(profiles: Mapping[str, Profile], alone: Sequence[Run]) -> Drift | None:
    """How much pace alone moved between profiling and the runs."""
    apart = [
        (abs(tenant.step_s / profiles[tenant.workload.name].step_s - 1), tenant.workload.name)
        for run in alone
        if run.purpose == "solo"
        for tenant in run.tenants
    ]
    if not apart:
        return None
    worst, worst_job = max(apart)
    middle = median(difference for difference, _ in apart)
    return Drift(n=len(apart), median=middle, worst=worst, worst_job=worst_job)


Jobs = Literal["all", "same", "mixed"]
Bound = Literal["all", "gpu", "host"]
BOUNDS: tuple[Bound, ...] = ("all", "gpu", "host")
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard; errors are shares of what was measured.

    Attributes:
        view: Whether profiles are taken as they were measured, or as on the cores of each run.
        host: A campaign, and where it was; ``"all"`` if all are pooled.
        bound: Which jobs count: those that the GPU paces alone, those that the host paces, or all.
        degree: Tenants in a run; None: all degrees are pooled.
        jobs: Whether the tenants are of one workload, of several, or all runs are taken.
        n: Number of jobs scored.
        runs: Number of runs that they come from.
        mape: Mean absolute error of the step time.
        rmse: Root of its mean square.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        coverage90_low: Lower end of the 95 % interval of that share; see `noise_and_coverage`.
        coverage90_high: Upper end.
        width90: Mean width of the 90 % intervals, as a share of the predicted step; None likewise.
        noise_floor: Median absolute difference of a job between a run and its repeat with fresh
            workers; None if no run was repeated.
        noise_floor_rmse: Root of the mean square of those differences; None likewise.
        excess_error: Root of the squared error, over the repeated runs, less that of the noise.
        throughput_mape: Mean absolute error of a run's weighted speedup; None where not all of a
            run's jobs count.
        memory_mape: Mean absolute error of a process's device memory; None if not measured.
        memory_total_mape: The same for all processes of a run together; None as `throughput_mape`.
        baselines: Mean absolute error of each baseline's step time; None if not defined.
        baselines_n: Jobs for which each baseline is defined.
    """

    view: View
    host: str
    bound: Bound
    mode: Mode
    degree: int | None
    jobs: Jobs
    n: int
    runs: int
    mape: float
    median: float
    p90: float
    rmse: float
    coverage90: float | None
    coverage90_low: float | None
    coverage90_high: float | None
    width90: float | None
    noise_floor: float | None
    noise_floor_rmse: float | None
    excess_error: float | None
    throughput_mape: float | None
    memory_mape: float | None
    memory_total_mape: float | None
    baselines: dict[str, float | None]
    baselines_n: dict[str, int]
