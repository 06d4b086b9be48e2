"""Reads this machine's GPUs from their driver through NVML.

A `device` is an index, ``0`` or ``"0"``, or a UUID, ``"GPU-..."`` or ``"MIG-..."``. NVML counts
every GPU of the machine in PCI bus order, as nvidia-smi does, whatever CUDA_VISIBLE_DEVICES
says; CUDA counts the visible ones only, and the fastest first unless
CUDA_DEVICE_ORDER=PCI_BUS_ID. A UUID means the same GPU to both: set CUDA_VISIBLE_DEVICES to
`live_gpu(device).uuid`.

Nothing is changed on the GPU. Every function raises `GpuUnavailable` if there is no driver, no
such GPU or no permission, and `AdvisorError` if the driver fails otherwise.
`advisor.hardware.counters` measures over time, `advisor.hardware.live_gpu` reads the driver's MIG
table.
"""

from dataclasses import replace
from typing import Any, Literal

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.gpu_state import BrokenGpu, ComputeMode, GpuProcess, LiveGpu
from advisor.hardware.gpus import Gpu, MigProfile, gpu_of_product
from advisor.hardware.mig import driver_branch
from advisor.hardware.mps import mps_processes
from advisor.hardware.nvml import dcgm_number, driver, handle_of, offered, offered_w
from advisor.hardware.unlisted_gpu import gpu_from_driver, mig_rows, reserved_of

_MIB = 2**20

_COMPUTE_MODES: tuple[ComputeMode, ...] = (
    "default", "exclusive-thread", "prohibited", "exclusive-process"
)  # fmt: skip


def power_w_now(device: int | str) -> float | None:
    """Power draw of the whole GPU at this moment; None if it is not metered."""
    with driver() as nvml:
        return offered_w(nvml, "nvmlDeviceGetPowerUsage", handle_of(nvml, device))


def reserved_mib(device: int | str) -> int | None:
    """Memory that the driver keeps for itself; None if it does not say."""
    with driver() as nvml:
        return reserved_of(nvml, handle_of(nvml, device))


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
            found = (memory.get(each.pid), each.usedGpuMemory and each.usedGpuMemory / _MIB)
            memory[each.pid] = max((mib for mib in found if mib is not None), default=None)
    return tuple(GpuProcess(pid, memory[pid]) for pid in sorted(memory))


def offers_gpm(nvml: Any, handle: Any) -> bool:
    """Whether the GPU has performance monitoring counters (Hopper and later)."""
    support = offered(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return bool(support and support.isSupportedDevice)


def _utilization(nvml: Any, handle: Any) -> float | None:
    rates = offered(nvml, "nvmlDeviceGetUtilizationRates", handle)
    return None if rates is None else rates.gpu / 100


def _counters(nvml: Any, handle: Any) -> Literal["gpm", "dcgm", "nvml"] | None:
    if offers_gpm(nvml, handle):
        return "gpm"
    if dcgm_number(str(nvml.nvmlDeviceGetUUID(handle))) is not None:
        return "dcgm"
    return "nvml" if offered(nvml, "nvmlDeviceGetUtilizationRates", handle) else None


def _catalogue_key(nvml: Any, handle: Any, product: str) -> str | None:
    known = gpu_of_product(product) or gpu_from_driver(nvml, handle, product)
    return known.key if known else None


def _mig_modes(nvml: Any, handle: Any) -> tuple[bool | None, bool | None]:
    """Whether MIG mode is on now, and whether it will be after the next reset."""
    modes = offered(nvml, "nvmlDeviceGetMigMode", handle)
    return (None, None) if modes is None else (bool(modes[0]), bool(modes[1]))


def _compute_mode(nvml: Any, handle: Any) -> ComputeMode | None:
    mode = offered(nvml, "nvmlDeviceGetComputeMode", handle)
    return dict(enumerate(_COMPUTE_MODES)).get(mode)


def _snapshot(nvml: Any, handle: Any) -> LiveGpu:
    product = str(nvml.nvmlDeviceGetName(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    mig_enabled, mig_pending = _mig_modes(nvml, handle)
    sm_clock_mhz, memory_clock_mhz = _clocks_mhz(nvml, handle)
    return LiveGpu(
        index=nvml.nvmlDeviceGetIndex(handle),
        uuid=str(nvml.nvmlDeviceGetUUID(handle)),
        product=product,
        catalogue_key=_catalogue_key(nvml, handle, product),
        memory_total_mib=memory.total / _MIB,
        memory_used_mib=memory.used / _MIB,
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        mig_enabled=mig_enabled,
        mig_pending=mig_pending,
        compute_mode=_compute_mode(nvml, handle),
        mps=mps_processes(),
        counters=_counters(nvml, handle),
        processes=_processes(nvml, handle),
        gpu_utilization=_utilization(nvml, handle),
        power_w=offered_w(nvml, "nvmlDeviceGetPowerUsage", handle),
        power_limit_w=offered_w(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
        sm_clock_mhz=sm_clock_mhz,
        memory_clock_mhz=memory_clock_mhz,
    )


def mig_profiles(device: int | str) -> tuple[MigProfile, ...]:
    """The MIG instances that this driver offers on `device`, whether MIG is on or off.

    Empty if the GPU has no MIG, or the driver does not report it to this user.
    """
    with driver() as nvml:
        return mig_rows(nvml, handle_of(nvml, device))


def as_offered_here(gpu: Gpu) -> tuple[Gpu, int | None]:
    """`gpu` with the MIG table of the installed driver, and that driver's branch.

    Unchanged and None if this machine has no such GPU or its driver reports no MIG.
    """
    try:
        found = [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except GpuUnavailable:
        return gpu, None
    for each in found:
        rows = mig_profiles(each.index) if each.catalogue_key == gpu.key else ()
        if rows:
            sources = gpu.sources | {"mig": f"driver {each.driver} of GPU {each.index} at hand"}
            here = replace(gpu, mig=rows, sources=sources)
            return here, driver_branch(each.driver)
    return gpu, None
