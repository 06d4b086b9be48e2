"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

Each job's profile is moved to its partition; there, the jobs of a partition share as on a GPU of
that size, for which the model of whole GPUs answers. Compute instances have SMs of their own, and
the bandwidth of their GPU instance together.
"""

from collections.abc import Callable, Sequence
from typing import overload

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, partition_of, place_compute
from advisor.hardware.mig_layouts import place
from advisor.prediction.fewer_sms import slowdown_on_fewer_sms
from advisor.prediction.kernel_pace import moving_s
from advisor.prediction.mix_prediction import Interval, interval_around
from advisor.prediction.physics import Physics
from advisor.prediction.transfer import on_partition
from advisor.prediction.utilisation_model import contended
from advisor.sharing import Arrangement, Group, Hybrid, Instance, Mps, Naive, Place, Sharing
from advisor.sharing.traversal import instance_sets, of_one_group, relocated
from advisor.workload.profile import Profile

# Log spread of what a part of the GPU does to a step: wide on purpose, for nothing measured stands
# behind it.
_MOVED = 0.4

StepsOnGpu = Callable[[Sequence[Profile], Naive | Mps, Gpu], list[Interval]]
"""Seconds of a step of each job that shares a whole GPU."""


def on_instances(
    profiles: Sequence[Profile], hybrid: Hybrid, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> list[Interval]:
    """Seconds of a step of each job, in the jobs' order; `steps` answers for whole GPUs."""
    found: dict[int, Interval] = {}
    for held in hybrid.places:
        found |= _on_place(profiles, held, gpu, physics, steps)
    return [found[job] for job in sorted(found)]


def _on_place(
    profiles: Sequence[Profile], place: Place, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> dict[int, Interval]:
    """Seconds of a step of each job on one GPU instance, by number."""
    found: dict[int, Interval] = {}
    moved_s: list[float] = []
    for part in place.parts:
        partition = partition_of(gpu, place.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        there = [on_partition(each, partition, physics) for each in jobs]
        answers = steps(there, part.sharing, partition.as_gpu)
        doubts = [_doubt(each, partition) for each in jobs]
        doubted = [step_s.times(doubt) for step_s, doubt in zip(answers, doubts, strict=True)]
        found |= zip(part.jobs, doubted, strict=True)
        moved_s += map(moving_s, there)
    return found if len(place.parts) == 1 else _short_of_bandwidth(found, moved_s)


def _doubt(profile: Profile, partition: Partition) -> Interval:
    """How far a step may lie from that of the moved `profile`, around 1."""
    if partition.whole:
        return Interval(1.0, 1.0, 1.0)
    if profile.trace is not None:
        return interval_around(1.0, -_MOVED, _MOVED)
    slower = slowdown_on_fewer_sms(profile, partition.sm_share, partition.gpu)
    return slower.scaled(1 / slower.p50)


def _short_of_bandwidth(free: dict[int, Interval], moved_s: Sequence[float]) -> dict[int, Interval]:
    """`free` where the jobs together move no more than their GPU instance can.

    Args:
        free: Seconds of a step if nobody else were on the instance, by number.
        moved_s: Seconds of its whole bandwidth that a step of each takes.
    """
    least_s = [max(each.p50, moved) for each, moved in zip(free.values(), moved_s, strict=True)]
    together_s = contended(least_s, moved_s, 1.0)
    return {
        job: each.scaled(step_s / each.p50)
        for (job, each), step_s in zip(free.items(), together_s, strict=True)
    }


def as_whole_gpu(sharing: Arrangement, gpu: Gpu) -> Arrangement:
    """How jobs share the whole GPU, where their only instance has all of its SMs and bandwidth.

    `sharing` itself where it is cut into less.
    """
    for hybrid in instance_sets(sharing):
        first, *others = hybrid.partitions
        if not others and partition_of(gpu, hybrid.instances[0].profile, first.slices).whole:
            return of_one_group(Group(first.jobs, first.sharing))
    return sharing


@overload
def placed(sharing: Arrangement, gpu: Gpu) -> Arrangement: ...
@overload
def placed(sharing: Sharing, gpu: Gpu) -> Sharing: ...
def placed(sharing: Sharing, gpu: Gpu) -> Sharing:
    """`sharing` with a start for each MIG instance; as it is where it has none.

    Raises:
        NothingFits: `gpu` cannot hold these instances at once, or cannot cut them up so.
    """
    starts: list[Instance] = []
    for hybrid in instance_sets(sharing):
        starts += place(gpu, hybrid.instances)
        for each in hybrid.places:
            sizes = [part.slices for part in each.partitions if part.slices is not None]
            if sizes:
                place_compute(gpu, each.instance.profile, sizes)
    return relocated(sharing, starts)
