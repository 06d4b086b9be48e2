"""Makes a GPU look like a smaller card: an idle process holds the memory that one lacks.

The process is not an MPS client and launches no kernels, so it takes only memory from the tenants.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.process_ends import wait_until
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.worker import TenantState, Verb
from advisor.sharing import Naive

_MIB = 2**20

# Torch asks the driver for blocks above 10 MiB exactly, in multiples of 2 MiB; smaller ones come
# out of 20 MiB. So filling stops this near the target.
_NEAR_MIB = 20

# More than an MPS server holds (66 MiB on an H200), less than any tenant's context (740 MiB).
_LEAST_TENANT_MIB = 300

# The first block nearly reaches the target; the driver's page tables for it take a little more.
_MOST_BLOCKS = 4


@contextmanager
def memory_filled(session: MpsSession, capacity_mib: int | None) -> Iterator[float | None]:
    """While the block runs, the GPU has as much free as a card of `capacity_mib` would have.

    The driver's own memory is assumed to be the same on both. An MPS server that already runs
    counts as the tenants' memory, like one that starts with them.

    Args:
        session: Without a live tenant.
        capacity_mib: Size of the smaller card as its driver would report it; None: the GPU stays
            as it is.

    Yields:
        The memory then free for tenants and MPS server, MiB; None if nothing was held.

    Raises:
        InvalidInput: The GPU itself has less, or the device is a CPU.
        AdvisorError: The process that holds the memory ended, or another process uses the GPU.
    """
    if capacity_mib is None:
        yield None
        return
    uuid = session.device.uuid
    if uuid is None:
        raise InvalidInput("a CPU's memory cannot be made to look smaller; drop capacity_mib")
    served_mib = _served_mib(uuid)
    leave_mib = capacity_mib - reserve_mib(session.device.key, uuid) - served_mib
    setups = session.setups(Naive(), [tuple(sorted(os.sched_getaffinity(0)))])
    with tenants_on(setups, session.folder, filler_verbs) as (filler,):
        answer = filler.ask("leave_free", free_mib=leave_mib)
        if isinstance(answer, Ended):
            raise AdvisorError(
                f"the process that fills the GPU to look like {capacity_mib} MiB ended: "
                f"{answer.detail}. Run it again."
            )
        yield answer["free_mib"] + served_mib


def reserve_mib(key: str, uuid: str) -> int:
    """Memory that the driver reserves on a GPU: as catalogued, else as it says itself."""
    from advisor.hardware.live_gpu import reserved_mib

    known = gpu(key).reserved_mib
    return (reserved_mib(uuid) or 0) if known is None else known


def _served_mib(uuid: str) -> float:
    """Memory of the MPS server, after the tenants of the previous run have left."""
    from advisor.hardware.live_gpu import process_memory_mib

    def in_use_mib() -> float:
        return sum(process_memory_mib(uuid).values())

    if not wait_until(lambda: in_use_mib() < _LEAST_TENANT_MIB, 10):
        raise AdvisorError(
            f"{in_use_mib():.0f} MiB of the GPU are in use before any tenant runs. See who uses "
            f"it: nvidia-smi."
        )
    return in_use_mib()


def filler_verbs() -> Mapping[str, Verb]:
    """`leave_free`."""
    return {"leave_free": leave_free}


def leave_free(state: TenantState, free_mib: float) -> dict[str, Any]:
    """Hold so much device memory that `free_mib` remain free.

    Returns:
        ``free_mib``: what actually remains.

    Raises:
        InvalidInput: Less is free already.
    """
    import torch

    blocks = state.notes.setdefault("blocks", [])
    if _free_mib() < free_mib - _NEAR_MIB:
        raise InvalidInput(
            f"this GPU has {_free_mib():.0f} MiB free and should look as if it had "
            f"{free_mib:.0f}. Choose a smaller capacity_mib."
        )
    while len(blocks) < _MOST_BLOCKS and (excess := _free_mib() - free_mib) >= _NEAR_MIB:
        whole_mib = int(excess) // 2 * 2
        blocks.append(torch.empty(whole_mib * _MIB, dtype=torch.uint8, device=state.device))
    return {"free_mib": _free_mib()}


def _free_mib() -> float:
    """Free device memory as the driver reports it, MiB."""
    import torch

    return float(torch.cuda.mem_get_info()[0]) / _MIB
