"""The machine at hand: which GPUs it has, and what profiles may differ from.

What only a machine with a GPU needs is imported once one is found.
"""

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import LiveGpu
from advisor.workload.staleness import Present


def gpu_at_hand() -> str | None:
    """The key of this machine's first GPU that can be answered for; None without one."""
    keys = (each.catalogue_key for each in _gpus_here())
    return next((key for key in keys if key is not None), None)


def present_machine(gpu: str) -> Present | None:
    """This machine, if its driver shows a GPU of the model `gpu`; else None."""
    drivers = [each.driver for each in _gpus_here() if each.catalogue_key == gpu]
    if not drivers:
        return None
    from advisor.measure.process.claimed_device import host_cpu
    from advisor.measure.process.cores import allowed_cores
    from advisor.measure.process.worker import installed_version

    return Present(
        driver=drivers[0],
        torch=installed_version("torch"),
        host_cpu=host_cpu(),
        host_cores=len(allowed_cores()),
    )


def _gpus_here() -> list[LiveGpu]:
    """The GPUs of this machine that answer; none without a driver."""
    from advisor.hardware.live_gpu import live_gpus

    try:
        return [each for each in live_gpus() if isinstance(each, LiveGpu)]
    except AdvisorError:
        return []
