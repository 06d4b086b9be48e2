"""Measured runs as rows for fitting: steps that replay predicted, and measured ones."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import answer_all
from advisor.prediction.capacity import is_gpu_bound
from advisor.prediction.correction import FEATURES, features
from advisor.prediction.host import on_like_core, profiles_on_host
from advisor.prediction.replay import (
    Effort,
    Physics,
    combined_variants,
    replay_mix,
    replay_variants,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """Profiles and runs of one GPU.

    Attributes:
        profiles: Solo profiles by name; runs of other workloads are skipped.
        runs: All runs; failed ones and solo runs do not teach sharing.
        own: Those of `runs` that are the user's own.

    Raises:
        InvalidInput: A run or a profile is of another GPU.
    """

    gpu: Gpu
    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    own: Sequence[Run] = ()

    def __post_init__(self) -> None:
        measured_on = {run.gpu for run in self.runs} | {e.gpu for e in self.profiles.values()}
        if strangers := measured_on - {self.gpu.key}:
            raise InvalidInput(
                f"runs and profiles of {', '.join(sorted(strangers))} cannot be used to fit "
                f"{self.gpu.key}"
            )

    @property
    def shared(self) -> "tuple[ObservedRun, ...]":
        """The shared runs that fitting can use."""
        return shared_runs(self.profiles, self.runs, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """A run that fitting can use: two or more tenants, all of which ran and have profiles.

    Attributes:
        gpu: The GPU of the run.
        families: Family of each tenant, shape (jobs,).
        measured_s: Step of each tenant in the run, shape (jobs,).
        profiles: Profile of each tenant, converted to the core that it had.
        as_measured: The same profiles unconverted.
        cores_known: Whether the speed of every tenant's core was checked.
        telling: Whether each tenant's step shows the effect of sharing, shape (jobs,): the GPU sets
            its pace, or its core was like the profile's.
        alone_s: Step of each of `profiles`, shape (jobs,).
    """

    gpu: Gpu
    run: Run
    sharing: Concurrent
    profiles: tuple[Profile, ...]
    as_measured: tuple[Profile, ...]
    measured_s: Floats
    telling: Bools

    @property
    def cores_known(self) -> bool:
        return all(tenant.host_check_s is not None for tenant in self.run.tenants)

    @property
    def mode(self) -> Mode:
        return self.sharing.mode

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(profile.workload.family for profile in self.profiles)

    @property
    def alone_s(self) -> Floats:
        return np.array([profile.step_s for profile in self.profiles])


def shared_runs(
    profiles: Mapping[str, Profile], runs: Iterable[Run], gpu: Gpu
) -> tuple[ObservedRun, ...]:
    """Return those of `runs`, all on `gpu`, that fitting can use, in order."""
    observed = []
    for run in runs:
        names = [tenant.workload.name for tenant in run.tenants]
        sharing = together(parse_sharing(run.sharing))
        usable = run.shows_pace and len(names) > 1 and all(name in profiles for name in names)
        if usable and sharing is not None:
            alone = tuple(profiles[name] for name in names)
            pairs = zip(alone, run.tenants, strict=True)
            observed.append(ObservedRun(
                gpu=gpu, run=run, sharing=sharing, profiles=profiles_on_host(run, profiles),
                as_measured=alone, measured_s=np.array([tenant.step_s for tenant in run.tenants]),
                telling=np.array([is_gpu_bound(p) or on_like_core(p, t) for p, t in pairs]),
            ))  # fmt: skip
    return tuple(observed)


@dataclass(frozen=True, slots=True)
class Rows:
    """The jobs of runs of one mode as rows, shape (rows,) or (rows, features).

    Attributes:
        of_run: Index of each row's run.
        profiles: Profile of each row's job.
    """

    of_run: NDArray[np.intp]
    profiles: tuple[Profile, ...]
    x: Floats
    replayed_s: Floats
    measured_s: Floats

    @property
    def family(self) -> tuple[str, ...]:
        return tuple(each.workload.family for each in self.profiles)

    @property
    def alone_s(self) -> Floats:
        return np.array([each.step_s for each in self.profiles])

    @property
    def gpu_bound(self) -> Bools:
        """True for jobs whose pace alone the GPU sets, not the host."""
        return np.array([is_gpu_bound(each) for each in self.profiles])

    def chosen(self, keep: Bools) -> "Rows":
        """Return the rows to `keep`."""
        profiles = tuple(each for each, kept in zip(self.profiles, keep, strict=True) if kept)
        return Rows(
            self.of_run[keep], profiles, self.x[keep], self.replayed_s[keep], self.measured_s[keep]
        )


_NO_ROWS = Rows(
    of_run=np.empty(0, dtype=np.intp),
    profiles=(),
    x=np.empty((0, len(FEATURES))),
    replayed_s=np.empty(0),
    measured_s=np.empty(0),
)


def rows_by_gpu(
    runs: Sequence[ObservedRun], rows_of: Callable[[Sequence[ObservedRun], str], Rows]
) -> Rows:
    """Return the rows of all runs; `rows_of` makes those of one GPU from them and its key."""
    parts = [_NO_ROWS]
    for key in dict.fromkeys(shared.gpu.key for shared in runs):
        places = np.array([at for at, shared in enumerate(runs) if shared.gpu.key == key])
        rows = rows_of([runs[at] for at in places], key)
        parts.append(replace(rows, of_run=places[rows.of_run]))
    return Rows(
        of_run=np.concatenate([each.of_run for each in parts]),
        profiles=tuple(profile for each in parts for profile in each.profiles),
        x=np.concatenate([each.x for each in parts]),
        replayed_s=np.concatenate([each.replayed_s for each in parts]),
        measured_s=np.concatenate([each.measured_s for each in parts]),
    )


def telling_of(rows: Rows, runs: Sequence[ObservedRun]) -> Bools:
    """Return whether each of `rows`, all jobs of some of `runs`, shows the effect of sharing."""
    chosen = list(dict.fromkeys(map(int, rows.of_run)))
    return np.concatenate([np.empty(0, dtype=bool), *(runs[each].telling for each in chosen)])


# Constants that suit long replays suit these, too.
_TO_COMPARE = Effort(events=20_000)


class ReplayCache:
    """Replays runs, each once for each GPU and each set of constants that affect it.

    Evaluation fits again and again to parts of the same runs, and replaying takes most of the time.
    """

    def __init__(self) -> None:
        self._replayed: dict[tuple[object, ...], Floats | None] = {}

    def replayed_s(
        self,
        shared: ObservedRun,
        physics: Physics,
        effort: Effort = Effort(),  # noqa: B008 - frozen
    ) -> Floats | None:
        """Compute steps by replay alone, shape (jobs,); None without traces."""
        return self.play(shared.profiles, shared.sharing, shared.gpu, physics, effort)

    def play(
        self,
        profiles: Sequence[Profile],
        sharing: Concurrent,
        gpu: Gpu,
        physics: Physics,
        effort: Effort,
    ) -> Floats | None:
        """Replay as `advisor.prediction.replay.replay_mix`."""
        jobs = tuple((each.name, each.step_s, each.host_s) for each in profiles)
        key = (gpu.key, jobs, sharing, effort, *physics.bearing_on(sharing))
        if key not in self._replayed:
            self._replayed[key] = replay_mix(profiles, sharing, gpu, physics, effort)
        return self._replayed[key]

    def error(self, runs: Sequence[ObservedRun], physics: Physics) -> float:
        """Compute the mean absolute log error of replay over jobs of `runs` that show sharing."""
        replays = answer_all(lambda shared: self.replayed_s(shared, physics, _TO_COMPARE), runs)
        logs = [
            np.abs(np.log(shared.measured_s / replayed))[shared.telling]
            for shared, replayed in zip(runs, replays, strict=True)
            if replayed is not None
        ]
        return float(np.mean(np.concatenate(logs))) if logs else float("inf")

    def telling_rows(self, runs: Sequence[ObservedRun], physics: Physics) -> Rows:
        """Return rows of jobs that show the effect of sharing, of runs with traces."""
        rows = self.rows(runs, physics)
        return rows.chosen(telling_of(rows, runs))

    def rows(self, runs: Sequence[ObservedRun], physics: Physics) -> Rows:
        """Return rows of all jobs of those `runs` whose profiles have traces."""
        # Of all runs at once: of one, a long replay keeps a single core busy.
        answer_all(lambda way: self.replayed_s(*way), [
            (shared, *way) for shared in runs for way in replay_variants(shared.sharing, physics)
        ])  # fmt: skip
        variants = [
            combined_variants([self.replayed_s(s, *w) for w in replay_variants(s.sharing, physics)])
            for s in runs
        ]
        played = [(index, runs[index], replayed) for index, replayed in enumerate(variants)
                  if replayed is not None]  # fmt: skip
        return Rows(
            of_run=np.array(
                [index for index, shared, _ in played for _ in shared.profiles], dtype=np.intp
            ),
            profiles=tuple(each for _, shared, _ in played for each in shared.profiles),
            x=np.concatenate([np.empty((0, len(FEATURES))), *(
                features(s.profiles, s.sharing, s.gpu, replayed) for _, s, replayed in played
            )]),
            replayed_s=np.concatenate([[], *(replayed.steps_s for _, _, replayed in played)]),
            measured_s=np.concatenate([[], *(shared.measured_s for _, shared, _ in played)]),
        )  # fmt: skip
