"""Ways to add jobs to those that share a GPU already and keep their limits and instances."""

from collections.abc import Iterator
from itertools import product
from typing import assert_never

from advisor.errors import NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.hardware.mig_layouts import place
from advisor.sharing import Arrangement, Hybrid, Instance, Mps, Naive, Part, Place
from advisor.sharing.traversal import instance_sets

# Limits that are tried for jobs added under MPS, in per cent, besides no limit.
ADDED_LIMITS = (14.0, 28.0, 43.0, 57.0)
# Most jobs that are added on MIG instances of their own.
MOST_INSTANCES = 3


def ways_to_join(sharing: Arrangement, before: int, added: int, gpu: Gpu) -> Iterator[Arrangement]:
    """Sharings of `before` jobs, which share `gpu` by `sharing`, and `added` jobs after them."""
    match sharing.mode:
        case "mps":
            yield Mps()
            yield from (Mps((100.0,) * before + (each,) * added) for each in ADDED_LIMITS)
        case "mps-limits":
            for each in (100.0, *ADDED_LIMITS):
                yield Mps(sharing.limits + (each,) * added)
        case "mig" | "hybrid":
            (taken,) = instance_sets(sharing)
            yield from _instances(taken, before, added, gpu)
        case "serial" | "naive" | "phases":
            yield Naive()
        case _:
            assert_never(sharing.mode)


def _instances(taken: Hybrid, before: int, added: int, gpu: Gpu) -> Iterator[Hybrid]:
    """An instance of its own for each added job, in the free part of the GPU."""
    if added > MOST_INSTANCES:
        return
    for names in product([profile.name for profile in gpu.mig], repeat=added):
        try:
            starts = place(gpu, [*taken.instances, *map(Instance, names)])
        except NothingFits:
            continue
        new = enumerate(starts[len(taken.instances) :], start=before + 1)
        yield Hybrid((*taken.places, *(Place(each, (Part((job,)),)) for job, each in new)))
