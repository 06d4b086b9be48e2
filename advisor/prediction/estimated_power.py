"""The doubt about power where profiles were not measured on the GPU that is asked about."""

from dataclasses import replace

from advisor.hardware.catalogue import Gpu
from advisor.prediction.memory import Z95
from advisor.prediction.mix_prediction import interval_around
from advisor.prediction.power import PowerAndEnergy

# Standard deviation of the log: translated from an H200 to an H100, what 71 workloads draw beyond
# idle while busy is a sixth off, and a quarter the other way.
_SPREAD = 0.25


def of_estimates(drawn: PowerAndEnergy, gpu: Gpu) -> PowerAndEnergy:
    """`drawn` with the doubt of estimated profiles; `gpu` draws no more than its limit."""
    end = Z95 * _SPREAD
    doubt = interval_around(1.0, -end, end)
    power_w = None if drawn.power_w is None else drawn.power_w.times(doubt)
    if power_w is not None and gpu.power_limit_w is not None:
        most_w = max(power_w.p50, gpu.power_limit_w)
        power_w = replace(power_w, p95=min(power_w.p95, most_w))
    energies = tuple(None if each is None else each.times(doubt) for each in drawn.energy_step_j)
    return PowerAndEnergy(power_w, energies)
