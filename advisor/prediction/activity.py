"""Activity of the whole GPU while a mix runs, from what each job did alone."""

from collections.abc import Sequence

from advisor.prediction.power import Law
from advisor.workload.profile import Profile


def gract(profiles: Sequence[Profile], speeds: Sequence[float], law: Law) -> float | None:
    """Share of time in which the GPU's engine is active, 0..1 (GRACT); None without counters.

    Args:
        profiles: The jobs, each measured alone.
        speeds: Solo step over shared step of each, shape (jobs,).
        law: Of the way they share.
    """
    summed = summed_share(profiles, speeds, "gract")
    return None if summed is None else min(1.0, max(law.gract_least, law.gract * summed))


def smact(profiles: Sequence[Profile], speeds: Sequence[float], law: Law) -> float | None:
    """Mean share of SMs with work, 0..1 (SMACT); None without GPM counters."""
    summed = summed_share(profiles, speeds, "sm_active")
    return None if summed is None else min(1.0, law.smact * summed)


def summed_share(
    profiles: Sequence[Profile], speeds: Sequence[float], counter: str
) -> float | None:
    """Sum over jobs of a counter alone times the job's speed; None where one has it not."""
    total = 0.0
    for profile, speed in zip(profiles, speeds, strict=True):
        share = getattr(profile.counters, counter, None)
        if share is None:
            return None
        total += share * speed
    return total
