"""Reads this machine's GPUs from their driver through NVML. The only importer of pynvml.

A `device` is an index, ``0`` or ``"0"``, or a UUID, ``"GPU-..."`` or ``"MIG-..."``. NVML counts
every GPU of the machine in PCI bus order, as nvidia-smi does, whatever CUDA_VISIBLE_DEVICES
says; CUDA counts the visible ones only, and the fastest first unless
CUDA_DEVICE_ORDER=PCI_BUS_ID. A UUID means the same GPU to both: set CUDA_VISIBLE_DEVICES to
`live_gpu(device).uuid`.

Nothing is changed on the GPU. Every function raises `GpuUnavailable` if there is no driver, no
such GPU or no permission, and `AdvisorError` if the driver fails otherwise.
`advisor.hardware.counters` measures over time, `advisor.hardware.mig_offer` reads the driver's MIG
table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.catalogue import gpu_of_product
from advisor.hardware.gpu_state import BrokenGpu, ComputeMode, GpuProcess, LiveGpu
from advisor.hardware.mps_processes import mps_processes

_MIB = 2**20

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

_COMPUTE_MODES: tuple[ComputeMode, ...] = (
    "default", "exclusive-thread", "prohibited", "exclusive-process"
)  # fmt: skip


def _loaded() -> Any:
    remedy = "Run: pip uninstall -y pynvml; pip install 'nvidia-ml-py>=13'"
    try:
        import pynvml
    except ImportError:
        raise GpuUnavailable(f"the package nvidia-ml-py is not installed. {remedy}") from None
    if not hasattr(pynvml, "nvmlGpmMetricsGet"):
        # An abandoned package of another author has the same import name.
        raise GpuUnavailable(f"the module pynvml is not the one of nvidia-ml-py. {remedy}")
    return pynvml


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


def power_w_now(device: int | str) -> float | None:
    """Power draw of the whole GPU at this moment; None if it is not metered."""
    with driver() as nvml:
        return _scaled(offered(nvml, "nvmlDeviceGetPowerUsage", handle_of(nvml, device)), 1000)


def clocks_mhz(device: int | str) -> tuple[int | None, int | None]:
    """The clocks of the SMs and of the memory at this moment, MHz."""
    with driver() as nvml:
        return _clocks_mhz(nvml, handle_of(nvml, device))


def process_memory_mib(device: int | str) -> dict[int, float]:
    """Device memory of each process on `device`, MPS clients included, MiB by pid.

    Leaves out processes whose memory the driver does not report. The pids are the host's: inside
    a container with pids of its own they differ from `os.getpid()`.
    """
    with driver() as nvml:
        found = _processes(nvml, handle_of(nvml, device))
    return {each.pid: each.memory_mib for each in found if each.memory_mib is not None}


def live_gpu(device: int | str) -> LiveGpu:
    """The GPU `device` as it is now."""
    with driver() as nvml:
        return _snapshot(nvml, handle_of(nvml, device))


def live_gpus() -> tuple[LiveGpu | BrokenGpu, ...]:
    """Every GPU of this machine as it is now; one that is broken does not hide the others."""
    with driver() as nvml:
        count = nvml.nvmlDeviceGetCount()
    return tuple(_live_or_broken(index) for index in range(count))


def _live_or_broken(index: int) -> LiveGpu | BrokenGpu:
    try:
        return live_gpu(index)
    except AdvisorError as error:
        return BrokenGpu(index, str(error))


def _scaled(value: float | None, divisor: int) -> float | None:
    return None if value is None else value / divisor


def _clocks_mhz(nvml: Any, handle: Any) -> tuple[int | None, int | None]:
    sm, memory = (
        offered(nvml, "nvmlDeviceGetClockInfo", handle, domain)
        for domain in (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
    )
    return sm, memory


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Each process once: drivers list an MPS client in either list, or in both."""
    memory: dict[int, float | None] = {}
    for kind in ("Compute", "MPSCompute"):
        for each in offered(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3", handle) or ():
            known, said = memory.get(each.pid), _scaled(each.usedGpuMemory, _MIB)
            memory[each.pid] = max((m for m in (known, said) if m is not None), default=None)
    return tuple(GpuProcess(pid, memory[pid]) for pid in sorted(memory))


def offers_gpm(nvml: Any, handle: Any) -> bool:
    """Whether the GPU has performance monitoring counters (Hopper and later)."""
    support = offered(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return bool(support and support.isSupportedDevice)


def _counters(nvml: Any, handle: Any) -> Literal["gpm", "nvml"] | None:
    if offers_gpm(nvml, handle):
        return "gpm"
    return "nvml" if offered(nvml, "nvmlDeviceGetUtilizationRates", handle) else None


def _snapshot(nvml: Any, handle: Any) -> LiveGpu:
    product = str(nvml.nvmlDeviceGetName(handle))
    known = gpu_of_product(product)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    mig = offered(nvml, "nvmlDeviceGetMigMode", handle) or (None, None)
    mode = offered(nvml, "nvmlDeviceGetComputeMode", handle)
    sm_clock_mhz, memory_clock_mhz = _clocks_mhz(nvml, handle)
    return LiveGpu(
        index=nvml.nvmlDeviceGetIndex(handle),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        product=product,
        catalogue_key=known.key if known else None,
        memory_total_mib=memory.total / _MIB,
        memory_used_mib=memory.used / _MIB,
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        mig_enabled=None if mig[0] is None else bool(mig[0]),
        mig_pending=None if mig[1] is None else bool(mig[1]),
        compute_mode=None if mode is None else _COMPUTE_MODES[mode],
        mps=mps_processes(),
        counters=_counters(nvml, handle),
        processes=_processes(nvml, handle),
        power_w=_scaled(offered(nvml, "nvmlDeviceGetPowerUsage", handle), 1000),
        power_limit_w=_scaled(offered(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle), 1000),
        sm_clock_mhz=sm_clock_mhz,
        memory_clock_mhz=memory_clock_mhz,
    )
