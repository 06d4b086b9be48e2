"""Replays a mix with the fitted constants of a GPU: profiles and a sharing give step times."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.prediction.interval import all_known
from advisor.prediction.kernel_pace import limit_exponent
from advisor.prediction.replay import (
    UNLOGGED,
    Effort,
    TimeSlicing,
    replay_mps,
    replay_naive,
)
from advisor.prediction.trace import Floats, replay_trace
from advisor.sharing import Concurrent, PartitionSharing
from advisor.workload.plausible import check
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Physics:
    """Constants of replay that belong to the GPU and its driver, fitted to measured runs.

    Attributes:
        packing: How far blocks of different jobs share what an SM does, 0..1; see `trace.demand`.
        slicing: How naive sharing slices time.
        ceded: Share of the GPU's block slots that a kernel with blocks to start cedes, under MPS,
            to kernels that became ready after it, 0..1.
        bandwidth: How far limited jobs keep, together, the bandwidth that each had alone under
            its limit, 0..1.
    """

    packing: float
    slicing: TimeSlicing
    ceded: float
    bandwidth: float

    def __post_init__(self) -> None:
        check(self, ("packing", "ceded", "bandwidth"), 1.0)

    def bearing_on(self, sharing: Concurrent) -> tuple[object, ...]:
        """The constants that affect replay under `sharing`."""
        if sharing.under_mps:
            return (self.packing, self.ceded, self.bandwidth)
        return (self.slicing,)


def replay_mix(
    profiles: Sequence[Profile],
    sharing: Concurrent,
    gpu: Gpu,
    physics: Physics,
    effort: Effort | None = None,
    *,
    log: Floats = UNLOGGED,
) -> Floats | None:
    """Seconds of a step of each job by replay alone, shape (jobs,).

    A trace replayed alone takes the step measured alone, so these need no further scaling.
    `log` is filled as by `replay.replay_mps`.

    Returns:
        None if a profile has no kernel trace.
    """
    effort = effort or Effort()
    order = _one_order(profiles, sharing)
    ordered = [profiles[at] for at in order]
    played = all_known(replay_trace(each, gpu.sms, physics.packing) for each in ordered)
    if played is None:
        return None
    if not sharing.under_mps:
        shared = replay_naive(played, physics.slicing, effort, log=log)
    else:
        limits = [sharing.limits[at] for at in order if sharing.limits]
        shares = limit_shares(limits, gpu.sms) or [1.0] * len(played)
        powers = [1.0] * len(played)
        if limits:
            powers = [limit_exponent(each, gpu, physics.bandwidth) for each in ordered]
        shared = replay_mps(played, shares, powers, physics.ceded, effort, log=log)
    log[:, 0] = [order[int(job)] if job >= 0 else job for job in log[:, 0]]
    alone_s = np.array([each.step_s for each in profiles])
    return mean_of_copies(np.maximum(shared[np.argsort(order)], alone_s), profiles, sharing)


def _one_order(profiles: Sequence[Profile], sharing: Concurrent) -> list[int]:
    """The order in which jobs are replayed, however they were named.

    Where two are ready at once the first goes first, which can be felt for many steps.
    """
    names, steps_s = [each.name for each in profiles], [each.step_s for each in profiles]
    kinds = list(zip_longest(names, steps_s, sharing.limits, fillvalue=0))
    return sorted(range(len(profiles)), key=kinds.__getitem__)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replayed mix: with the fitted constants, and with the least certain of them moved.

    Attributes:
        steps_s: With the fitted constants, shape (jobs,).
        ceding_s: With more SMs ceded, shape (jobs,).
        packing_s: With blocks packed more closely, shape (jobs,).
    """

    steps_s: Floats
    ceding_s: Floats
    packing_s: Floats


# Divisors of the effort of replays with moved constants, of which only the change is used.
_BRIEFLY = 2, 4


@lru_cache(64)  # each mix asks
def _doubts(physics: Physics) -> tuple[Physics, Physics]:
    """`physics` with more SMs ceded, and with blocks packed more closely."""
    return replace(physics, ceded=0.15), replace(physics, packing=0.7)


def replay_variants(
    sharing: Concurrent,
    physics: Physics,
    effort: Effort = Effort(),  # noqa: B008 - frozen
) -> list[tuple[Physics, Effort]]:
    """The replays that `combined_variants` takes: as fitted, and with each constant moved."""
    if not sharing.under_mps:  # time slicing has no such constants
        return [(physics, effort)]
    briefly = Effort(steps=effort.steps / _BRIEFLY[0], events=effort.events // _BRIEFLY[1])
    return [(physics, effort), *((each, briefly) for each in _doubts(physics))]


def combined_variants(replays: Sequence[Floats | None]) -> Replayed | None:
    """The results of all `replay_variants` in their order as one value; None if the first is."""
    steps_s, *others = replays
    if steps_s is None:
        return None
    played = [steps_s if each is None else each for each in others]
    return Replayed(steps_s, *played, *[steps_s] * (2 - len(played)))


def mean_of_copies(
    values: Floats, profiles: Sequence[Profile], sharing: PartitionSharing
) -> Floats:
    """`values` with the mean for copies of a job, which replay starts at different points."""
    kinds = list(zip_longest([each.name for each in profiles], sharing.limits))
    means = {kind: values[[other == kind for other in kinds]].mean() for kind in set(kinds)}
    return np.array([means[kind] for kind in kinds])
