"""How uncertain estimated profiles are: those from another GPU, or from other batch sizes."""

from collections.abc import Sequence
from math import hypot

from advisor.hardware.catalogue import known_gpus
from advisor.prediction.interval import Interval, interval_around
from advisor.prediction.memory import Z95
from advisor.prediction.power import PowerAndEnergy
from advisor.workload.profile import Profile

# Standard deviation of the log of an estimated step over the measured one: of 71 workloads from an
# H200 to an H100 and back, and of those that others timed on GPUs of four other architectures.
_SPREAD_WITHIN, _SPREAD_ACROSS = 0.03, 0.14


def estimate_spread(profile: Profile) -> float:
    """Standard deviation of the log of the profile's step if it is an estimate; 0 if measured."""
    others = profile.other_batches
    of_batch = 0.0 if others is None else others.step_spread
    if profile.estimated_from is None:
        return of_batch
    here, there = (known_gpus().get(key) for key in (profile.gpu, profile.estimated_from))
    alike = here is not None and there is not None and here.architecture == there.architecture
    return hypot(of_batch, _SPREAD_WITHIN if alike else _SPREAD_ACROSS)


def estimate_range(profile: Profile) -> Interval:
    """Factor on the step of a profile, if it is an estimate; 1 throughout if it was measured."""
    end = Z95 * estimate_spread(profile)
    return interval_around(1.0, -end, end)


# Standard deviation of the log of power: translated from an H200 to an H100, what 71 workloads draw
# beyond idle while busy is a sixth off, and a quarter the other way.
_POWER_SPREAD = 0.25


def with_power_doubt(drawn: PowerAndEnergy, profiles: Sequence[Profile]) -> PowerAndEnergy:
    """`drawn` with wider intervals where `profiles` are estimates."""
    if not any(each.is_estimate for each in profiles):
        return drawn
    end = Z95 * max(map(_power_spread, profiles))
    doubt = interval_around(1.0, -end, end)
    power_w = None if drawn.power_w is None else drawn.power_w.times(doubt)
    energies = tuple(None if each is None else each.times(doubt) for each in drawn.energy_step_j)
    return PowerAndEnergy(power_w, energies)


def _power_spread(profile: Profile) -> float:
    """As `estimate_spread`, of power; over batch sizes both grow together, so they vary alike."""
    others = profile.other_batches
    of_batch = 0.0 if others is None else others.step_spread
    return hypot(of_batch, 0.0 if profile.estimated_from is None else _POWER_SPREAD)
