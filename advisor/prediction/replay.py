"""Replays the kernel traces of all tenants against each other, event by event.

**MPS.** Kernels run side by side: in the order in which they became ready their blocks start on SMs
with room for them, up to their tenants' limits. Kernels that are on the SMs together share the SMs'
rate in proportion. **Naive.** One tenant owns the whole GPU for a slice; passing it on costs time;
an owner with nothing to run yields; copies between host and GPU need no slice.

`engine` holds the compiled loops; `tests/prediction/slow_replay.py` is the same in plain Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from advisor.errors import InvalidInput
from advisor.files.units import DAY_S, LEAST_STEP_S, check, check_number
from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction import engine
from advisor.prediction.prediction import all_known
from advisor.prediction.trace import Floats, ReplayTrace, limit_exponent, replay_trace, sm_pace
from advisor.sharing import Arrangement, Concurrent
from advisor.sharing.groups import together
from advisor.workload.catalogue import how_to_measure
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Bounds of a replay, which ends at the first that is reached.

    If a job has a round of several steps, the replay goes on until two whole rounds were counted.
    Eight jobs of long steps need most of the events; with twice as many they are no better.

    Attributes:
        steps: Steps of the slowest tenant, at its pace alone times the tenants.
        events: Kernel starts and ends, over all tenants.
    """

    steps: float = 4.0
    events: int = 80_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSlicing:
    """Time slices of the driver between processes: no public source, fitted to measured runs.

    On an H100, kernels that only wait show them.

    Attributes:
        slice_s: Seconds that an owner keeps the GPU while others wait.
        switch_s: Seconds lost when the GPU is passed on, until its caches hold the data of the
            next owner.
    """

    slice_s: float
    switch_s: float

    def __post_init__(self) -> None:
        check_number("slice_s", self.slice_s, DAY_S, LEAST_STEP_S)
        check(self, ("switch_s",), DAY_S)


# A last wave that drains faster is no event of its own: a replay of seven jobs takes 1.1 times as
# long as without such events, not 1.25 times, and predicts jobs of families left out as well.
_BRIEF_S = 10e-6


# Copies of a job have the same, and so do most of the mixes of one question.
@lru_cache(maxsize=128)
def _rows(script: ReplayTrace, limit: float, exponent: float) -> Floats:
    """Return the rows of `engine`'s kernels on a share `limit` of the SMs, shape (7, kernels)."""
    pace = sm_pace(script.demand, limit, exponent)
    duration_s, waves = script.duration_s / pace, script.waves / limit
    wave_s = duration_s / np.ceil(np.maximum(waves, 1))
    drain_s = np.where((waves > 1) & (wave_s >= _BRIEF_S), wave_s, 0.0)
    return np.stack(
        [
            script.launch_s,
            duration_s,
            np.minimum(script.demand, limit),
            limit * np.minimum(1, waves),
            drain_s,
            script.waits_s,
            script.in_turns,
        ]
    )


# A rollout whose host waits often can take 20 times as long under time slicing, while others take
# hundreds of steps.
_EVENTS_OF_ROUNDS = 2_000_000


def _steps_s(
    policy: int,
    scripts: Sequence[ReplayTrace],
    limited: tuple[Sequence[float], Sequence[float]],
    constants: tuple[float, ...],
    effort: Effort,
    least_s: float,
    log: Floats,
) -> Floats:
    """Replay seconds of a step of each tenant; whole rounds, if some take several steps.

    `limited` are shares of the SMs and exponents; the replay lasts for `least_s` at least.
    """
    starts = np.cumsum([0, *(len(each.duration_s) for each in scripts)])
    kernels = np.concatenate(list(map(_rows, scripts, *limited)), axis=1)
    paces = np.array(
        [[each.host_s, each.gap_s, each.lead_s, float(each.steps != 1)] for each in scripts]
    )
    columns = starts, kernels, np.ascontiguousarray(paces.T)
    alone_s = [max(each.host_s, float(each.duration_s.sum())) / each.steps for each in scripts]
    horizon_s = max(effort.steps * max(alone_s) * len(scripts), least_s)
    rounds_s = np.array([each.host_s if each.steps != 1 else 0.0 for each in scripts])
    pivot = int(np.argmax(rounds_s)) if rounds_s.any() else -1
    events = effort.events if pivot < 0 else max(effort.events, _EVENTS_OF_ROUNDS)
    rounds = engine.replay(policy, columns, constants, horizon_s, events, pivot, log)
    return np.asarray(rounds / np.array([each.steps for each in scripts]))


# Steps may be much shorter than slices: every tenant has the GPU at least this often.
_ROUNDS = 12
# Times the effort of MPS, which takes many times as long to replay: with the same effort, slices
# cut off at both ends leave steps of 2,313 jobs 0.1 points further from those measured.
_NAIVE_EFFORT = 5

# The log for a caller that does not need one.
UNLOGGED = np.zeros((0, 4))


def replay_mps(
    scripts: Sequence[ReplayTrace],
    limits: Sequence[float],
    exponents: Sequence[float],
    ceded: float,
    effort: Effort,
    *,
    log: Floats = UNLOGGED,
) -> Floats:
    """Replay seconds of a step of each tenant under MPS, shape (tenants,).

    `limits` are shares of the SMs, (0, 1], `exponents` those of `limit_exponent`. `log` is filled,
    up to its length, with tenant, kernel of its trace, start and end in seconds, shape (rows, 4).
    """
    limited = limits, exponents
    return _steps_s(engine.SIDE_BY_SIDE, scripts, limited, (ceded,), effort, 0.0, log)


def replay_naive(
    scripts: Sequence[ReplayTrace], slicing: TimeSlicing, effort: Effort, *, log: Floats = UNLOGGED
) -> Floats:
    """Replay seconds of a step of each tenant under time slicing; `log` as in `replay_mps`."""
    whole, constants = [1.0] * len(scripts), (slicing.slice_s, slicing.switch_s)
    turns_s = _ROUNDS * len(scripts) * sum(constants)
    longer = Effort(steps=_NAIVE_EFFORT * effort.steps, events=_NAIVE_EFFORT * effort.events)
    return _steps_s(engine.TIME_SLICES, scripts, (whole, whole), constants, longer, turns_s, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Constants of replay that belong to the GPU and its driver, fitted to measured runs.

    Attributes:
        packing: Degree to which blocks of different jobs share an SM, 0..1; see `trace.demand`.
        ceded: Share of the GPU's block slots that a kernel with blocks to start cedes, under MPS,
            to kernels that became ready after it, 0..1.
        bandwidth: Degree to which limited jobs keep the bandwidth that they had alone under their
            limits, 0..1.
    """

    packing: float
    slicing: TimeSlicing
    ceded: float
    bandwidth: float

    def __post_init__(self) -> None:
        check(self, ("packing", "ceded", "bandwidth"), 1.0)

    def bearing_on(self, sharing: Concurrent) -> tuple[object, ...]:
        """Return the constants that affect replay under `sharing`."""
        if sharing.under_mps:
            return (self.packing, self.ceded, self.bandwidth)
        return (self.slicing,)


# The least error of replay alone on 2,339 runs of an H200 and an H100, which agree in all of them;
# kernels that only pass time show slices of 2.0 to 2.1 ms and changes of 0.22 to 0.23 ms.
# `advisor fit --tune` searches again.
PHYSICS = Physics(
    packing=0.3,
    slicing=TimeSlicing(slice_s=2e-3, switch_s=0.21e-3),
    ceded=0.05,
    bandwidth=0.35,
)


def replay_mix(
    profiles: Sequence[Profile],
    sharing: Concurrent,
    gpu: Gpu,
    physics: Physics,
    effort: Effort = Effort(),
    *,
    log: Floats = UNLOGGED,
) -> Floats | None:
    """Replay seconds of a step of each job, shape (jobs,); None if a profile has no kernel trace.

    The jobs are sorted first, so that their order makes no difference: if two are ready at once,
    the first one runs first, which can matter for many steps. `log` is filled as by `replay_mps`.
    """
    names, steps_s = [each.name for each in profiles], [each.step_s for each in profiles]
    kinds = list(zip_longest(names, steps_s, sharing.limits, fillvalue=0))
    order = sorted(range(len(profiles)), key=kinds.__getitem__)
    ordered = [profiles[at] for at in order]
    played = all_known(replay_trace(each, gpu.sms, physics.packing) for each in ordered)
    if played is None:
        return None
    if not sharing.under_mps:
        shared = replay_naive(played, physics.slicing, effort, log=log)
    else:
        shares = exponents = [1.0] * len(played)
        if sharing.limits:
            shares = limit_shares([sharing.limits[at] for at in order], gpu.sms)
            exponents = [limit_exponent(each, gpu, physics.bandwidth) for each in ordered]
        shared = replay_mps(played, shares, exponents, physics.ceded, effort, log=log)
    log[:, 0] = [order[int(job)] if job >= 0 else job for job in log[:, 0]]
    values = np.maximum(shared[np.argsort(order)], np.array(steps_s))
    # The mean for copies of a job, which replay starts at different points.
    copies = list(zip_longest(names, sharing.limits))
    means = {kind: values[[other == kind for other in copies]].mean() for kind in set(copies)}
    return np.array([means[kind] for kind in copies])


# Some tenths of a second of most mixes, and a file of about a megabyte.
_KERNELS = 8_000


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """Kernel or copy that ran without being interrupted; under time slices, a part of one.

    Attributes:
        job: Position in the mix.
        kind: Its class, e.g. ``"conv"``; that of the first of several that ran at once.
        start_s: Time since the replay's beginning.
    """

    job: int
    kind: str
    start_s: float
    end_s: float


def recorded(
    profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu, physics: Physics
) -> tuple[ReplayedKernel, ...]:
    """Replay `profiles` that share `gpu`; return the first kernels, in the order of their ends."""
    shared = together(sharing)
    if shared is None:
        raise InvalidInput(f"kernels are replayed under naive and MPS, not under {sharing}")
    log = np.full((_KERNELS, 4), -1.0)
    if replay_mix(profiles, shared, gpu, physics, Effort(events=_KERNELS), log=log) is None:
        bare = sorted({each.name for each in profiles if each.trace is None})
        raise InvalidInput(
            f"kernel trace not found in the profiles of {', '.join(bare)}. Measure again: "
            f"{how_to_measure(bare)}."
        )

    kernels = []
    for job, kernel, start_s, end_s in log[log[:, 0] >= 0].tolist():
        profile = profiles[int(job)]
        trace, played = profile.trace, replay_trace(profile, gpu.sms, physics.packing)
        assert trace is not None
        assert played is not None
        at = int(played.place[int(kernel)])
        kernels.append(ReplayedKernel(int(job), trace.classes[trace.class_of[at]], start_s, end_s))
    return tuple(kernels)
