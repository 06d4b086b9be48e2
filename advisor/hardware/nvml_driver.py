"""NVML with its errors raised as ours. The only importer of pynvml."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from typing import Any

from advisor.errors import AdvisorError, GpuUnavailable

# What an NVML error means for the user, and what to do next; any other is an AdvisorError.
_UNAVAILABLE = {
    "LIBRARY_NOT_FOUND": "no NVIDIA driver is installed here. Go to a machine with a GPU",
    "DRIVER_NOT_LOADED": "the NVIDIA driver is not loaded. Load it, or go to a machine with a GPU",
    "LIB_RM_VERSION_MISMATCH": "the NVIDIA driver was updated while in use. Reboot the machine",
    "NO_PERMISSION": "the NVIDIA driver answers nothing to this user. Ask the administrator",
    "OPERATING_SYSTEM": "the system blocks the NVIDIA driver. Open the GPU to this container",
    "NOT_FOUND": "no such GPU. `advisor gpus` lists those at hand",
    "GPU_NOT_FOUND": "no such GPU. `advisor gpus` lists those at hand",
    "GPU_IS_LOST": "the GPU has fallen off its bus. Reboot the machine",
    "RESET_REQUIRED": "the GPU must be reset first. Ask the administrator",
}

# Errors that mean "not with this GPU, this driver or this user", which is not a failure.
_NOT_OFFERED = (
    "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "NOT_FOUND", "FUNCTION_NOT_FOUND",
    "NO_DATA", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED",
)  # fmt: skip


def _loaded() -> Any:
    if "pynvml" not in sys.modules and not _has_library():  # most of its import is for nothing then
        raise GpuUnavailable(f"{_UNAVAILABLE['LIBRARY_NOT_FOUND']}.")
    remedy = "Run: pip uninstall -y pynvml; pip install 'nvidia-ml-py>=13'"
    try:
        import pynvml
    except ImportError:
        raise GpuUnavailable(f"the package nvidia-ml-py is not installed. {remedy}") from None
    if not hasattr(pynvml, "nvmlGpmMetricsGet"):
        # An abandoned package of another author has the same import name.
        raise GpuUnavailable(f"the module pynvml is not the one of nvidia-ml-py. {remedy}")
    return pynvml


def _has_library() -> bool:
    """Whether the driver's library, which pynvml loads by this name, is there."""
    try:
        CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _codes(nvml: Any, names: tuple[str, ...]) -> set[int]:
    return {getattr(nvml, f"NVML_ERROR_{name}") for name in names}


def _translated(nvml: Any, error: Any) -> AdvisorError:
    for name, meaning in _UNAVAILABLE.items():
        if error.value in _codes(nvml, (name,)):
            return GpuUnavailable(f"{meaning}.")
    return AdvisorError(f"the NVIDIA driver answered {str(error)!r}. See `nvidia-smi` and dmesg.")


@contextmanager
def driver() -> Iterator[Any]:
    """NVML, initialised; its errors are raised as ours.

    NVML is stopped when the process ends and is never shut down here, so that handles stay valid.
    """
    nvml = _loaded()
    try:
        nvml.nvmlInit()
        yield nvml
    except nvml.NVMLError as error:
        raise _translated(nvml, error) from error


def offered(nvml: Any, function: str, *arguments: Any) -> Any:
    """The result of NVML's `function`; None if this GPU, driver or user gets no answer."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError as error:
        if error.value not in _codes(nvml, _NOT_OFFERED):
            raise
        return None


def offered_w(nvml: Any, function: str, *arguments: Any) -> float | None:
    """As `offered`, of a power, which NVML gives in milliwatts: watts."""
    milliwatts = offered(nvml, function, *arguments)
    return None if milliwatts is None else float(milliwatts / 1000)


def handle_of(nvml: Any, device: int | str) -> Any:
    """NVML's handle of `device`.

    Raises:
        GpuUnavailable: There is no such device.
    """
    by_index = isinstance(device, int) or device.isdigit()
    try:
        if by_index:
            return nvml.nvmlDeviceGetHandleByIndex(int(device))
        return nvml.nvmlDeviceGetHandleByUUID(device)
    except nvml.NVMLError as error:
        if error.value not in _codes(nvml, ("INVALID_ARGUMENT", "NOT_FOUND")):
            raise
        count = nvml.nvmlDeviceGetCount()
        raise GpuUnavailable(
            f"no GPU {device} here, where the driver counts {count}. `advisor gpus` lists them."
        ) from None
