"""Device memory of a mix, in both meanings, and the risk that it does not fit.

Memory adds up over processes. `memory_mib` is what a process holds when nothing stops it: what
torch's caching allocator reserved plus the CUDA context. `memory_min_mib` is what it needs:
allocated at peak plus the context; that suffices only where the process is capped to it,
because one process's cache is never released for another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, sqrt

from advisor.prediction.answer import Interval
from advisor.workload.measured import Memory
from advisor.workload.profile import Profile

_Z95 = 1.645  # standard normal quantile


@dataclass(frozen=True, slots=True)
class Need:
    """Device memory of one process, MiB."""

    held_mib: float
    least_mib: float


def need(profile: Profile, *, under_mps: bool, context_mib: float) -> Need:
    """What one process of `profile` takes.

    Args:
        profile: Measured alone.
        under_mps: Whether it will be an MPS client, whose context is smaller; as measured where
            the profile's probe measured it.
        context_mib: Stands in for the context where the driver would not say.
    """
    alone = profile.memory
    memory = profile.mps.memory if under_mps and profile.mps else alone
    held = _held_mib(memory, context_mib)
    return Need(held, held - memory.reserved_mib + memory.allocated_mib)


def _held_mib(memory: Memory, context_mib: float) -> float:
    return memory.reserved_mib + context_mib if memory.device_mib is None else memory.device_mib


def interval_mib(held_mib: float, sigma: float) -> Interval:
    """Around `held_mib`, at a relative standard error of `sigma`."""
    margin = _Z95 * sigma * held_mib
    return Interval(held_mib - margin, held_mib, held_mib + margin)


def overflow_probability(held_mib: Sequence[float], capacity_mib: float, sigma: float) -> float:
    """Chance that processes holding `held_mib` together exceed `capacity_mib`, 0..1.

    Their errors are taken to go the same way, for they come from one driver and one allocator.
    """
    total = sum(held_mib)
    spread = max(sigma * total, 1e-9)
    return 0.5 * (1 + erf((total - capacity_mib) / (spread * sqrt(2))))
