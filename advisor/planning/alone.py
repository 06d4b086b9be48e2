"""Whether each job fits at all: one that does not is in no plan."""

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu
from advisor.planning.limits import MAX_OOM_PROBABILITY
from advisor.planning.rules import Conditions, FitsMemory
from advisor.prediction.answer import MixPrediction


def check_each_fits(serial: MixPrediction, gpu: Gpu, conditions: Conditions) -> None:
    """Refuse jobs of which one does not fit on `gpu` even alone.

    Args:
        serial: Of all of them, one after another.
        gpu: Theirs.
        conditions: How much memory is to stay free.

    Raises:
        NothingFits: One does not.
    """
    for job in serial.jobs:
        if job.oom_probability > MAX_OOM_PROBABILITY:
            needed, capacity = job.memory_interval_mib.p95, serial.memory_capacity_mib
            raise NothingFits(
                f"{job.job} does not fit on {serial.gpu} even alone: it takes up to "
                f"{needed:,.0f} MiB of {capacity:,.0f} MiB, {needed - capacity:,.0f} MiB are "
                "missing. Use a smaller batch, or a GPU with more memory."
            )
    if problem := FitsMemory(gpu, conditions.memory_margin).broken(serial):
        raise NothingFits(
            f"no plan leaves so much memory free: even one job at a time {problem}. Lower "
            f"--memory-margin."
        )
