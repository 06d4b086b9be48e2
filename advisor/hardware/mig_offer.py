"""Reads the MIG instances that the installed driver offers; they replace the catalogue's."""

from ctypes import byref, c_uint
from dataclasses import replace
from typing import Any

from advisor.errors import GpuUnavailable
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import driver, handle_of, live_gpus, offered
from advisor.hardware.mig_rules import driver_branch

_MOST_PLACES = 32  # no GPU has as many memory slices


def mig_profiles(device: int | str) -> tuple[MigProfile, ...]:
    """The MIG instances that this driver offers on `device`, whether MIG is on or off.

    Empty if the GPU has no MIG, or the driver does not report it to this user.
    """
    with driver() as nvml:
        handle = handle_of(nvml, device)
        rows = (_mig_profile(nvml, handle, n) for n in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT))
        return tuple(row for row in rows if row)


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
            table = sorted(rows, key=lambda row: (row.compute_slices, row.memory_slices, row.name))
            sources = gpu.sources | {"mig": f"driver {each.driver} of GPU {each.index} at hand"}
            here = replace(gpu, mig=tuple(table), sources=sources)
            return here, driver_branch(each.driver)
    return gpu, None
