"""The doubt about power where profiles are estimates: of another GPU, or other batch sizes."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot

from advisor.hardware.catalogue import Gpu
from advisor.prediction.memory import Z95
from advisor.prediction.mix_prediction import interval_around
from advisor.prediction.power import PowerAndEnergy
from advisor.workload.profile import Profile

# Standard deviation of the log: translated from an H200 to an H100, what 71 workloads draw beyond
# idle while busy is a sixth off, and a quarter the other way.
_SPREAD = 0.25


def of_estimates(drawn: PowerAndEnergy, profiles: Sequence[Profile], gpu: Gpu) -> PowerAndEnergy:
    """`drawn` by `profiles` with the doubt of those that are estimates.

    `gpu` draws no more than its limit.
    """
    if not any(each.is_estimate for each in profiles):
        return drawn
    end = Z95 * max(map(_spread, profiles))
    doubt = interval_around(1.0, -end, end)
    power_w = None if drawn.power_w is None else drawn.power_w.times(doubt)
    if power_w is not None and gpu.power_limit_w is not None:
        most_w = max(power_w.p50, gpu.power_limit_w)
        power_w = replace(power_w, p95=min(power_w.p95, most_w))
    energies = tuple(None if each is None else each.times(doubt) for each in drawn.energy_step_j)
    return PowerAndEnergy(power_w, energies)


def _spread(profile: Profile) -> float:
    """At another batch size power is as uncertain as a step: they go up together."""
    others = profile.other_batches
    of_batch = 0.0 if others is None else others.step_spread
    return hypot(of_batch, 0.0 if profile.estimated_from is None else _SPREAD)
