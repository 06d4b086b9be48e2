"""A driver for tests: NVML's C functions with state behind them, under the real pynvml.

Only the shared library is replaced, so what is tested goes through nvidia-ml-py's own code and
structures. It returns NVML's codes where NVML documents them.
"""

from collections.abc import Callable
from ctypes import c_void_p, cast
from dataclasses import dataclass, field
from typing import Any

import pynvml

MIB = 2**20
ENTRY_S = 1 / 6  # the driver logs utilisation in steps of 1/6 s to 1 s (nvml.h)


@dataclass
class FakeGpu:
    """One GPU; `refuses` maps a function's name to the code it returns for this GPU."""

    product: str = "NVIDIA H200"
    uuid: str = "GPU-0"
    mig: tuple[int, int] | None = (0, 0)
    gpm: bool = True
    processes: dict[int, int | None] = field(default_factory=dict)  # pid -> bytes
    mps_clients: dict[int, int | None] = field(default_factory=dict)
    profiles: dict[int, dict[str, Any]] = field(default_factory=dict)
    refuses: dict[str, int] = field(default_factory=dict)
    energy_mj: float = 1e9
    integrals: dict[int, float] = field(default_factory=dict)  # GPM metric -> value x seconds
    log: list[tuple[int, int]] = field(default_factory=list)  # (unix us, per cent)
    capability: tuple[int, int] = (9, 0)
    cores: int | None = 16896  # CUDA cores; None: the driver does not say
    memory_mib: int = 143771
    compute_mode: int = 3
    persistence: int = 1
    slowed: int = 0  # bits of NVML's clock event reasons
    ecc: tuple[int, int] = (1, 1)
    uncorrected: int = 0
    remap_pending: int = 0
    default_limit_mw: int = 350_000
    instances: tuple["FakeGpu", ...] = ()  # MIG devices that this process may use
    slices: int = 7  # of a MIG device


def mig_device(
    profile: str, uuid: str, sms: int, memory_mib: int, product="NVIDIA H200"
) -> FakeGpu:
    """A MIG device, of which the driver meters nothing but memory."""
    names = ("MigMode", "PowerUsage", "EnforcedPowerLimit", "UtilizationRates", "NumGpuCores")
    return FakeGpu(
        f"{product} MIG {profile}",
        uuid,
        mig=None,
        cores=128 * sms,
        memory_mib=memory_mib,
        slices=int(profile[0]),
        gpm=False,
        refuses={f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NOT_SUPPORTED for name in names},
    )


def pointed(handle) -> int:
    return cast(handle, c_void_p).value


def point(reference, number: int) -> None:
    c_void_p.from_buffer(reference._obj).value = number


def fill(reference, **values: Any) -> int:
    for name, value in values.items():
        setattr(reference._obj, name, value)
    return pynvml.NVML_SUCCESS


class FakeLibrary:
    """libnvidia-ml.so.1 on a machine with `gpus`; `refuses` maps a function to its code."""

    def __init__(self, *gpus: FakeGpu, refuses: dict[str, int] | None = None) -> None:
        self.gpus, self.refuses, self.started = gpus, refuses or {}, False
        self.now_s = 1000.0
        self.samples: dict[int, dict[str, Any]] = {}
        self.allocated = 0

    @property
    def devices(self) -> list[FakeGpu]:
        """GPUs, then all MIG devices; a handle is a number in this list, from 1."""
        return [*self.gpus, *(each for gpu in self.gpus for each in gpu.instances)]

    def work(self, seconds: float, power_w: float, metrics: dict[int, float]) -> None:
        """Let time pass in which every GPU draws `power_w` and shows `metrics`."""
        for gpu in self.gpus:
            gpu.energy_mj += seconds * power_w * 1000
            for metric, value in metrics.items():
                gpu.integrals[metric] = gpu.integrals.get(metric, 0.0) + value * seconds
            busy = round(metrics.get(pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 0))
            for entry in range(1, int(seconds / ENTRY_S) + 1):
                gpu.log.append((int((self.now_s + entry * ENTRY_S) * 1e6), busy))
        self.now_s += seconds

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in FUNCTIONS:
            raise AttributeError(name)  # as ctypes does where a library lacks a function

        def call(*arguments: Any) -> int:
            if name in self.refuses:
                return self.refuses[name]
            if not self.started and name != "nvmlInitWithFlags":
                return pynvml.NVML_ERROR_UNINITIALIZED
            if name in WHOLE_MACHINE:
                return FUNCTIONS[name](self, *arguments)
            gpu = self.devices[pointed(arguments[0]) - 1]
            return gpu.refuses.get(name) or FUNCTIONS[name](self, gpu, *arguments[1:])

        return call


def init(library, _flags):
    library.started = True
    return pynvml.NVML_SUCCESS


def by_index(library, index, reference):
    if index.value >= len(library.gpus):
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    code = library.gpus[index.value].refuses.get("nvmlDeviceGetHandleByIndex_v2")
    point(reference, index.value + 1)
    return code or pynvml.NVML_SUCCESS


def by_uuid(library, uuid, reference):
    for number, gpu in enumerate(library.devices, start=1):
        if gpu.uuid.encode() == uuid.value:
            point(reference, number)
            return pynvml.NVML_SUCCESS
    return pynvml.NVML_ERROR_NOT_FOUND


def text(buffer, value: str) -> int:
    buffer.value = value.encode()
    return pynvml.NVML_SUCCESS


def process_list(processes, count, array) -> int:
    if not processes:
        return pynvml.NVML_SUCCESS
    if array is None:
        count._obj.value = len(processes)
        return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    unknown = pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value
    for slot, (pid, held) in zip(array, processes.items(), strict=False):
        slot.pid, slot.usedGpuMemory = pid, unknown if held is None else held
    count._obj.value = len(processes)
    return pynvml.NVML_SUCCESS


def mig_mode(_library, gpu, current, pending):
    if gpu.mig is None:
        return pynvml.NVML_ERROR_NOT_SUPPORTED
    current._obj.value, pending._obj.value = gpu.mig
    return pynvml.NVML_SUCCESS


def ecc_mode(_library, gpu, current, pending):
    fill(current, value=gpu.ecc[0])
    return fill(pending, value=gpu.ecc[1])


def remapped_rows(_library, gpu, *four):
    return fill(four[2], value=gpu.remap_pending)


def profile_info(_library, gpu, enumerator, reference):
    if enumerator not in gpu.profiles:
        return pynvml.NVML_ERROR_INVALID_ARGUMENT
    offer = gpu.profiles[enumerator]
    return fill(reference, **{name: offer[name] for name in offer if name != "places"})


def placements(_library, gpu, profile_id, array, count):
    offer = next(each for each in gpu.profiles.values() if each["id"] == profile_id)
    for slot, (start, size) in zip(array, offer["places"], strict=False):
        slot.start, slot.size = start, size
    count._obj.value = len(offer["places"])
    return pynvml.NVML_SUCCESS


def gpm_alloc(library, reference):
    library.allocated += 1
    library.samples[library.allocated] = {}
    point(reference, library.allocated)
    return pynvml.NVML_SUCCESS


def gpm_free(library, sample):
    del library.samples[pointed(sample)]
    return pynvml.NVML_SUCCESS


def gpm_get(library, handle, sample):
    gpu = library.gpus[pointed(handle) - 1]
    if refused := gpu.refuses.get("nvmlGpmSampleGet"):
        return refused
    library.samples[pointed(sample)] = {"s": library.now_s, "integrals": dict(gpu.integrals)}
    return pynvml.NVML_SUCCESS


def gpm_metrics(library, reference):
    request = reference._obj
    if request.version != pynvml.NVML_GPM_METRICS_GET_VERSION:
        return pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    first, second = (library.samples[pointed(s)] for s in (request.sample1, request.sample2))
    seconds = second["s"] - first["s"]
    for slot in request.metrics[: request.numMetrics]:
        if slot.metricId not in second["integrals"]:
            slot.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
            continue
        grown = second["integrals"][slot.metricId] - first["integrals"].get(slot.metricId, 0.0)
        slot.nvmlReturn, slot.value = pynvml.NVML_SUCCESS, grown / seconds
    return pynvml.NVML_SUCCESS


def utilisation_log(_library, gpu, _kind, since, _value_type, count, array):
    newer = [entry for entry in gpu.log if entry[0] > since.value]
    if not newer:
        return pynvml.NVML_ERROR_NOT_FOUND
    count._obj.value = len(newer)
    for slot, (unix_us, per_cent) in zip(array or (), newer, strict=False):
        slot.timeStamp, slot.sampleValue.uiVal = unix_us, per_cent
    return pynvml.NVML_SUCCESS


def clock(_library, _gpu, domain, reference):
    return fill(reference, value={1: 1980, 2: 3201}[domain.value])


def capability(_library, gpu, major, minor):
    fill(major, value=gpu.capability[0])
    return fill(minor, value=gpu.capability[1])


def cores(_library, gpu, reference):
    return (
        pynvml.NVML_ERROR_NOT_SUPPORTED if gpu.cores is None else fill(reference, value=gpu.cores)
    )


def limits(_library, _gpu, least, most):
    fill(least, value=100_000)
    return fill(most, value=400_000)


def index_of(library, gpu, reference):
    among = next((each.instances for each in library.gpus if gpu in each.instances), library.gpus)
    return fill(reference, value=among.index(gpu))


def mig_handle(library, gpu, index, reference):
    if index.value >= len(gpu.instances):
        return pynvml.NVML_ERROR_NOT_FOUND
    point(reference, library.devices.index(gpu.instances[index.value]) + 1)
    return pynvml.NVML_SUCCESS


def parent_handle(library, device, reference):
    point(reference, next(n for n, gpu in enumerate(library.gpus, 1) if device in gpu.instances))
    return pynvml.NVML_SUCCESS


def attributes(_library, device, reference):
    return fill(
        reference,
        multiprocessorCount=device.cores // (64 if device.capability == (8, 0) else 128),
        memorySizeMB=device.memory_mib,
        gpuInstanceSliceCount=device.slices,
        computeInstanceSliceCount=device.slices,
    )


WHOLE_MACHINE = {
    "nvmlInitWithFlags",
    "nvmlErrorString",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
}

FUNCTIONS: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": init,
    "nvmlErrorString": lambda _library, _code: b"something NVML says",
    "nvmlSystemGetDriverVersion": lambda _library, buffer, _size: text(buffer, "580.82.07"),
    "nvmlDeviceGetCount_v2": lambda lib, r: fill(r, value=len(lib.gpus)),
    "nvmlDeviceGetHandleByIndex_v2": by_index,
    "nvmlDeviceGetHandleByUUID": by_uuid,
    "nvmlDeviceGetName": lambda _lib, gpu, buffer, _size: text(buffer, gpu.product),
    "nvmlDeviceGetUUID": lambda _lib, gpu, buffer, _size: text(buffer, gpu.uuid),
    "nvmlDeviceGetIndex": index_of,
    "nvmlDeviceGetMemoryInfo": (
        lambda _lib, gpu, r: fill(r, total=gpu.memory_mib * MIB, used=612 * MIB)
    ),
    "nvmlDeviceGetMemoryInfo_v2": lambda _lib, _gpu, r: fill(r, reserved=346 * MIB),
    "nvmlDeviceGetCudaComputeCapability": capability,
    "nvmlDeviceGetNumGpuCores": cores,
    "nvmlDeviceGetMemoryBusWidth": lambda _lib, _gpu, r: fill(r, value=384),
    "nvmlDeviceGetMaxClockInfo": lambda _lib, _gpu, _domain, r: fill(r, value=9751),
    "nvmlDeviceGetPowerManagementDefaultLimit": (
        lambda _lib, gpu, r: fill(r, value=gpu.default_limit_mw)
    ),
    "nvmlDeviceGetPowerManagementLimitConstraints": limits,
    "nvmlDeviceGetMigMode": mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": lambda _lib, gpu, r: fill(r, value=7 * bool(gpu.instances)),
    "nvmlDeviceGetMigDeviceHandleByIndex": mig_handle,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": parent_handle,
    "nvmlDeviceGetAttributes_v2": attributes,
    "nvmlDeviceGetComputeMode": lambda _lib, gpu, r: fill(r, value=gpu.compute_mode),
    "nvmlDeviceGetPersistenceMode": lambda _lib, gpu, r: fill(r, value=gpu.persistence),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _lib, gpu, r: fill(r, value=gpu.slowed),
    "nvmlDeviceGetEccMode": ecc_mode,
    "nvmlDeviceGetTotalEccErrors": lambda _lib, gpu, *a: fill(a[-1], value=gpu.uncorrected),
    "nvmlDeviceGetRemappedRows": remapped_rows,
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda _l, gpu, *a: process_list(gpu.processes, *a),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": (
        lambda _lib, gpu, *a: process_list(gpu.mps_clients, *a)
    ),
    "nvmlDeviceGetPowerUsage": lambda _lib, _gpu, r: fill(r, value=76_500),
    "nvmlDeviceGetEnforcedPowerLimit": lambda _lib, _gpu, r: fill(r, value=700_000),
    "nvmlDeviceGetTotalEnergyConsumption": lambda _l, gpu, r: fill(r, value=int(gpu.energy_mj)),
    "nvmlDeviceGetClockInfo": clock,
    "nvmlDeviceGetUtilizationRates": lambda _lib, _gpu, r: fill(r, gpu=37, memory=5),
    "nvmlDeviceGetSamples": utilisation_log,
    "nvmlDeviceGetGpuInstanceProfileInfoV": profile_info,
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2": placements,
    "nvmlGpmQueryDeviceSupport": lambda _lib, gpu, r: fill(r, isSupportedDevice=int(gpu.gpm)),
    "nvmlGpmSampleAlloc": gpm_alloc,
    "nvmlGpmSampleFree": gpm_free,
    "nvmlGpmSampleGet": gpm_get,
    "nvmlGpmMetricsGet": gpm_metrics,
}
