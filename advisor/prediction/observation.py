"""Measured runs as rows that can be fitted: what replay said, what was measured."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.gpu.catalogue import Gpu
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.features import features
from advisor.prediction.host import profiles_on_host
from advisor.prediction.model import mode_of
from advisor.prediction.rehearsal import Physics, rehearse
from advisor.prediction.script import Floats
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.profile import Profile
from advisor.workload.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A run that fitting can use: at least two tenants, all of which ran and have profiles.

    Attributes:
        families: Of its tenants, shape (jobs,).
        measured_s: Step of each tenant in the run, shape (jobs,).
        profiles: Of its tenants, each as on the core that the tenant had.
        alone_s: Step of each of `profiles`, shape (jobs,).
    """

    run: Run
    sharing: Naive | Mps
    profiles: tuple[Profile, ...]
    measured_s: Floats

    @property
    def mode(self) -> str:
        return mode_of(self.sharing)

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(profile.workload.family for profile in self.profiles)

    @property
    def alone_s(self) -> Floats:
        return np.array([profile.step_s for profile in self.profiles])


def shared_runs(profiles: Mapping[str, Profile], runs: Iterable[Run]) -> tuple[Shared, ...]:
    """The runs among `runs` that fitting can use, in their order."""
    return tuple(shared for run in runs if (shared := _shared(profiles, run)))


def _shared(profiles: Mapping[str, Profile], run: Run) -> Shared | None:
    names = [tenant.workload.name for tenant in run.tenants]
    sharing = parse_sharing(run.sharing)
    usable = run.shows_pace and len(names) > 1 and all(name in profiles for name in names)
    if not usable or not isinstance(sharing, Naive | Mps):
        return None
    return Shared(
        run=run,
        sharing=sharing,
        profiles=profiles_on_host(run, profiles),
        measured_s=np.array([tenant.step_s for tenant in run.tenants]),
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Jobs of runs of one mode under each other, shape (rows,) or (rows, features).

    Attributes:
        of_run: Which of the runs each row's job belongs to.
    """

    of_run: Floats
    family: tuple[str, ...]
    x: Floats
    alone_s: Floats
    replayed_s: Floats
    measured_s: Floats


class Playback:
    """Replays runs, each under the constants that bear on it once, however often it is asked.

    Evaluation fits again and again on parts of the same runs; replaying is what takes time.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._replayed: dict[tuple[object, ...], Floats | None] = {}

    def replayed_s(self, shared: Shared, physics: Physics) -> Floats | None:
        """Steps by replay alone, shape (jobs,); None without traces."""
        key = (shared.run.id, *physics.bearing_on(shared.sharing))
        if key not in self._replayed:
            self._replayed[key] = rehearse(shared.profiles, shared.sharing, self._gpu, physics)
        return self._replayed[key]

    def error(self, runs: Sequence[Shared], physics: Physics) -> float:
        """Mean absolute log error of replay alone over the jobs of `runs`."""
        logs = [
            np.abs(np.log(shared.measured_s / replayed))
            for shared in runs
            if (replayed := self.replayed_s(shared, physics)) is not None
        ]
        return float(np.mean(np.concatenate(logs))) if logs else float("inf")

    def rows(self, runs: Sequence[Shared], physics: Physics) -> Rows:
        """The jobs of those `runs` whose profiles have traces."""
        played = [(index, shared, replayed) for index, shared in enumerate(runs)
                  if (replayed := self.replayed_s(shared, physics)) is not None]  # fmt: skip
        return Rows(
            of_run=np.array([index for index, shared, _ in played for _ in shared.profiles]),
            family=tuple(family for _, shared, _ in played for family in shared.families),
            x=np.concatenate(
                [features(s.profiles, s.sharing, self._gpu, replayed) for _, s, replayed in played]
            ),
            alone_s=np.concatenate([shared.alone_s for _, shared, _ in played]),
            replayed_s=np.concatenate([replayed for _, _, replayed in played]),
            measured_s=np.concatenate([shared.measured_s for _, shared, _ in played]),
        )


def capacity_log_errors(runs: Sequence[Shared]) -> Floats:
    """Log of measured over the capacity model's step, over all jobs of `runs`."""
    logs = [
        np.log(shared.measured_s / np.array(steps))
        for shared in runs
        if (steps := capacity_steps(shared.profiles, shared.sharing)) is not None
    ]
    return np.concatenate(logs) if logs else np.zeros(0)
