"""Reads from its driver the settings and state of a GPU that affect sharing and measuring."""

import re
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from advisor.hardware.nvml_driver import driver, handle_of, offered, offered_w

TimeSlice = Literal["default", "short", "medium", "long"]

_TIME_SLICE = re.compile(r"\b(default|short|medium|long)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """Settings and state of one GPU; None where the driver does not say.

    Attributes:
        compute_capability: Major and minor number.
        persistence: Whether the driver stays loaded while nobody uses the GPU.
        slowed_by: Why clocks are below what they could be at this moment, in NVML's words.
        power_limit_w: Power limit now.
        default_limit_w: Power limit as delivered.
        ecc: Whether memory errors are corrected, now and after the next reset.
        uncorrected_errors: Memory errors since the driver was loaded that ECC could not correct.
        remap_pending: Whether bad rows of memory wait for a reset to be replaced.
        time_slice: Its length, by ``nvidia-smi compute-policy``.
    """

    compute_capability: tuple[int, int] | None
    persistence: bool | None
    slowed_by: tuple[str, ...]
    power_limit_w: float | None
    default_limit_w: float | None
    ecc: tuple[bool, bool] | None
    uncorrected_errors: int | None
    remap_pending: bool | None
    time_slice: TimeSlice | None


# Of NVML's bits, those that slow a GPU under load; that it is idle is none.
_SLOWED = {
    0x02: "clocks that somebody set",
    0x04: "its power limit",
    0x08: "hardware slowdown",
    0x10: "clocks kept equal to other GPUs' (sync boost)",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "a power brake from outside",
}


def gpu_health(device: int | str) -> GpuHealth:
    """Settings and state of the GPU `device`; nothing is changed.

    Raises:
        GpuUnavailable: There is no driver, no such GPU or no permission.
    """
    with driver() as nvml:
        handle = handle_of(nvml, device)

        def said(function: str, *arguments: Any) -> Any:
            return offered(nvml, f"nvmlDeviceGet{function}", handle, *arguments)

        reasons = said("CurrentClocksThrottleReasons") or 0
        persistence, ecc = said("PersistenceMode"), said("EccMode")
        remapped = said("RemappedRows")
        return GpuHealth(
            compute_capability=said("CudaComputeCapability"),
            persistence=None if persistence is None else bool(persistence),
            slowed_by=tuple(words for bit, words in _SLOWED.items() if reasons & bit),
            power_limit_w=offered_w(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
            default_limit_w=offered_w(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle),
            ecc=None if ecc is None else (bool(ecc[0]), bool(ecc[1])),
            uncorrected_errors=said(
                "TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            remap_pending=None if remapped is None else bool(remapped[2]),
            time_slice=_time_slice(device),
        )


def _time_slice(device: int | str) -> TimeSlice | None:
    """NVML does not say it; nvidia-smi prints it, in a table."""
    words = ["nvidia-smi", "compute-policy", "-i", str(device), "-l"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return time_slice_in(done.stdout) if done.returncode == 0 else None


def time_slice_in(listing: str) -> TimeSlice | None:
    """The setting in what ``nvidia-smi compute-policy -l`` prints of a GPU; None if unclear."""
    found = {word.lower() for word in _TIME_SLICE.findall(listing)}
    return found.pop() if len(found) == 1 else None
