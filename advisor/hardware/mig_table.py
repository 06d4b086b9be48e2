"""Reads the kinds of MIG instances of a GPU from its driver."""

from ctypes import byref, c_uint
from typing import Any

from advisor.hardware.catalogue import MigProfile
from advisor.hardware.nvml_driver import offered

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
