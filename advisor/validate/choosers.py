"""Baseline rules that choose how jobs share without predicting a step.

To add a rule, write one function of the type `Chooser` and one line in `CHOOSERS`. A rule
that predicts steps belongs to `advisor.validate.baselines`; it chooses by highest throughput.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from advisor.sharing import Mps, Naive, Serial, Sharing
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class Offer:
    """What a rule may look at: nothing that was measured of the jobs together.

    Attributes:
        profiles: Of the jobs, in order.
        sharings: From which to choose; the first is serial.
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
