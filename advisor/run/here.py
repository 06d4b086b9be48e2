"""The advisor that allows for this machine."""

from typing import Any

from advisor.api import Advisor
from advisor.hardware import live_gpu, machine
from advisor.hardware.gpus import gpu_meant


def advisor_here(gpu: str, **sources: Any) -> Advisor:
    """Return the advisor of a GPU model; if this machine has such a GPU, it allows for the machine.

    `sources` are the other fields of the advisor.

    Raises:
        InvalidInput: There is no such model, or a source is wrong.
    """
    present = None
    if live_gpu.first_gpu() is not None:  # else there is nothing to import that for
        from advisor.measure.device import present_machine

        present = present_machine(gpu)
    return Advisor(
        gpu,
        present=present,
        host_check=None if present is None else machine.recent_host_check(),
        mig=live_gpu.as_offered_here(gpu_meant(gpu))[0].mig,
        **sources,
    )
