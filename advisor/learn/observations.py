"""Measured runs as rows for fitting: steps that replay predicted, and measured ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import answer_all
from advisor.prediction.capacity import is_gpu_bound
from advisor.prediction.correction import features
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
        measured_s: Step of each tenant in the run, shape (jobs,).
        profiles: Profile of each tenant, converted to the core that it had.
        as_measured: The same profiles unconverted.
        telling: Whether each tenant's step shows the effect of sharing, shape (jobs,): the GPU sets
            its pace, or its core was like the profile's.
    """

    gpu: Gpu
    run: Run
    sharing: Concurrent
    profiles: tuple[Profile, ...]
    as_measured: tuple[Profile, ...]
    measured_s: Floats
    telling: Bools

    @property
    def mode(self) -> Mode:
        return self.sharing.mode

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(profile.workload.family for profile in self.profiles)

    @property
    def alone_s(self) -> Floats:
        """Step of each of `profiles`, shape (jobs,)."""
        return np.array([profile.step_s for profile in self.profiles])


def shared_runs(
    profiles: Mapping[str, Profile], runs: Iterable[Run], gpu: Gpu
) -> tuple[ObservedRun, ...]:
    """Return those of `runs`, all on `gpu`, that fitting can use, in order."""
    observed = []
    for run in runs:
        sharing = together(parse_sharing(run.sharing))
        usable = run.shows_pace and len(run.tenants) > 1 and profiles.keys() >= {*run.names}
        if usable and sharing is not None:
            alone = tuple(profiles[name] for name in run.names)
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
        return tuple(profile.workload.family for profile in self.profiles)

    @property
    def alone_s(self) -> Floats:
        return np.array([profile.step_s for profile in self.profiles])

    def chosen(self, keep: Bools) -> "Rows":
        """Return the rows to `keep`."""
        return Rows(
            self.of_run[keep], tuple(compress(self.profiles, keep)), self.x[keep],
            self.replayed_s[keep], self.measured_s[keep],
        )  # fmt: skip

    def that_tell(self, runs: Sequence[ObservedRun]) -> "Rows":
        """Return the rows, all of jobs of some of `runs`, that show the effect of sharing."""
        whole = [runs[index].telling for index in dict.fromkeys(self.of_run)]
        return self.chosen(np.concatenate([np.empty(0, dtype=bool), *whole]))


def rows_of(
    runs: Sequence[ObservedRun], predicted: Sequence[tuple[int, Sequence[Profile], Floats, Floats]]
) -> Rows:
    """Return the rows of some of `runs`: index, profiles, columns and predicted steps of each."""
    indices, profiles, columns, steps_s = zip(*predicted, strict=True) if predicted else [()] * 4
    return Rows(
        of_run=np.repeat(np.array(indices, dtype=np.intp), list(map(len, profiles))),
        profiles=tuple(chain.from_iterable(profiles)),
        x=np.concatenate(columns) if columns else np.empty((0, 0)),
        replayed_s=np.concatenate([[], *steps_s]),
        measured_s=np.concatenate([[], *(runs[index].measured_s for index in indices)]),
    )


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
        self, profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, physics: Physics,
        effort: Effort,
    ) -> Floats | None:  # fmt: skip
        """Replay as `advisor.prediction.replay.replay_mix`."""
        jobs = tuple((profile.name, profile.step_s, profile.host_s) for profile in profiles)
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

    def rows(self, runs: Sequence[ObservedRun], physics: Mapping[str, Physics]) -> Rows:
        """Return rows of all jobs of those `runs` whose profiles have traces.

        `physics` are the constants of each GPU, by its key.
        """
        ways = [replay_variants(shared.sharing, physics[shared.gpu.key]) for shared in runs]
        # Of all runs at once: of one, a long replay keeps a single core busy.
        answer_all(lambda way: self.replayed_s(*way), [
            (shared, *way) for shared, of_run in zip(runs, ways, strict=True) for way in of_run
        ])  # fmt: skip
        predicted = []
        for index, (shared, of_run) in enumerate(zip(runs, ways, strict=True)):
            replayed = combined_variants([self.replayed_s(shared, *way) for way in of_run])
            if replayed is not None:
                x = features(shared.profiles, shared.sharing, shared.gpu, replayed)
                predicted.append((index, shared.profiles, x, replayed.steps_s))
        return rows_of(runs, predicted)
