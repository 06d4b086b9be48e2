"""Scores predictions for model families that the model was not fitted to, ours or those of a file.

For each family F the model is fitted and calibrated on the runs without any tenant of F; then F's
jobs are scored, once in every drawn run and every run of a panel that contains F. So a choice from
a panel is one by models that saw no run of those jobs.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from typing import Literal

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.learn.fit import fit
from advisor.learn.observations import (
    ON_ONE_HOST_S,
    VIEWS,
    MeasuredGpu,
    ReplayCache,
    SoloSteps,
    hosts_of,
    profiles_on_checked_host,
    shared_runs,
)
from advisor.learn.scores import (
    JobComparison,
    RunComparison,
    compare,
    profiles_of,
)
from advisor.prediction.cache import in_processes
from advisor.prediction.model import Model
from advisor.prediction.predictor import Predictor
from advisor.prediction.replay import PHYSICS, Effort
from advisor.sharing import SHARED_MODES, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.baselines import baselines, with_baselines

SPLIT = "leave-one-family-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The profiles and runs of one GPU, by their use in evaluation.

    Attributes:
        runs: All runs that models may be fitted to.
        scored: Runs drawn by a seed; `unusable` are ids of those that cannot be scored.
        advice: Shared runs of advice and their repeats: the panels from which plans are chosen.
        alone: Runs of one tenant.
        repeats: Pairs of a run that is predicted and its repeat with fresh workers on its host.
    """

    gpu: Gpu
    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    scored: tuple[Run, ...]
    unusable: tuple[str, ...]
    advice: tuple[Run, ...]
    alone: tuple[Run, ...]
    repeats: tuple[tuple[Run, Run], ...]

    @property
    def predicted(self) -> tuple[Run, ...]:
        """The runs whose jobs are predicted: drawn ones and those of panels."""
        return (*self.scored, *self.advice)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of the jobs of drawn runs."""
        return families_of(self.scored)

    @property
    def hosts(self) -> dict[str, str]:
        """The host of each run by id; see `hosts_of`."""
        return hosts_of(of_pace(self.runs))

    @property
    def home(self) -> str | None:
        """The host on which most profiles were made, each just before a run; None if unknown."""
        hosts = self.hosts
        runs = sorted((run.provenance.date, hosts[run.id]) for run in of_pace(self.runs))
        dates = (p.provenance.date for p in self.profiles.values() if p.provenance)
        after = (runs[bisect_left(runs, (date, "")) :] for date in dates)
        made = Counter(rest[0][1] for rest in after if rest)
        return max(made, key=made.__getitem__, default=None)


def select(profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu) -> Selection:
    """Sort `runs` of `gpu`.

    Raises:
        InvalidInput: No run can be scored.
    """

    def usable(run: Run) -> bool:
        profiled = profiles.keys() >= {*run.names}
        return run.ok and profiled and together(parse_sharing(run.sharing)) is not None

    ordinary = of_pace(runs)
    shared = [run for run in ordinary if len(run.tenants) > 1]
    drawn = [run for run in shared if run.purpose == "drawn"]
    scored = {run.id: run for run in drawn if usable(run)}
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Expected drawn runs whose tenants all "
            f"ran to the end and have profiles; read: {counted(len(runs), 'run')}."
        )
    advised = {run.id for run in shared if run.purpose == "validation"}
    advice = [run for run in shared if {run.id, run.repeats} & advised and usable(run)]
    by_id = scored | {run.id: run for run in advice}
    pairs = ((by_id[run.repeats], run) for run in shared if run.ok and run.repeats in by_id)
    return Selection(
        gpu=gpu,
        profiles=profiles,
        runs=runs,
        scored=tuple(scored.values()),
        unusable=tuple(run.id for run in drawn if run.id not in scored),
        advice=tuple(advice),
        alone=tuple(run for run in ordinary if len(run.tenants) == 1 and usable(run)),
        repeats=tuple(pair for pair in pairs if 3600 * hours_apart(*pair) < ON_ONE_HOST_S),
    )


def of_pace(runs: Iterable[Run]) -> list[Run]:
    """Return `runs` whose tenants all ran all the time, without experiments on memory or host."""
    return [run for run in runs if run.purpose not in ("memory", "control", "completion")]


def families_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the families of the tenants of `runs`, in alphabetical order."""
    return tuple(sorted({tenant.workload.family for run in runs for tenant in run.tenants}))


def hours_apart(one: Run, other: Run) -> float:
    """Return the hours between two runs."""
    dates = [datetime.fromisoformat(run.provenance.date) for run in (one, other)]
    return abs(dates[0] - dates[1]) / timedelta(hours=1)


View = Literal["raw", "host-checked"]
"""The profiles to predict a run from: as they were measured, or converted to the host of the run by
a check of it and by the last step of each job alone there, where these were recorded."""

Held = dict[tuple[View, str, int], JobComparison]
"""Jobs predicted without their families, by view, the run's id and the place in it."""
LeftOut = tuple[Model, Held]
"""A model and its predictions of the families that it did not see."""


def model_without(families: Collection[str], chosen: Selection, playback: ReplayCache) -> Model:
    """Fit the model to the runs without any job of `families`."""
    seen = {n: p for n, p in chosen.profiles.items() if p.workload.family not in families}
    runs = [run for run in chosen.runs if set(families).isdisjoint(families_of([run]))]
    return fit([MeasuredGpu(chosen.gpu, seen, runs)], playback)


def _leave_out(
    chosen: Selection, playback: ReplayCache, fold: tuple[Collection[str], Model | None]
) -> LeftOut:
    """Predict the jobs of the families of `fold` by its model, fitted here if it has none.

    They are predicted from profiles as measured, and again from profiles converted to the host of
    the run, where something of it was recorded.
    """
    families, model = fold
    model = model or model_without(families, chosen, playback)
    predictor = Predictor(chosen.gpu, model, replay=playback.play)
    rivals = baselines(model.of(chosen.gpu).physics, playback.play)
    solo, held = SoloSteps(chosen.runs), Held()
    for run in chosen.predicted:
        if set(families).isdisjoint(families_of([run])):
            continue
        raw = profiles_of(run, chosen.profiles)
        here = profiles_on_checked_host(run, chosen.profiles, solo)
        there = predictor.on_known_host() if here else predictor
        views: dict[View, RunComparison] = {
            "raw": with_baselines(compare(run, raw, predictor), raw, chosen.gpu, rivals),
            "host-checked": compare(run, here or raw, there),
        }
        for view, comparison in views.items():
            for place, job in enumerate(comparison.jobs):
                if job.family in families:
                    held[view, run.id, place] = job
    return model, held


# Of a worker process: the data of `_leave_out`, sent once and not with each fold.
_here: list[tuple[Selection, ReplayCache]] = []


def _begin(chosen: Selection, playback: ReplayCache) -> None:
    _here.append((chosen, playback))


def _leave_out_here(fold: tuple[Collection[str], Model | None]) -> LeftOut:
    return _leave_out(*_here[0], fold)


# With fewer runs than this, processes take longer to start than they save.
_WORTH_SPREADING = 100


def predict_folds(
    folds: Mapping[str, Collection[str]],
    chosen: Selection,
    playback: ReplayCache,
    processes: int = 1,
    tell: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    models: Mapping[str, Model] | None = None,
) -> dict[str, LeftOut]:
    """Predict the jobs of the families of each of `folds` by a model without them.

    It is fitted to the other families' runs, or is that of `models`, which may be of runs on
    another GPU; `tell` is called with the number of folds done and of all.
    """
    # A fold that `models` lack is an error: one fitted here would have seen runs on this GPU.
    parts = [(families, models[name] if models else None) for name, families in folds.items()]

    def by_name(results: Iterable[LeftOut]) -> dict[str, LeftOut]:
        done: dict[str, LeftOut] = {}
        tell(0, len(folds))
        for name, result in zip(folds, results, strict=True):
            done[name] = result
            tell(len(done), len(folds))
        return done

    if processes == 1 or len(chosen.predicted) < _WORTH_SPREADING:
        return by_name(_leave_out(chosen, playback, part) for part in parts)
    observed = shared_runs(chosen.profiles, chosen.runs, chosen.gpu)
    for view, mode in product(VIEWS, SHARED_MODES):  # which all folds need
        playback.rows([run for run in observed if run.mode == mode], view, PHYSICS, Effort())
    data, workers = (chosen, playback), min(processes, len(folds))
    with in_processes(_leave_out_here, parts, workers, _begin, data) as results:
        return by_name(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Every scored run, each of its jobs predicted without that job's family.

    Attributes:
        runs: Scored runs, predicted from profiles as measured, which is what users have.
        advice: Runs of panels, predicted in the same way.
        host_checked: Those of `runs`, predicted from profiles converted to the host of each run
            that recorded it; empty for predictions from a file.
        intervals: Whether the predictions have intervals.
        models: By fold: the model fitted without its families; empty for predictions from a file.
    """

    chosen: Selection
    runs: tuple[RunComparison, ...]
    advice: tuple[RunComparison, ...] = ()
    host_checked: tuple[RunComparison, ...] = ()
    intervals: bool = True
    models: Mapping[str, Model] = field(default_factory=dict)


def evaluate(
    profiles: Mapping[str, Profile],
    runs: Sequence[Run],
    gpu: Gpu,
    processes: int = 1,
    playback: ReplayCache | None = None,
    tell: Callable[[int, int], None] = lambda done, total: None,  # noqa: ARG005
    models: Mapping[str, Model] | None = None,
) -> Evaluation:
    """Score each family's jobs with a model without that family; see `predict_folds`.

    Raises:
        InvalidInput: No run can be scored.
    """
    chosen = select(profiles, runs, gpu)
    folds = {family: (family,) for family in families_of(chosen.predicted)}
    parts = predict_folds(folds, chosen, playback or ReplayCache(), processes, tell, models)
    held = {key: job for _, of_fold in parts.values() for key, job in of_fold.items()}

    def compared(runs: Iterable[Run], view: View = "raw") -> tuple[RunComparison, ...]:
        return tuple(
            RunComparison(run, tuple(held[view, run.id, n] for n in range(len(run.tenants))))
            for run in runs
        )

    return Evaluation(
        chosen=chosen,
        runs=compared(chosen.scored),
        advice=compared(chosen.advice),
        host_checked=compared(chosen.scored, "host-checked"),
        models={name: model for name, (model, _) in parts.items()},
    )
