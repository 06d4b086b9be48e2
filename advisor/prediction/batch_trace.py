"""The kernels of a step at another batch size."""

from dataclasses import replace

import numpy as np

from advisor.prediction.batch_law import AtBatch
from advisor.prediction.kernel_transfer import START_US
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.plausible import MOST_BLOCKS
from advisor.workload.profile import Profile

# Kernels that do as much in every step, whatever its batch.
_OF_WEIGHTS = ("optimizer",)


def trace_at_batch(
    near: Profile, batch: int, host: AtBatch | None, on_gpu: AtBatch | None
) -> KernelTrace | None:
    """The trace of `near` at another batch size; what is equal in every step stays."""
    trace = near.trace
    if trace is None or host is None or on_gpu is None or not near.gpu_s or not near.host_s:
        return None
    us = np.asarray(trace.duration_us)
    alike = np.isin(np.array(trace.classes), _OF_WEIGHTS)[list(trace.class_of)]
    stays = np.where(alike, us, np.minimum(us, START_US))
    wanted = float(us.sum()) * on_gpu.middle / near.gpu_s
    moving = float((us - stays).sum())
    factor = (wanted - float(stays.sum())) / moving if moving else 0.0
    there = stays + (us - stays) * factor if factor > 0 else us * wanted / float(us.sum())
    more = batch / near.workload.batch
    blocks = np.asarray(trace.blocks, dtype=np.float64)
    grown = np.where(alike | (blocks == 0), blocks, np.clip(np.rint(blocks * more), 1, MOST_BLOCKS))
    return replace(
        trace.launched(host.middle / near.host_s),
        duration_us=tuple(map(float, there)),
        blocks=tuple(map(int, grown)),
    )
