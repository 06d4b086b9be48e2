"""What the machine at hand has now, of what profiles depend on."""

from importlib.metadata import PackageNotFoundError, version

from advisor.errors import AdvisorError
from advisor.gpu.snapshot import LiveGpu
from advisor.running.cores import allowed_cores
from advisor.running.device import host_cpu
from advisor.workload.staleness import Present


def present_machine(gpu: str) -> Present | None:
    """This machine, if its driver shows a GPU of the model `gpu`; else None."""
    from advisor.gpu.live import live_gpus

    try:
        found = live_gpus()
    except AdvisorError:
        return None
    drivers = [each.driver for each in found
               if isinstance(each, LiveGpu) and each.catalogue_key == gpu]  # fmt: skip
    if not drivers:
        return None
    return Present(
        driver=drivers[0],
        torch=_torch(),
        host_cpu=host_cpu(),
        host_cores=len(allowed_cores()),
    )


def _torch() -> str | None:
    """Its version, without importing it; None where jobs train in another environment."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return None
