"""Whether each job fits at all: one that does not is in no plan."""

from advisor.errors import NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.plan.rules import MAX_OOM_PROBABILITY, Conditions, FitsMemory
from advisor.prediction.memory import MPS_SERVER_MIB, pools
from advisor.prediction.mix_prediction import MixPrediction
from advisor.sharing.traversal import mps_servers


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


def memory_caps(gpu: Gpu, mix: MixPrediction) -> dict[int, int]:
    """MiB at most, by the job's number from 1; jobs that are missing have no cap.

    A cap is set only where jobs under MPS would together hold more than there is, while the
    least that each needs fits; what is left beyond that is shared out by what each would hold.
    """
    clients = {job for server in mps_servers(mix.sharing, len(mix.jobs)) for job in server}
    caps: dict[int, int] = {}
    for pool in pools(gpu, mix.sharing, len(mix.jobs), MPS_SERVER_MIB):
        needs = {job: mix.jobs[job] for job in pool.jobs}
        held_mib = sum(each.memory_mib for each in needs.values())
        least_mib = sum(each.memory_min_mib for each in needs.values())
        if clients.issuperset(needs) and least_mib <= pool.capacity_mib < held_mib:
            part = (pool.capacity_mib - least_mib) / (held_mib - least_mib)
            for job, each in needs.items():
                more_mib = part * (each.memory_mib - each.memory_min_mib)
                caps[job + 1] = int(each.memory_min_mib + more_mib)
    return caps
