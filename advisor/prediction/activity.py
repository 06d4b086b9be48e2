"""Power and activity of the whole GPU while a mix runs, from what each job did alone."""

from collections.abc import Sequence

from advisor.gpu.catalogue import Gpu
from advisor.workload.profile import Profile


def power_w(
    profiles: Sequence[Profile], speeds: Sequence[float], gpu: Gpu, gain: float
) -> float | None:
    """Mean watts of the GPU; None where a profile has no power.

    Idle power is paid once; what each job drew above it scales with the job's speed.

    Args:
        profiles: The jobs, each measured alone.
        speeds: Solo step over shared step of each, shape (jobs,).
        gpu: Caps the sum at its power limit.
        gain: Measured over predicted power above idle, fitted.
    """
    above = 0.0
    idle = 0.0
    for profile, speed in zip(profiles, speeds, strict=True):
        if profile.power_w is None or profile.idle_power_w is None:
            return None
        idle = max(idle, profile.idle_power_w)
        above += speed * max(0.0, profile.power_w - profile.idle_power_w)
    return min(idle + gain * above, gpu.power_limit_w or float("inf"))


def gract(profiles: Sequence[Profile], speeds: Sequence[float]) -> float | None:
    """Share of time in which the GPU's engine is active, 0..1; None without counters."""
    alone = [each.counters.gract if each.counters else None for each in profiles]
    return _summed(alone, speeds)


def smact(profiles: Sequence[Profile], speeds: Sequence[float]) -> float | None:
    """Mean share of SMs with work, 0..1; None without GPM counters."""
    alone = [each.counters.sm_active if each.counters else None for each in profiles]
    return _summed(alone, speeds)


def _summed(alone: Sequence[float | None], speeds: Sequence[float]) -> float | None:
    total = 0.0
    for share, speed in zip(alone, speeds, strict=True):
        if share is None:
            return None
        total += share * speed
    return min(1.0, total)
