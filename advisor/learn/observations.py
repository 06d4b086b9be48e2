"""Measured runs as rows for fitting: steps that replay predicted, and measured ones."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, compress
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import answer_all
from advisor.prediction.correction import features
from advisor.prediction.host import (
    host_factor,
    is_gpu_bound,
    on_host,
    on_like_core,
    profiles_on_host,
)
from advisor.prediction.replay import Effort, Physics, replay_mix
from advisor.prediction.trace import Floats
from advisor.sharing import Concurrent, Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

Bools = NDArray[np.bool_]

# Campaigns whose ids begin otherwise than with their names.
_CAMPAIGNS = {"drawn": "first", "cross": "control"}


def hosts_of(runs: Iterable[Run]) -> dict[str, str]:
    """Return the host of each of `runs`, by id, the first first: the name of its campaign.

    If a campaign ran on several processors, or on several days, these follow the name.
    """
    places = {}
    processors_and_days: dict[str, tuple[set[str], set[str]]] = {}
    for run in sorted(runs, key=lambda run: run.provenance.date):
        begin, _, _ = run.id.partition("-")
        campaign = _CAMPAIGNS.get(begin, begin)
        processor = re.sub(r"\(\w+\)| Processor$", "", run.provenance.host_cpu)
        day = run.provenance.date[:10]
        places[run.id] = campaign, processor, day
        processors, days = processors_and_days.setdefault(campaign, (set(), set()))
        processors.add(processor)
        days.add(day)
    hosts = {}
    for name, (campaign, *where) in places.items():
        several = zip(where, processors_and_days[campaign], strict=True)
        hosts[name] = ", ".join((campaign, *(word for word, values in several if len(values) > 1)))
    return hosts


# Campaigns took up to 2.6 hours on one host; those on two hosts were at least 5 hours apart.
ON_ONE_HOST_S = 4 * 3600.0


class SoloSteps:
    """The last step of each job alone on the host of a run, before that run began."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._hosts = hosts_of(runs)
        self._steps: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
        for run in runs:
            if len(run.tenants) == 1 and run.shows_pace:
                self._steps[self._key(run, run.names[0])].append(
                    (_when(run), run.tenants[0].step_s)
                )
        for steps in self._steps.values():
            steps.sort()

    def before(self, run: Run, name: str) -> float | None:
        """Return seconds of a step of the job called `name`; None if it did not run alone there."""
        steps = self._steps.get(self._key(run, name), [])
        place = bisect_left(steps, (_when(run), 0.0))
        if not place or _when(run) - steps[place - 1][0] > ON_ONE_HOST_S:
            return None
        return steps[place - 1][1]

    def _key(self, run: Run, name: str) -> tuple[str, str, str]:
        return self._hosts.get(run.id, run.id), run.provenance.host_cpu, name


def _when(run: Run) -> float:
    return datetime.fromisoformat(run.provenance.date).timestamp()


def profiles_on_checked_host(
    run: Run, profiles: Mapping[str, Profile], solo: SoloSteps
) -> tuple[Profile, ...] | None:
    """Return the profile of each tenant, converted to the host as a user can check it.

    This is one check of the host, the mean of all tenants', and the last step of each job alone.
    None if neither was recorded.
    """
    checks = [tenant.host_check_s for tenant in run.tenants if tenant.host_check_s]
    check_s = float(np.exp(np.mean(np.log(checks)))) if checks else None
    factors = [host_factor(profiles[n], check_s, solo.before(run, n)) for n in run.names]
    if check_s is None and all(factor == 1 for factor in factors):
        return None
    return tuple(on_host(profiles[n], by) for n, by in zip(run.names, factors, strict=True))


@dataclass(frozen=True, slots=True)
class MeasuredGpu:
    """Profiles and runs of one GPU.

    Attributes:
        profiles: Solo profiles by name; runs of other workloads are skipped.
        runs: All runs; failed ones and solo runs show nothing of sharing.
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
        as_measured: The profiles without conversion.
        on_checked_host: The profiles converted by `profiles_on_checked_host`.
        telling: Whether each tenant's step shows the effect of sharing, shape (jobs,): the GPU sets
            its pace, or its core was like the profile's.
    """

    gpu: Gpu
    run: Run
    sharing: Concurrent
    profiles: tuple[Profile, ...]
    as_measured: tuple[Profile, ...]
    on_checked_host: tuple[Profile, ...] | None
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
    profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu
) -> tuple[ObservedRun, ...]:
    """Return those of `runs`, all on `gpu`, that fitting can use, in order."""
    observed, solo = [], SoloSteps(runs)
    for run in runs:
        sharing = together(parse_sharing(run.sharing))
        usable = run.shows_pace and len(run.tenants) > 1 and profiles.keys() >= {*run.names}
        # Steps that wait for the loader of several jobs say nothing of the GPU.
        usable = usable and not any(each.workload.shared_loader for each in run.tenants)
        if usable and sharing is not None:
            alone = tuple(profiles[name] for name in run.names)
            pairs = zip(alone, run.tenants, strict=True)
            observed.append(
                ObservedRun(
                    gpu=gpu,
                    run=run,
                    sharing=sharing,
                    profiles=profiles_on_host(run, profiles),
                    as_measured=alone,
                    on_checked_host=profiles_on_checked_host(run, profiles, solo),
                    measured_s=np.array([tenant.step_s for tenant in run.tenants]),
                    telling=np.array([is_gpu_bound(p) or on_like_core(p, t) for p, t in pairs]),
                )
            )
    return tuple(observed)


@dataclass(frozen=True, slots=True)
class Rows:
    """The jobs of runs of one mode as rows, shape (rows,) or (rows, columns).

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

    def by_run(self) -> Iterator[NDArray[np.intp]]:
        """Yield the rows of each run."""
        ends = np.flatnonzero(np.diff(self.of_run)) + 1
        yield from np.split(np.arange(len(self.of_run)), ends) if len(self.of_run) else ()

    def chosen(self, keep: Bools) -> "Rows":
        """Return the rows to `keep`."""
        return Rows(
            self.of_run[keep],
            tuple(compress(self.profiles, keep)),
            self.x[keep],
            self.replayed_s[keep],
            self.measured_s[keep],
        )

    def that_tell(self, runs: Sequence[ObservedRun]) -> "Rows":
        """Return the rows, all of jobs of some of `runs`, that show the effect of sharing."""
        whole = [runs[index].telling for index in dict.fromkeys(self.of_run)]
        return self.chosen(np.concatenate([np.empty(0, dtype=bool), *whole]))


def rows_of_solo(pairs: Sequence[tuple[Profile, Run]]) -> Rows:
    """Return a row for each run of a single tenant, with its profile."""
    profiles = tuple(profile for profile, _ in pairs)
    return Rows(
        of_run=np.arange(len(pairs)),
        profiles=profiles,
        x=np.empty((len(pairs), 0)),
        replayed_s=np.array([profile.step_s for profile in profiles]),
        measured_s=np.array([run.tenants[0].step_s for _, run in pairs]),
    )


View = Literal["profiles", "as_measured", "on_checked_host"]
"""Which profiles of an `ObservedRun` its rows are predicted from."""
VIEWS: tuple[View, ...] = get_args(View)


class ReplayCache:
    """Replays runs, each once for each GPU and each set of constants that affect it.

    Evaluation fits again and again to parts of the same runs, and replaying takes most of the time.
    """

    def __init__(self) -> None:
        self._replayed: dict[tuple[object, ...], Floats | None] = {}
        self._columns: dict[tuple[object, ...], Floats] = {}

    def play(
        self,
        profiles: Sequence[Profile],
        sharing: Concurrent,
        gpu: Gpu,
        physics: Physics,
        effort: Effort,
    ) -> Floats | None:
        """Replay as `advisor.prediction.replay.replay_mix`."""
        key = _key(profiles, sharing, gpu, physics, effort)
        if key not in self._replayed:
            self._replayed[key] = replay_mix(profiles, sharing, gpu, physics, effort)
        return self._replayed[key]

    def rows(
        self, runs: Sequence[ObservedRun], view: View, physics: Physics, effort: Effort
    ) -> Rows:
        """Return rows of all jobs of those `runs` whose profiles have traces, seen in that way."""
        mixes = [
            (index, jobs, shared)
            for index, shared in enumerate(runs)
            if (jobs := getattr(shared, view)) is not None
        ]
        replays = answer_all(
            lambda mix: self.play(mix[1], mix[2].sharing, mix[2].gpu, physics, effort), mixes
        )
        predicted = []
        for (index, jobs, shared), replayed_s in zip(mixes, replays, strict=True):
            if replayed_s is None:
                continue
            columns = np.empty((len(jobs), 0))  # time slicing has no correction
            if shared.sharing.under_mps:
                key = _key(jobs, shared.sharing, shared.gpu, physics, effort)
                if key not in self._columns:
                    self._columns[key] = features(
                        jobs, shared.sharing, shared.gpu, physics, replayed_s
                    )
                columns = self._columns[key]
            predicted.append((index, jobs, columns, replayed_s))
        indices, profiles, rows, steps_s = zip(*predicted, strict=True) if predicted else [()] * 4
        return Rows(
            of_run=np.repeat(np.array(indices, dtype=np.intp), list(map(len, profiles))),
            profiles=tuple(chain.from_iterable(profiles)),
            x=np.concatenate(rows) if rows else np.empty((0, 0)),
            replayed_s=np.concatenate([[], *steps_s]),
            measured_s=np.concatenate([[], *(runs[index].measured_s for index in indices)]),
        )


def _key(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, physics: Physics, effort: Effort
) -> tuple[object, ...]:
    jobs = tuple((profile.name, profile.step_s, profile.host_s) for profile in profiles)
    return gpu.key, jobs, sharing, effort, *physics.bearing_on(sharing)
