"""Which jobs take their memory from one place, and how much is there."""

from dataclasses import dataclass
from typing import assert_never

from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import profile_of
from advisor.sharing import (
    Arrangement,
    Hybrid,
    Mig,
    Mps,
    Naive,
    Phases,
    Place,
    Serial,
    Sharing,
    one_job_each,
)
from advisor.sharing.parts import only


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory of a GPU or of one MIG instance, and the jobs on it by their positions."""

    jobs: tuple[int, ...]
    capacity_mib: float


def pools(gpu: Gpu, sharing: Arrangement, jobs: int, mps_server_mib: float) -> list[Pool]:
    """The pools of `jobs` jobs under `sharing`; when serial, each job has the GPU for itself.

    Args:
        gpu: The GPU.
        sharing: With instances that `gpu` offers.
        jobs: How many there are.
        mps_server_mib: What an MPS server holds of the memory that its clients share.
    """
    whole_mib = float(gpu.usable_mib)
    match sharing:
        case Serial():
            return [Pool((job,), whole_mib) for job in range(jobs)]
        case Naive():
            return [Pool(tuple(range(jobs)), whole_mib)]
        case Mps():
            return [Pool(tuple(range(jobs)), whole_mib - mps_server_mib)]
        case Mig(instances):
            return pools(gpu, one_job_each(instances), jobs, mps_server_mib)
        case Hybrid(places):
            return [_of_place(place, gpu, mps_server_mib) for place in places]
        case _:
            assert_never(sharing)


def pools_over_time(gpu: Gpu, sharing: Sharing, jobs: int, mps_server_mib: float) -> list[Pool]:
    """As `pools`; of phases, those of each group after the other."""
    if not isinstance(sharing, Phases):
        return pools(gpu, sharing, jobs, mps_server_mib)
    found = []
    for group in sharing.groups:
        running = sorted(job - 1 for job in group.jobs)
        found += [
            Pool(tuple(running[job] for job in pool.jobs), pool.capacity_mib)
            for pool in pools(gpu, only(sharing, running), len(running), mps_server_mib)
        ]
    return found


def _of_place(place: Place, gpu: Gpu, mps_server_mib: float) -> Pool:
    servers = sum(isinstance(room.sharing, Mps) for room in place.rooms)
    memory_mib = profile_of(gpu, place.instance.profile).memory_mib
    return Pool(tuple(job - 1 for job in place.jobs), memory_mib - servers * mps_server_mib)
