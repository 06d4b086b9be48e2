"""Reads from its driver what a GPU is that the catalogue lacks, and keeps it for later commands."""

import os
import re
import subprocess
import sys
from ctypes import byref, c_uint
from typing import Any

from advisor.hardware.gpus import DESCRIBED, Gpu, MigProfile, keep_gpu, name_parts
from advisor.hardware.nvml import offered, offered_w

_MOST_PLACES = 32  # no GPU has as many memory slices


def mig_rows(nvml: Any, handle: Any) -> tuple[MigProfile, ...]:
    """The MIG instances that the driver offers, the smallest first; empty if it reports none."""
    found = (_mig_profile(nvml, handle, n) for n in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
    rows = (row for row in found if row)
    return tuple(sorted(rows, key=lambda row: (row.compute_slices, row.memory_slices, row.name)))


def _mig_profile(nvml: Any, handle: Any, enumerator: int) -> MigProfile | None:
    info = offered(nvml, "nvmlDeviceGetGpuInstanceProfileInfo", handle, enumerator)
    if info is None:
        return None
    places = (nvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACES)()
    count = c_uint(_MOST_PLACES)
    asked = (handle, info.id, places, byref(count))
    if offered(nvml, "nvmlDeviceGetGpuInstancePossiblePlacements", *asked) is None:
        return None
    return MigProfile(
        name=info.name.removeprefix("MIG "),
        profile_id=info.id,
        compute_slices=info.sliceCount,
        memory_slices=places[0].size,
        memory_mib=info.memorySizeMB,  # the driver counts in MiB and calls them MB
        sms=info.multiprocessorCount,
        max_instances=info.instanceCount,
        starts=tuple(sorted(place.start for place in places[: count.value])),
    )


_MIB = 2**20

# Compute capability -> architecture, CUDA cores of an SM and threads that one holds at once: CUDA
# C++ Programming Guide, arithmetic instructions and technical specifications by capability.
_CAPABILITIES = {
    (7, 0): ("Volta", 64, 2048),
    (7, 5): ("Turing", 64, 1024),
    (8, 0): ("Ampere", 64, 2048),
    (8, 6): ("Ampere", 128, 1536),
    (8, 7): ("Ampere", 128, 1536),
    (8, 9): ("Ada", 128, 1536),
    (9, 0): ("Hopper", 128, 2048),
    (10, 0): ("Blackwell", 128, 2048),
    (10, 3): ("Blackwell", 128, 2048),
    (12, 0): ("Blackwell", 128, 1536),
    (12, 1): ("Blackwell", 128, 1536),
}

_MAX_MPS_CLIENTS = 48  # from Volta on: CUDA MPS documentation, contexts up to CUDA 13.0

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
    """The GPU `handle` by what its driver says, kept in the user's data folder.

    Returns:
        None if it is older than Volta, or the driver does not say what predictions need.
    """
    capability = tuple(offered(nvml, "nvmlDeviceGetCudaComputeCapability", handle) or ())
    cores = offered(nvml, "nvmlDeviceGetNumGpuCores", handle)
    if not cores or capability not in _CAPABILITIES:
        return None
    found = _described(nvml, handle, product, capability, cores)
    keep_gpu(found)
    return found


def _described(
    nvml: Any, handle: Any, product: str, capability: tuple[int, int], cores: int
) -> Gpu:
    architecture, cores_per_sm, threads = _CAPABILITIES[capability]
    memory_mib = nvml.nvmlDeviceGetMemoryInfo(handle).total // _MIB
    least_w, most_w = _power_limits_w(nvml, handle)
    rows = mig_rows(nvml, handle)
    return Gpu(
        key=key_of(product, memory_mib),
        products=(product,),
        architecture=architecture,
        compute_capability=".".join(map(str, capability)),
        sms=cores // cores_per_sm,
        memory_mib=memory_mib,
        reserved_mib=reserved_of(nvml, handle),
        bandwidth_gb_s=_bandwidth_gb_s(nvml, handle),
        l2_mib=_l2_mib(str(nvml.nvmlDeviceGetUUID(handle))),
        power_limit_w=most_w,
        power_limit_min_w=least_w,
        threads_per_sm=threads,
        max_mps_clients=_MAX_MPS_CLIENTS,
        memory_slices=max((row.memory_slices for row in rows), default=0),
        mig=rows,
        sources=_sources(nvml),
    )


def _sources(nvml: Any) -> dict[str, str]:
    described = f"driver {nvml.nvmlSystemGetDriverVersion()} of the GPU at hand"
    return {DESCRIBED: described, "max_mps_clients": "CUDA MPS documentation"}


def _power_limits_w(nvml: Any, handle: Any) -> tuple[float | None, float | None]:
    """The least that it can be set to, and what it is set to by itself."""
    limits_mw = offered(nvml, "nvmlDeviceGetPowerManagementLimitConstraints", handle)
    least_w = None if limits_mw is None else limits_mw[0] / 1000
    return least_w, offered_w(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)


def key_of(product: str, memory_mib: float) -> str:
    """The key of a GPU of that name, e.g. ``"rtx-3090-24gb"``."""
    parts = (part for part in name_parts(product) if not re.fullmatch(r"\d+gb", part))
    return "-".join((*parts, f"{round(memory_mib / 1024)}gb"))


def _bandwidth_gb_s(nvml: Any, handle: Any) -> float | None:
    """Peak of the memory: two transfers a clock on each line of the bus, 1e9 bytes a second."""
    bus = offered(nvml, "nvmlDeviceGetMemoryBusWidth", handle)
    clock_mhz = offered(nvml, "nvmlDeviceGetMaxClockInfo", handle, nvml.NVML_CLOCK_MEM)
    return 2e6 * clock_mhz * bus / 8 / 1e9 if bus and clock_mhz else None


def reserved_of(nvml: Any, handle: Any) -> int | None:
    """Memory that the driver keeps for itself; None if it does not say."""
    found = offered(nvml, "nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
    return None if found is None else int(found.reserved // _MIB)


def _l2_mib(uuid: str) -> float | None:
    """None where CUDA does not answer."""
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _ASK_L2], capture_output=True, check=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": uuid}, timeout=_L2_TIMEOUT_S,
        )  # fmt: skip
        return int(asked.stdout) / _MIB
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
