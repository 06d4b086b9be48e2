"""Baselines that a prediction has to beat, without a fit to shared runs.

To add a rule, write one function of the type `Baseline` and one line in `UNFITTED`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from advisor.hardware.catalogue import Gpu
from advisor.prediction.physics import Physics, replayed_steps
from advisor.prediction.utilisation_model import capacity_steps
from advisor.sharing import Sharing
from advisor.workload.profile import Profile

# Seconds of a step of each job, shape (jobs,); None if it is not defined for the mix.
Baseline = Callable[[Sequence[Profile], Sharing, Gpu], Sequence[float] | None]


def as_if_alone(
    profiles: Sequence[Profile],
    sharing: Sharing,  # noqa: ARG001 - to this one, nothing else matters
    gpu: Gpu,  # noqa: ARG001
) -> tuple[float, ...]:
    """Sharing costs nothing: each job keeps its solo step."""
    return tuple(profile.step_s for profile in profiles)


def fair_share(
    profiles: Sequence[Profile],
    sharing: Sharing,
    gpu: Gpu,  # noqa: ARG001 - shares are of any GPU
) -> tuple[float, ...] | None:
    """Each job gets its share of the GPU and runs at ``min(1, share / busy share)`` of its pace.

    The share is the job's MPS limit, or else one part of as many as there are jobs.

    Returns:
        None on MIG, of phases, or where a profile has no busy share.
    """
    match sharing.mode:
        case "serial":
            shares = [1.0] * len(profiles)
        case "mps-limits":
            shares = [limit / 100 for limit in sharing.limits]
        case "naive" | "mps":
            shares = [1 / len(profiles)] * len(profiles)
        case "mig" | "hybrid" | "phases":
            return None
        case _:
            assert_never(sharing.mode)
    busy = [profile.busy_share for profile in profiles]
    if None in busy:
        return None
    return tuple(
        profile.step_s * max(1.0, (used or 0.0) / share)
        for profile, used, share in zip(profiles, busy, shares, strict=True)
    )


def capacity(
    profiles: Sequence[Profile],
    sharing: Sharing,
    gpu: Gpu,  # noqa: ARG001 - what it needs of the GPU the profiles measured
) -> tuple[float, ...] | None:
    """Sharing as a capacity; None on MIG, of phases, or where a profile has no GPU path."""
    return capacity_steps(profiles, sharing)


def summed_utilisation(
    profiles: Sequence[Profile],
    sharing: Sharing,
    gpu: Gpu,  # noqa: ARG001 - utilisations are of any GPU
) -> tuple[float, ...] | None:
    """Utilisations add up; past a full GPU every job slows by their sum.

    The simplest rule of placing jobs by GPU utilisation alone, which Horus (Yeung et al., IEEE
    TPDS 33(1), 2022) found a good proxy of interference. It is not their scheduler: theirs
    predicts the utilisation too, and here it is measured.

    Returns:
        None on MIG, of phases, or where a profile has no busy share.
    """
    if sharing.mode in ("mig", "hybrid", "phases"):
        return None
    busy = [profile.busy_share for profile in profiles]
    if None in busy:
        return None
    full = 1.0 if sharing.mode == "serial" else max(1.0, sum(used or 0.0 for used in busy))
    return tuple(profile.step_s * full for profile in profiles)


UNFITTED: Mapping[str, Baseline] = {
    "alone": as_if_alone,
    "fair-share": fair_share,
    "summed-utilisation": summed_utilisation,
    "capacity": capacity,
}


def baselines(physics: Physics) -> Mapping[str, Baseline]:
    """Every baseline by name; `physics` holds the constants of the replay without regression."""
    return {**UNFITTED, "replay": partial(replayed_steps, physics=physics)}
