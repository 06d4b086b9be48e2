"""Reads the MIG instances that the installed driver offers; they replace the catalogue's."""

from dataclasses import replace

from advisor.errors import GpuUnavailable
from advisor.hardware.catalogue import Gpu, MigProfile
from advisor.hardware.gpu_state import LiveGpu
from advisor.hardware.live_gpu import live_gpus
from advisor.hardware.mig_rules import driver_branch
from advisor.hardware.mig_table import mig_rows
from advisor.hardware.nvml_driver import driver, handle_of


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
