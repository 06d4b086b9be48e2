"""Measured runs as rows for fitting: what replay predicted, and what was measured."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.mix_features import FEATURES
from advisor.prediction.tenant_hosts import on_like_core, profiles_on_host
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, parse_sharing
from advisor.sharing.traversal import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run, Tenant

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
    """Those of `runs`, all on `gpu`, that fitting can use, in order."""
    return tuple(shared for run in runs if (shared := _shared(profiles, run, gpu)))


def _shared(profiles: Mapping[str, Profile], run: Run, gpu: Gpu) -> ObservedRun | None:
    names = [tenant.workload.name for tenant in run.tenants]
    shared = together(parse_sharing(run.sharing))
    usable = run.shows_pace and len(names) > 1 and all(name in profiles for name in names)
    if not usable or shared is None:
        return None
    return ObservedRun(
        gpu=gpu,
        run=run,
        sharing=shared,
        profiles=profiles_on_host(run, profiles),
        as_measured=tuple(profiles[name] for name in names),
        measured_s=np.array([tenant.step_s for tenant in run.tenants]),
        telling=np.array([_telling(profiles[each.workload.name], each) for each in run.tenants]),
    )


def _telling(profile: Profile, tenant: Tenant) -> bool:
    return is_gpu_bound(profile) or on_like_core(profile, tenant)


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
        """Whether the GPU sets each job's pace alone, not the host."""
        return np.array([is_gpu_bound(each) for each in self.profiles])

    def chosen(self, keep: Bools) -> "Rows":
        """Some of the rows."""
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
    """The rows of all runs; `rows_of` makes those of one GPU, given its key."""
    parts = [_NO_ROWS]
    for key in dict.fromkeys(shared.gpu.key for shared in runs):
        places = np.array([at for at, shared in enumerate(runs) if shared.gpu.key == key])
        found = rows_of([runs[at] for at in places], key)
        parts.append(replace(found, of_run=places[found.of_run]))
    return Rows(
        of_run=np.concatenate([each.of_run for each in parts]),
        profiles=tuple(profile for each in parts for profile in each.profiles),
        x=np.concatenate([each.x for each in parts]),
        replayed_s=np.concatenate([each.replayed_s for each in parts]),
        measured_s=np.concatenate([each.measured_s for each in parts]),
    )


def telling_of(rows: Rows, runs: Sequence[ObservedRun]) -> Bools:
    """Whether each of `rows`, all jobs of some of `runs`, shows the effect of sharing."""
    chosen = list(dict.fromkeys(map(int, rows.of_run)))
    return np.concatenate([np.empty(0, dtype=bool), *(runs[each].telling for each in chosen)])
