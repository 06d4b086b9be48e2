"""Fits the model once for each family left out, on all cores."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.fit_model import fit
from advisor.prediction.fit.observation import MeasuredGpu
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.fit.surrogate_fit import with_surrogate_without
from advisor.prediction.model_file import Model
from advisor.prediction.parallel import fitting_in_one_thread, in_processes
from advisor.prediction.predictor import Predictor
from advisor.validate.baselines import Baseline, baselines
from advisor.validate.predicted_and_measured import (
    JobComparison,
    RunComparison,
    View,
    compare,
    profiles_of,
)
from advisor.validate.selection import families_of
from advisor.workload.profile import Profile
from advisor.workload.run import Run

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
