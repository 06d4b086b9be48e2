"""Sharing as a capacity: what can be said without a kernel trace.

The smallest K >= 1 with ``sum_i g_i / max(h_i, K g_i) <= C``; each job's step is then
``max(h_i, K g_i)``, where h is its host path and g its GPU path. The constants were fitted on an
H200 to 14 training workloads alone and in shares of 2, 3 and 7.
"""

from collections.abc import Sequence
from math import inf
from typing import assert_never

from advisor.prediction.cache import once_a_profile
from advisor.sharing import Sharing
from advisor.workload.profile import Profile

NAIVE_CAPACITY = 0.80
MPS_CAPACITY = 0.85


def capacity_steps(profiles: Sequence[Profile], sharing: Sharing) -> tuple[float, ...] | None:
    """Seconds of a step of each job, shape (jobs,); None if a profile says too little.

    Under MPS with limits a job's GPU path is stretched by its limit first. MIG and
    phases are not covered.
    """
    if any(profile.gpu_s is None for profile in profiles):
        return None
    match sharing.mode:
        case "serial":
            return tuple(profile.step_s for profile in profiles)
        case "naive":
            return _shared(profiles, [_busy_s(each, 1) for each in profiles], NAIVE_CAPACITY)
        case "mps" | "mps-limits":
            parts = [limit / 100 for limit in sharing.limits] or [1.0] * len(profiles)
            busy = [_busy_s(each, part) for each, part in zip(profiles, parts, strict=True)]
            return _shared(profiles, busy, MPS_CAPACITY / _activity(profiles))
        case "mig" | "hybrid" | "phases":
            return None
        case _:
            assert_never(sharing.mode)


def _busy_s(profile: Profile, part: float) -> float:
    return (profile.gpu_s or 0.0) * max(1.0, _sm_share(profile) / part)


@once_a_profile
def _sm_share(profile: Profile) -> float:
    """SM activity while the GPU is busy, 0..1; 1 where no counter says."""
    counters = profile.counters
    if counters is None or counters.sm_active is None or not profile.busy_share:
        return 1.0
    return min(1.0, counters.sm_active / profile.busy_share)


def _activity(profiles: Sequence[Profile]) -> float:
    """SM activity while busy over all jobs, weighted by their GPU time; never 0."""
    busy = [profile.gpu_s or 0.0 for profile in profiles]
    weighted = sum(g * _sm_share(each) for g, each in zip(busy, profiles, strict=True))
    return max(0.05, weighted / max(sum(busy), 1e-12))


def _shared(
    profiles: Sequence[Profile], busy_s: Sequence[float], capacity: float
) -> tuple[float, ...]:
    host_s = [max(each.step_s, busy) for each, busy in zip(profiles, busy_s, strict=True)]
    return contended(host_s, busy_s, capacity)


def contended(
    free_s: Sequence[float], busy_s: Sequence[float], capacity: float
) -> tuple[float, ...]:
    """Seconds of a step of each job where all use something of which there is only so much.

    Args:
        free_s: Steps where nobody is in the way, shape (jobs,).
        busy_s: What a step keeps of it busy, likewise; at most the step.
        capacity: How much of it all together can keep busy, as a share of the time.
    """
    loads = [busy / max(free, busy) for free, busy in zip(free_s, busy_s, strict=True)]
    if sum(loads) <= capacity:
        return tuple(map(max, free_s, busy_s))
    # The work of who is at it all the time comes to 1 / stretch each, that of the others stays.
    bound = [free / busy if busy else inf for free, busy in zip(free_s, busy_s, strict=True)]
    order = sorted(range(len(loads)), key=bound.__getitem__)
    for stretched in range(1, len(order) + 1):
        others = sum(loads[at] for at in order[stretched:])
        stretch = stretched / (capacity - others) if others < capacity else inf
        if stretched == len(order) or stretch <= bound[order[stretched]]:
            break
    return tuple(max(free, stretch * busy) for free, busy in zip(free_s, busy_s, strict=True))
