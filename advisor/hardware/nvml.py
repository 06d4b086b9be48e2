"""NVML with its errors raised as ours, and the health of a GPU. The only importer of pynvml."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from dataclasses import dataclass
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable

# What an NVML error means for the user, and what to do next; any other is an AdvisorError.
_UNAVAILABLE = {
    "LIBRARY_NOT_FOUND": "no NVIDIA driver is installed here. Go to a machine with a GPU",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded. Load it, or go to a machine with a GPU",
    "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated while in use. Reboot the machine",
    "NO_PERMISSION": "the NVIDIA driver answers nothing to this user. Ask the administrator",
    "OPERATING_SYSTEM": "the system blocks the NVIDIA driver. Open the GPU to this container",
    "NOT_FOUND": "no such GPU. `advisor gpus` lists those of this machine",
    "GPU_NOT_FOUND": "no such GPU. `advisor gpus` lists those of this machine",
    "GPU_IS_LOST": "the GPU has fallen off its bus. Reboot the machine",
    "RESET_REQUIRED": "the GPU must be reset first. Ask the administrator",
}

# Errors that mean "not with this GPU, this driver or this user", which is not a failure.
_NOT_OFFERED = (
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "NO_DATA",
    "ARGUMENT_VERSION_MISMATCH",
    "DEPRECATED",
)


@contextmanager
def driver() -> Iterator[Any]:
    """NVML, initialised; its errors are raised as ours.

    NVML is stopped when the process ends and is never shut down here, so that handles stay valid.
    """
    if "pynvml" not in sys.modules:  # its import takes long, and needs the driver's library
        try:
            CDLL("libnvidia-ml.so.1")
        except OSError:
            raise GpuUnavailable(f"{_UNAVAILABLE['LIBRARY_NOT_FOUND']}.") from None
    remedy = "Run: pip uninstall -y pynvml; pip install 'nvidia-ml-py>=13'"
    try:
        import pynvml as nvml
    except ImportError:
        raise GpuUnavailable(f"the package nvidia-ml-py is not installed. {remedy}") from None
    if not hasattr(nvml, "nvmlGpmMetricsGet"):
        # An abandoned package of another author has the same import name.
        raise GpuUnavailable(f"the module pynvml is not the one of nvidia-ml-py. {remedy}")
    try:
        nvml.nvmlInit()
        yield nvml
    except nvml.NVMLError as error:
        for name, meaning in _UNAVAILABLE.items():
            if _is(nvml, error, name):
                raise GpuUnavailable(f"{meaning}.") from error
        raise AdvisorError(
            f"the NVIDIA driver answered {str(error)!r}. See `nvidia-smi` and dmesg."
        ) from error


def _is(nvml: Any, error: Any, *names: str) -> bool:
    return any(error.value == getattr(nvml, f"NVML_ERROR_{name}") for name in names)


def offered(nvml: Any, function: str, *arguments: Any) -> Any:
    """The result of NVML's `function`; None if this GPU, driver or user gets no answer."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        if not _is(nvml, error, *_NOT_OFFERED):
            raise
        return None


def offered_w(nvml: Any, function: str, *arguments: Any) -> float | None:
    """Return `offered` of a power in watts; NVML gives milliwatts."""
    milliwatts = offered(nvml, function, *arguments)
    return None if milliwatts is None else float(milliwatts / 1000)


def handle_of(nvml: Any, device: int | str) -> Any:
    """NVML's handle of `device`; raises GpuUnavailable if there is no such device."""
    try:
        if isinstance(device, int) or device.isdigit():
            return nvml.nvmlDeviceGetHandleByIndex(int(device))
        return nvml.nvmlDeviceGetHandleByUUID(device)
    except nvml.NVMLError as error:
        if not _is(nvml, error, "INVALID_ARGUMENT", "NOT_FOUND"):
            raise
        count = nvml.nvmlDeviceGetCount()
        raise GpuUnavailable(
            f"no GPU {device} here, where the driver counts {count}. `advisor gpus` lists them."
        ) from None


TimeSlice = Literal["default", "short", "medium", "long"]

_TIME_SLICE = re.compile(r"\b(default|short|medium|long)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """Settings and state of one GPU; None where the driver does not say.

    Attributes:
        persistence: Whether the driver stays loaded while the GPU is unused.
        slowed_by: Why clocks are below what they could be at this moment, in NVML's words.
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
    0x02: "clocks that a user set",
    0x04: "its power limit",
    0x08: "hardware slowdown",
    0x10: "clocks kept equal to other GPUs' (sync boost)",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "a power brake from outside",
}


def gpu_health(device: int | str) -> GpuHealth:
    """Settings and state of the GPU `device`; errors as of `advisor.hardware.live_gpu`."""
    with driver() as nvml:
        handle = handle_of(nvml, device)

        def answer(function: str, *arguments: Any) -> Any:
            return offered(nvml, f"nvmlDeviceGet{function}", handle, *arguments)

        reasons = answer("CurrentClocksThrottleReasons") or 0
        persistence, ecc = answer("PersistenceMode"), answer("EccMode")
        remapped = answer("RemappedRows")
        return GpuHealth(
            compute_capability=answer("CudaComputeCapability"),
            persistence=None if persistence is None else bool(persistence),
            slowed_by=tuple(words for bit, words in _SLOWED.items() if reasons & bit),
            power_limit_w=offered_w(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
            default_limit_w=offered_w(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle),
            ecc=None if ecc is None else (bool(ecc[0]), bool(ecc[1])),
            uncorrected_errors=answer(
                "TotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            remap_pending=None if remapped is None else bool(remapped[2]),
            time_slice=_time_slice(device),
        )


def _time_slice(device: int | str) -> TimeSlice | None:
    """The time slice that nvidia-smi prints; NVML does not report it."""
    words = ["nvidia-smi", "compute-policy", "-i", str(device), "-l"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return time_slice_in(done.stdout) if done.returncode == 0 else None


def time_slice_in(listing: str) -> TimeSlice | None:
    """The setting in what ``nvidia-smi compute-policy -l`` prints of a GPU; None if unclear."""
    words = {word.lower() for word in _TIME_SLICE.findall(listing)}
    return words.pop() if len(words) == 1 else None
