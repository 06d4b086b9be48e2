"""Reads this machine's GPUs from their driver through NVML, and changes nothing.

A `device` is an index, ``0`` or ``"0"``, or a UUID, ``"GPU-..."`` or ``"MIG-..."``. NVML counts
every GPU in PCI bus order; CUDA counts the visible ones: see `visible_device`. Every function
raises `GpuUnavailable` without a driver, such a GPU or permission, else `AdvisorError`.
"""

import os
import re
import subprocess
import sys
from ctypes import byref, c_uint
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from advisor.errors import AdvisorError
from advisor.hardware.gpus import (
    DESCRIBED,
    MAX_MPS_CLIENTS,
    OF_MIG,
    Gpu,
    MigProfile,
    capabilities,
    gpu_of_product,
    keep_gpu,
    name_parts,
)
from advisor.hardware.machine import BrokenGpu, ComputeMode, GpuProcess, LiveGpu, mps_processes
from advisor.hardware.mig import driver_branch
from advisor.hardware.nvml import dcgm_number, driver, handle_of, offered, offered_w, offers_gpm

_MIB = 2**20

_COMPUTE_MODES: tuple[ComputeMode, ...] = (
    "default",
    "exclusive-thread",
    "prohibited",
    "exclusive-process",
)


def power_w_now(device: int | str) -> float | None:
    """Return the power draw of the whole GPU at this moment; None if it is not metered."""
    with driver() as nvml:
        return offered_w(nvml, "nvmlDeviceGetPowerUsage", handle_of(nvml, device))


def reserved_mib(device: int | str) -> int | None:
    """Return the memory that the driver keeps for itself; None if it does not report that."""
    with driver() as nvml:
        return reserved_of(nvml, handle_of(nvml, device))


def clocks_mhz(device: int | str) -> tuple[int | None, int | None]:
    """Return the clocks of the SMs and of the memory at this moment, MHz."""
    with driver() as nvml:
        return _clocks_mhz(nvml, handle_of(nvml, device))


def process_memory_mib(device: int | str) -> dict[int, float]:
    """Return the device memory of each process on `device`, MPS clients included, MiB by pid.

    Leaves out processes whose memory the driver does not report. The pids are the host's: inside
    a container with pids of its own they differ from `os.getpid()`.
    """
    with driver() as nvml:
        processes = _processes(nvml, handle_of(nvml, device))
    return {each.pid: each.memory_mib for each in processes if each.memory_mib is not None}


def live_gpu(device: int | str) -> LiveGpu:
    """Return the GPU `device` as it is now."""
    with driver() as nvml:
        handle = handle_of(nvml, device)
        product = str(nvml.nvmlDeviceGetName(handle))
        listed = gpu_of_product(product) or gpu_from_driver(nvml, handle, product)
        total_bytes, used_bytes = _memory_bytes(nvml, handle)
        mig = offered(nvml, "nvmlDeviceGetMigMode", handle)  # now, and after the next reset
        mode = offered(nvml, "nvmlDeviceGetComputeMode", handle)
        utilization = offered(nvml, "nvmlDeviceGetUtilizationRates", handle)
        sm_clock_mhz, memory_clock_mhz = _clocks_mhz(nvml, handle)
        uuid = str(nvml.nvmlDeviceGetUUID(handle))
        counters: Literal["gpm", "dcgm", "nvml"] | None = "nvml" if utilization else None
        if offers_gpm(nvml, handle):
            counters = "gpm"
        elif dcgm_number(uuid) is not None:
            counters = "dcgm"
        return LiveGpu(
            index=nvml.nvmlDeviceGetIndex(handle),
            uuid=uuid,
            product=product,
            catalogue_key=None if listed is None else listed.key,
            memory_total_mib=total_bytes / _MIB,
            memory_used_mib=used_bytes / _MIB,
            driver=str(nvml.nvmlSystemGetDriverVersion()),
            mig_enabled=mig and bool(mig[0]),
            mig_pending=mig and bool(mig[1]),
            compute_mode=dict(enumerate(_COMPUTE_MODES)).get(mode),
            mps=mps_processes(),
            counters=counters,
            processes=_processes(nvml, handle),
            gpu_utilization=utilization and utilization.gpu / 100,
            power_w=offered_w(nvml, "nvmlDeviceGetPowerUsage", handle),
            power_limit_w=offered_w(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle),
            sm_clock_mhz=sm_clock_mhz,
            memory_clock_mhz=memory_clock_mhz,
        )


def live_gpus() -> tuple[LiveGpu | BrokenGpu, ...]:
    """Return every GPU of this machine as it is now, each before its MIG devices.

    One that is broken does not hide the others.
    """
    with driver() as nvml:
        count = nvml.nvmlDeviceGetCount()
    gpus: list[LiveGpu | BrokenGpu] = []
    for index in range(count):
        try:
            gpus.append(live := live_gpu(index))
            if live.mig_enabled:
                gpus += map(live_gpu, mig_devices(index))
        except AdvisorError as error:
            gpus.append(BrokenGpu(index, str(error)))
    return tuple(gpus)


def gpus_here() -> list[LiveGpu]:
    """Return the GPUs of this machine that answer; empty without a driver."""
    try:
        return [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except AdvisorError:
        return []


def first_gpu() -> str | None:
    """Return the key of this machine's first GPU that is supported; None without one."""
    return next(filter(None, (each.catalogue_key for each in gpus_here())), None)


def visible_device(uuid: str) -> dict[str, str]:
    """Return the variables with which a process sees only the GPU `uuid`, by index if possible.

    Programs call int() on CUDA_VISIBLE_DEVICES. CUDA leaves GPUs in MIG mode out where it counts,
    and broken ones, so with such a GPU here its index may be another's: then the UUID.
    """
    by_uuid = {"CUDA_VISIBLE_DEVICES": uuid}
    try:
        with driver() as nvml:
            handles = [handle_of(nvml, at) for at in range(nvml.nvmlDeviceGetCount())]
            modes = [offered(nvml, "nvmlDeviceGetMigMode", each) for each in handles]
            uuids = [str(nvml.nvmlDeviceGetUUID(each)) for each in handles]
    except AdvisorError:
        return by_uuid
    if uuid not in uuids or any(mode and mode[0] for mode in modes):
        return by_uuid
    return {"CUDA_VISIBLE_DEVICES": str(uuids.index(uuid)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _memory_bytes(nvml: Any, handle: Any) -> tuple[int, int]:
    """Memory in all and in use: the host's, if the GPU has none of its own, e.g. a GB10."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        from psutil import virtual_memory

        host = virtual_memory()
        return host.total, host.total - host.available
    return memory.total, memory.used


def mig_devices(device: int | str) -> dict[str, str]:
    """Return the profile of each MIG device on a GPU that this process may use, by UUID."""
    profiles = {}
    with driver() as nvml:
        handle = handle_of(nvml, device)
        for at in range(offered(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            mig = offered(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, at)
            if mig is not None:
                name = str(nvml.nvmlDeviceGetName(mig))
                profiles[str(nvml.nvmlDeviceGetUUID(mig))] = name.partition(OF_MIG)[2]
    return profiles


def instances_of(key: str) -> tuple[int, tuple[str, ...]] | None:
    """Return the index of this machine's first GPU of that kind, and its MIG devices' profiles.

    None if there is none of that kind, or one that is not in MIG mode.
    """
    live = gpus_here()
    those = [each for each in live if each.catalogue_key == key]
    if not those or not all(each.mig_enabled for each in those):
        return None
    after = live[live.index(those[0]) + 1 :]
    own = takewhile(lambda each: OF_MIG in each.product, after)
    return those[0].index, tuple(each.product.partition(OF_MIG)[2] for each in own)


def _clocks_mhz(nvml: Any, handle: Any) -> tuple[int | None, int | None]:
    sm = offered(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM)
    return sm, offered(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM)


def _processes(nvml: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Each process once: drivers list an MPS client in either list, or in both."""
    memory: dict[int, float | None] = {}
    for kind in ("Compute", "MPSCompute"):
        for process in offered(nvml, f"nvmlDeviceGet{kind}RunningProcesses_v3", handle) or ():
            size = process.usedGpuMemory
            sizes = (memory.get(process.pid), size and size / _MIB)
            memory[process.pid] = max((mib for mib in sizes if mib is not None), default=None)
    return tuple(GpuProcess(pid, memory[pid]) for pid in sorted(memory))


def as_offered_here(gpu: Gpu) -> tuple[Gpu, int | None]:
    """Return `gpu` with the MIG table of the installed driver, and the driver's branch, if any."""
    for present in gpus_here() if gpu.mig else ():
        if present.catalogue_key == gpu.key:
            with driver() as nvml:
                rows = mig_rows(nvml, handle_of(nvml, present.index))
            if rows:
                source = f"driver {present.driver} of GPU {present.index} of this machine"
                here = replace(gpu, mig=rows, sources=gpu.sources | {"mig": source})
                return here, driver_branch(present.driver)
    return gpu, None


_MOST_PLACES = 32  # no GPU has as many memory slices


def mig_rows(nvml: Any, handle: Any) -> tuple[MigProfile, ...]:
    """Return the MIG instances that the driver offers, with MIG on or off, the smallest first.

    Empty if the GPU has no MIG, or the driver does not report it to this user.
    """
    rows = []
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = offered(nvml, "nvmlDeviceGetGpuInstanceProfileInfo", handle, number)
        if info is None:
            continue
        places = (nvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACES)()
        count = c_uint(_MOST_PLACES)
        arguments = (handle, info.id, places, byref(count))
        if offered(nvml, "nvmlDeviceGetGpuInstancePossiblePlacements", *arguments) is not None:
            rows.append(
                MigProfile(
                    name=info.name.removeprefix("MIG "),
                    profile_id=info.id,
                    compute_slices=info.sliceCount,
                    memory_slices=places[0].size,
                    memory_mib=info.memorySizeMB,  # the driver counts in MiB and calls them MB
                    sms=info.multiprocessorCount,
                    max_instances=info.instanceCount,
                    starts=tuple(sorted(place.start for place in places[: count.value])),
                )
            )
    return tuple(sorted(rows, key=lambda row: (row.compute_slices, row.memory_slices, row.name)))


# CUDA says the size of the L2, and NVML does not. In a process of its own, since a process that
# has begun to use CUDA cannot fork workers that do. 38: CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE.
_ASK_L2 = """
from ctypes import CDLL, byref, c_int
cuda, device, size = CDLL("libcuda.so.1"), c_int(), c_int()
assert not cuda.cuInit(0) and not cuda.cuDeviceGet(byref(device), 0)
assert not cuda.cuDeviceGetAttribute(byref(size), 38, device)
print(size.value)
"""
_L2_TIMEOUT_S = 30.0


def gpu_from_driver(nvml: Any, handle: Any, product: str) -> Gpu | None:
    """Return the GPU `handle` as its driver reports it, kept in the user's data folder.

    None if it is older than Volta, or the driver does not say what predictions need. A MIG device
    is described as a GPU of its own, on which jobs share as on any other.
    """
    if OF_MIG in product:
        return _mig_device_from_driver(nvml, handle, product)
    version = offered(nvml, "nvmlDeviceGetCudaComputeCapability", handle) or ()
    capability = capabilities().get(".".join(map(str, version)))
    cores = offered(nvml, "nvmlDeviceGetNumGpuCores", handle)
    if not cores or capability is None:
        return None
    memory_mib = _memory_bytes(nvml, handle)[0] // _MIB
    limits_mw = offered(nvml, "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    rows = mig_rows(nvml, handle)
    bus = offered(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    clock_mhz = offered(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
    source = f"driver {nvml.nvmlSystemGetDriverVersion()} of the GPU of this machine"
    described = Gpu(
        key=key_of(product, memory_mib),
        products=(product,),
        architecture=capability.architecture,
        compute_capability=".".join(map(str, version)),
        sms=cores // capability.lanes,
        memory_mib=memory_mib,
        reserved_mib=reserved_of(nvml, handle),
        # Two transfers a clock on each line of the bus.
        bandwidth_gb_s=2e6 * clock_mhz * bus / 8 / 1e9 if bus and clock_mhz else None,
        l2_mib=_l2_mib(str(nvml.nvmlDeviceGetUUID(handle))),
        power_limit_w=offered_w(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle),
        power_limit_min_w=None if limits_mw is None else limits_mw[0] / 1000,
        threads_per_sm=capability.threads,
        max_mps_clients=MAX_MPS_CLIENTS,
        memory_slices=max((row.memory_slices for row in rows), default=0),
        mig=rows,
        sources={DESCRIBED: source, "max_mps_clients": "CUDA MPS documentation"},
    )
    keep_gpu(described)
    return described


def _mig_device_from_driver(nvml: Any, handle: Any, product: str) -> Gpu | None:
    """A MIG device as a GPU: its SMs and memory, and its memory slices' share of the rest."""
    parent_product, _, profile = product.partition(OF_MIG)
    parent = gpu_of_product(parent_product)
    if parent is None:
        of_parent = offered(nvml, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        parent = of_parent and gpu_from_driver(nvml, of_parent, parent_product)
    row = next((each for each in parent.mig if each.name == profile), None) if parent else None
    own = offered(nvml, "nvmlDeviceGetAttributes_v2", handle)
    sms = own.multiprocessorCount if own else row and row.sms
    if parent is None or not sms or not parent.memory_slices:
        return None
    memory_mib = _memory_bytes(nvml, handle)[0] // _MIB
    slices = max(1, round(memory_mib / parent.memory_mib * parent.memory_slices))
    share = (row.memory_slices if row else slices) / parent.memory_slices
    compute = own.computeInstanceSliceCount if own else row.compute_slices if row else 1
    whole = max((each.compute_slices for each in parent.mig), default=compute)
    source = f"driver {nvml.nvmlSystemGetDriverVersion()}: {profile} of {parent.key}"
    described = replace(
        parent,
        key=f"{parent.key}-{profile}",
        products=(product,),
        sms=sms,
        memory_mib=memory_mib,
        reserved_mib=0,
        bandwidth_gb_s=parent.bandwidth_gb_s and parent.bandwidth_gb_s * share,
        l2_mib=parent.l2_mib and parent.l2_mib * share,
        power_limit_w=None,  # it has none of its own
        power_limit_min_w=None,
        # In proportion to its compute slices (MIG User Guide, MIG with CUDA MPS).
        max_mps_clients=parent.max_mps_clients * compute // whole,
        memory_slices=0,
        mig=(),
        rates=None,
        sources={DESCRIBED: source, "max_mps_clients": "CUDA MPS documentation"},
    )
    keep_gpu(described)
    return described


def key_of(product: str, memory_mib: float) -> str:
    """Return the key of a GPU of that name, e.g. ``"rtx-3090-24gb"``."""
    parts = [part for part in name_parts(product) if not re.fullmatch(r"\d+gb", part)]
    return "-".join([*parts, f"{round(memory_mib / 1024)}gb"])


def reserved_of(nvml: Any, handle: Any) -> int | None:
    """Return the memory that the driver keeps for itself; None if it does not report that."""
    memory = offered(nvml, "nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
    return None if memory is None else int(memory.reserved // _MIB)


def _l2_mib(uuid: str) -> float | None:
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK_L2],
            capture_output=True,
            check=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": uuid},
            timeout=_L2_TIMEOUT_S,
        )
        return int(answer.stdout) / _MIB
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


TimeSlice = Literal["default", "short", "medium", "long"]

_TIME_SLICE = re.compile(r"\b(default|short|medium|long)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """Settings and state of one GPU; None where the driver does not say.

    Attributes:
        persistence: Whether the driver stays loaded while the GPU is unused.
        slowed_by: Why clocks are lower than they could be now.
        default_limit_w: Power limit as delivered.
        ecc: Whether memory errors are corrected, now and after the next reset.
        uncorrected_errors: Since the driver was loaded.
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
    0x02: "clocks set by a user",
    0x04: "its power limit",
    0x08: "hardware slowdown",
    0x10: "clocks kept equal to those of other GPUs (sync boost)",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "an external power brake",
}


def gpu_health(device: int | str) -> GpuHealth:
    """Return settings and state of the GPU `device`; errors as of `advisor.hardware.live_gpu`."""
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
    """Return the setting that ``nvidia-smi compute-policy -l`` prints; None if unclear."""
    words = {word.lower() for word in _TIME_SLICE.findall(listing)}
    return words.pop() if len(words) == 1 else None
