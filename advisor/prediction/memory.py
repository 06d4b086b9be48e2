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
from advisor.workload.profile import Profile

# What the MPS server holds of the device, as nvidia-smi listed it on an H200, driver 580.159.04.
MPS_SERVER_MIB = 66

_Z95 = 1.645  # standard normal quantile


@dataclass(frozen=True, slots=True)
class Context:
    """How a CUDA context's size depends on where it lives, fitted to measured processes.

    Attributes:
        usual_mib: Stands in where the driver would not say.
        per_sm_mib: What each SM that an MPS limit takes away saves: the context keeps local
            memory for every thread that its SMs can hold.
    """

    usual_mib: float
    per_sm_mib: float


@dataclass(frozen=True, slots=True)
class Need:
    """Device memory of one process, MiB."""

    held_mib: float
    least_mib: float


def need(profile: Profile, context: Context, *, under_mps: bool, sms_taken: float = 0) -> Need:
    """What one process of `profile` takes.

    Args:
        profile: Measured alone.
        context: Of processes on this GPU.
        under_mps: Whether it will be an MPS client; as measured where the probe measured it.
        sms_taken: SMs that its MPS limit takes away.
    """
    memory = profile.mps.memory if under_mps and profile.mps else profile.memory
    measured = memory.context_mib
    whole_mib = context.usual_mib if measured is None else measured
    context_mib = max(0.0, whole_mib - sms_taken * context.per_sm_mib)
    return Need(memory.reserved_mib + context_mib, memory.allocated_mib + context_mib)


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
