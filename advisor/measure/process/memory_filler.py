"""Makes a GPU look like a smaller card: an idle process holds what the smaller one lacks.

The process is no MPS client, and launches nothing, so it takes memory from the tenants and
nothing else.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.scratch_folder import wait_until
from advisor.measure.process.tenants import Ended, tenants_on
from advisor.measure.process.worker import TenantSetup, TenantState, Verb
from advisor.sharing import Naive

_MIB = 2**20

# Torch asks the driver for blocks above 10 MiB exactly, in multiples of 2 MiB; smaller ones come
# out of 20 MiB. So this near the mark it stops.
_NEAR_MIB = 20

# More than an MPS server holds (66 MiB on an H200), less than any tenant's context (740 MiB).
_LEAST_TENANT_MIB = 300

# The first block nearly hits the mark; the driver's page tables for it take a little more.
_MOST_BLOCKS = 4


@contextmanager
def ballast_on(stage: MpsSession, capacity_mib: int | None) -> Iterator[float | None]:
    """While the block runs, the GPU has as much free as a card of `capacity_mib` would have.

    What the driver keeps for itself is taken to be the same on both. An MPS server that runs
    already counts as the tenants', like one that starts with them.

    Args:
        stage: On which no tenant is alive.
        capacity_mib: Size of the smaller card as its driver would report it; None: the GPU stays
            as it is.

    Yields:
        What was then free for tenants and MPS server, MiB; None where nothing was held.

    Raises:
        InvalidInput: The GPU itself has less; or the device is a CPU.
        AdvisorError: The process that holds the memory ended; or somebody else uses the GPU.
    """
    if capacity_mib is None:
        yield None
        return
    uuid = stage.device.uuid
    if uuid is None:
        raise InvalidInput("a CPU's memory cannot be made to look smaller; drop capacity_mib")
    served_mib = _served_mib(uuid)
    leave_mib = capacity_mib - reserve_mib(stage.device) - served_mib
    (environment,) = stage.environments(Naive(), 1)
    seat = TenantSetup(stage.device.kind, tuple(sorted(os.sched_getaffinity(0))), environment)
    with tenants_on([seat], stage.folder, ballast_verbs) as (ballast,):
        answer = ballast.ask("leave_free", free_mib=leave_mib)
        if isinstance(answer, Ended):
            raise AdvisorError(
                f"what should make the GPU look like {capacity_mib} MiB ended: {answer.detail}. "
                f"Run it again."
            )
        yield answer["free_mib"] + served_mib


def reserve_mib(device: Device) -> int:
    """What the driver keeps of `device` for itself, as the catalogue has it; 0 where unknown."""
    return gpu(device.key).reserved_mib or 0


def _served_mib(uuid: str) -> float:
    """What an MPS server holds, once the tenants of the run before have left."""
    from advisor.hardware.live_gpu import process_memory_mib

    def in_use_mib() -> float:
        return sum(process_memory_mib(uuid).values())

    if not wait_until(lambda: in_use_mib() < _LEAST_TENANT_MIB, 10):
        raise AdvisorError(
            f"{in_use_mib():.0f} MiB of the GPU are in use before any tenant runs. See who uses "
            f"it: nvidia-smi."
        )
    return in_use_mib()


def ballast_verbs() -> Mapping[str, Verb]:
    """`leave_free`."""
    return {"leave_free": leave_free}


def leave_free(desk: TenantState, free_mib: float) -> dict[str, Any]:
    """Hold so much device memory that `free_mib` remain for everybody else.

    Returns:
        ``free_mib``: what remains in truth.

    Raises:
        InvalidInput: There is less from the start.
    """
    import torch

    blocks = desk.notes.setdefault("blocks", [])
    if _free_mib() < free_mib - _NEAR_MIB:
        raise InvalidInput(
            f"this GPU has {_free_mib():.0f} MiB free and should look as if it had "
            f"{free_mib:.0f}. Choose a smaller capacity_mib."
        )
    while len(blocks) < _MOST_BLOCKS and (excess := _free_mib() - free_mib) >= _NEAR_MIB:
        whole_mib = int(excess) // 2 * 2
        blocks.append(torch.empty(whole_mib * _MIB, dtype=torch.uint8, device=desk.device))
    return {"free_mib": _free_mib()}


def _free_mib() -> float:
    """What the driver would still give to any process, MiB."""
    import torch

    return float(torch.cuda.mem_get_info()[0]) / _MIB
