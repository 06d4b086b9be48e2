"""Which memory caps make jobs fit together."""

from advisor.hardware.catalogue import Gpu
from advisor.prediction.memory import pools_of
from advisor.prediction.mix_prediction import MixPrediction
from advisor.sharing.traversal import mps_servers


def memory_caps(gpu: Gpu, mix: MixPrediction) -> dict[int, int]:
    """Memory cap in MiB of each job that needs one, by job number from 1.

    Caps are set only for jobs under MPS whose least memory fits together while what they would take
    without caps does not. What is left beyond the least is shared out in proportion to what each
    job would take.
    """
    clients = {job for server in mps_servers(mix.sharing, len(mix.jobs)) for job in server}
    caps: dict[int, int] = {}
    for pool in pools_of(mix, gpu):
        needs = {job: mix.jobs[job] for job in pool.jobs}
        held_mib = sum(each.memory_mib for each in needs.values())
        least_mib = sum(each.memory_min_mib for each in needs.values())
        if clients.issuperset(needs) and least_mib <= pool.capacity_mib < held_mib:
            part = (pool.capacity_mib - least_mib) / (held_mib - least_mib)
            for job, each in needs.items():
                more_mib = part * (each.memory_mib - each.memory_min_mib)
                caps[job + 1] = int(each.memory_min_mib + more_mib)
    return caps
