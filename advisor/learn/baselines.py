"""Baselines that a prediction, or a choice by it, has to beat without a fit to shared runs.

To add a rule that predicts steps, write one function of the type `Baseline` and one line in
`UNFITTED`; it also chooses, by highest throughput. To add one that chooses how jobs share without
predicting, write one of the type `Chooser` and one line in `CHOOSERS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from advisor.hardware.gpus import Gpu
from advisor.prediction.capacity import capacity_steps
from advisor.prediction.mix_steps import ReplayFunction
from advisor.prediction.prediction import all_known
from advisor.prediction.replay import Effort, Physics, replay_mix
from advisor.sharing import Mps, Naive, Serial, Sharing
from advisor.sharing.groups import together
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
        case "naive" | "mps" | "mps-limits":
            shares = [limit / 100 for limit in sharing.limits]
            shares = shares or [1 / len(profiles)] * len(profiles)
        case "mig" | "hybrid" | "phases":
            return None
        case _:
            assert_never(sharing.mode)
    busy = all_known(profile.busy_share for profile in profiles)
    if busy is None:
        return None
    return tuple(
        profile.step_s * max(1.0, used / share)
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
    busy = all_known(profile.busy_share for profile in profiles)
    if busy is None:
        return None
    full = 1.0 if sharing.mode == "serial" else max(1.0, sum(busy))
    return tuple(profile.step_s * full for profile in profiles)


UNFITTED: Mapping[str, Baseline] = {
    "alone": as_if_alone,
    "fair-share": fair_share,
    "summed-utilisation": summed_utilisation,
    "capacity": capacity,
}


def replay_alone(
    profiles: Sequence[Profile],
    sharing: Sharing,
    gpu: Gpu,
    *,
    physics: Physics,
    play: ReplayFunction = replay_mix,
) -> tuple[float, ...] | None:
    """Replay without regression; None on MIG, of phases, or where a profile has no trace.

    Args:
        profiles: Profiles of the jobs.
        sharing: How they share.
        gpu: The GPU that they share.
        physics: The constants of replay.
        play: Replays mixes.
    """
    if sharing.mode == "serial":
        return tuple(profile.step_s for profile in profiles)
    shared = together(sharing)
    steps = None if shared is None else play(profiles, shared, gpu, physics, Effort())
    return None if steps is None else tuple(map(float, steps))


def baselines(physics: Physics, play: ReplayFunction = replay_mix) -> Mapping[str, Baseline]:
    """Every baseline by name; replay has the constants `physics`, and `play` replays for it."""
    return {**UNFITTED, "replay": partial(replay_alone, physics=physics, play=play)}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a rule may look at: nothing measured of the jobs together.

    Attributes:
        profiles: Profiles of the jobs, in order.
        sharings: Ways to share to choose from; the first is serial.
    """

    profiles: tuple[Profile, ...]
    sharings: tuple[Sharing, ...]


# One of the sharings offered; None if the rule's own answer is not among them.
Chooser = Callable[[Offer], Sharing | None]


def always_serial(offer: Offer) -> Sharing | None:
    """One job after another."""
    return _first(offer, Serial())


def always_naive(offer: Offer) -> Sharing | None:
    """All at once, without MPS."""
    return _first(offer, Naive())


def always_mps(offer: Offer) -> Sharing | None:
    """All at once under MPS, without limits."""
    return _first(offer, Mps())


def equal_limits(offer: Offer) -> Sharing | None:
    """Under MPS with the same limit for each: the one nearest an equal part of the GPU."""
    part = 100 / len(offer.profiles)
    alike = [each for each in offer.sharings if len(set(each.limits)) == 1]
    return min(alike, key=lambda each: abs(each.limits[0] - part), default=None)


CHOOSERS: Mapping[str, Chooser] = {
    "always-serial": always_serial,
    "always-naive": always_naive,
    "always-mps": always_mps,
    "equal-limits": equal_limits,
}


def _first(offer: Offer, wanted: Sharing) -> Sharing | None:
    return wanted if wanted in offer.sharings else None
