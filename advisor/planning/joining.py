"""How jobs may join others on a GPU that is set up already.

Processes are MPS clients or not from their start, keep their limits, and stay on their MIG
instances. Who joins may choose a limit, or an instance of its own in what MIG has left free.
"""

from collections.abc import Iterator
from itertools import product

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu
from advisor.gpu.layouts import place
from advisor.sharing import Arrangement, Hybrid, Instance, Mig, Mps, Naive, Slot, one_job_each

# Per cent of the SMs that a job may be given that is added under MPS, beside no limit.
ADDED_LIMITS = (14.0, 28.0, 43.0, 57.0)
# Jobs that are added on MIG instances of their own at most.
MOST_INSTANCES = 3


def ways_to_join(sharing: Arrangement, before: int, added: int, gpu: Gpu) -> Iterator[Arrangement]:
    """How `before` jobs that share `gpu` like this, and `added` after them, may share it."""
    match sharing:
        case Mps(()):
            yield Mps()
            yield from (_limited((100.0,) * before, each, added) for each in ADDED_LIMITS)
        case Mps(limits):
            yield from (_limited(limits, each, added) for each in (100.0, *ADDED_LIMITS))
        case Mig(instances):
            yield from _instances(one_job_each(instances), before, added, gpu)
        case Hybrid():
            yield from _instances(sharing, before, added, gpu)
        case _:
            yield Naive()


def _limited(limits: tuple[float, ...], own: float, added: int) -> Mps:
    return Mps((*limits, *(own,) * added))


def _instances(taken: Hybrid, before: int, added: int, gpu: Gpu) -> Iterator[Hybrid]:
    """An instance of its own for each, in what is free."""
    if added > MOST_INSTANCES:
        return
    for names in product([profile.name for profile in gpu.mig], repeat=added):
        try:
            starts = place(gpu, [*taken.instances, *map(Instance, names)])
        except NothingFits:
            continue
        new = enumerate(starts[len(taken.instances) :], start=before + 1)
        yield Hybrid((*taken.places, *(Slot(each, (job,)) for job, each in new)))
