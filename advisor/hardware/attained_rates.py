"""The rates that a GPU attains: as a calibration measured them, or as its maker's let expect."""

from dataclasses import replace

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_rates import GpuRates
from advisor.workload.gpu_side import GpuSide
from advisor.workload.machine_calibration import Calibration

# The share of its maker's rate that a GPU attains. Best product and addition of an A100 PCIe (0.93
# and 0.85) and a V100 PCIe (0.95 and 0.91) among the timings in FP32 of NeuSight's artifact
# (ASPLOS'25, sitar-lab/NeuSight); tensor cores were not timed and are taken to attain as much. Two
# GPUs of which neither was measured compare as their makers say; these shares matter beside one
# that was.
_OF_ARITHMETIC, _OF_BANDWIDTH = 0.94, 0.88

_NEEDED = {"fp32_tflops", "fp16_tflops", "bandwidth_gb_s"}


def rates_of(gpu: Gpu, calibration: Calibration | None = None) -> GpuRates | None:
    """The rates of `gpu`; None if neither the catalogue nor the calibration has them.

    Args:
        gpu: Of the catalogue or at hand.
        calibration: One of another GPU, or one without a GPU side, says nothing here.
    """
    stated = None if gpu.rates is None else _attained(gpu.rates)
    side = calibration.gpu_side if calibration and calibration.gpu == gpu.key else None
    return stated if side is None else _measured(side, stated)


def _attained(rates: GpuRates) -> GpuRates:
    tf32_tflops = rates.tf32_tflops
    return replace(
        rates,
        fp32_tflops=_OF_ARITHMETIC * rates.fp32_tflops,
        tf32_tflops=None if tf32_tflops is None else _OF_ARITHMETIC * tf32_tflops,
        fp16_tflops=_OF_ARITHMETIC * rates.fp16_tflops,
        bandwidth_gb_s=_OF_BANDWIDTH * rates.bandwidth_gb_s,
    )


def _measured(side: GpuSide, stated: GpuRates | None) -> GpuRates | None:
    """What `side` measured; where it measured nothing, as `stated`."""
    found = {
        "fp32_tflops": side.tflops("fp32"),
        "tf32_tflops": side.tflops("tf32"),
        "fp16_tflops": side.tflops("fp16"),
        "bandwidth_gb_s": side.bandwidth_gb_s,
        "launch_us": side.empty_kernel_us,
    }
    known = {name: rate for name, rate in found.items() if rate is not None}
    if stated is not None:
        if stated.tf32_tflops is None:  # then it computed in FP32 what was asked for in TF32
            known.pop("tf32_tflops", None)
        return replace(stated, **known)
    if side.sm_clock_mhz is None or not known.keys() >= _NEEDED:
        return None
    return GpuRates(
        clock_mhz=side.sm_clock_mhz, tf32_tflops=known.pop("tf32_tflops", None), **known
    )
