"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

Each job's profile is moved to its partition; there, the jobs of a partition share as on a GPU of
that size, for which the model of whole GPUs answers. Compute instances have SMs of their own, and
the bandwidth and L2 of their GPU instance together. So have jobs under MPS limits that add up to at
most 100 %: 744 steps of such jobs on an H200 are 23 % longer than under the same limit alone, with
others' traffic as `_OTHERS` says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from typing import overload

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, partition_of, place_compute
from advisor.hardware.mig_layouts import place
from advisor.prediction.interval import Interval
from advisor.prediction.kernel_pace import moving_s
from advisor.prediction.partition_transfer import on_partition, step_on
from advisor.prediction.physics import Physics
from advisor.prediction.utilisation_model import contended
from advisor.sharing import (
    Arrangement,
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Place,
    Sharing,
)
from advisor.sharing.traversal import instance_sets, of_one_group, relocated
from advisor.workload.profile import Profile

# Log of what kernels lose beside traffic that takes all of the bandwidth; nine in ten lie between
# nothing and twice that. What jobs that fill an H200's SMs use of its bandwidth, in the median.
_OTHERS = 0.45
_USUAL_TRAFFIC = 0.27

StepsOnGpu = Callable[[Sequence[Profile], Concurrent, Gpu], list[Interval]]
"""Seconds of a step of each job that shares a whole GPU."""


def on_instances(
    profiles: Sequence[Profile], hybrid: Hybrid, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> list[Interval]:
    """Seconds of a step of each job, in the jobs' order; `steps` answers for whole GPUs."""
    found: dict[int, Interval] = {}
    for held in hybrid.places:
        found |= _on_place(profiles, held, gpu, physics, steps)
    return [found[job] for job in sorted(found)]


@dataclass(frozen=True, slots=True)
class _Tenant:
    """A job on its part of a GPU instance.

    Attributes:
        step_s: Of it and its mates on the part, if nobody were on the others.
        there: Its profile, moved to the part.
        sm_share: The part's, of the instance's SMs.
    """

    part: int
    step_s: Interval
    there: Profile
    sm_share: float

    @property
    def traffic(self) -> float:
        """Share of the instance's bandwidth that it uses, 0..1; the usual where not measured."""
        counters = self.there.counters
        if counters is None or counters.dram_active is None:
            return _USUAL_TRAFFIC * self.sm_share
        return counters.dram_active


def _on_place(
    profiles: Sequence[Profile], place: Place, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> dict[int, Interval]:
    """Seconds of a step of each job on one GPU instance, by number."""
    instance = partition_of(gpu, place.instance.profile)
    found: dict[int, _Tenant] = {}
    for at, part in enumerate(place.parts):
        partition = partition_of(gpu, place.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        there = [on_partition(each, partition, physics) for each in jobs]
        answers = steps(there, part.sharing, partition.as_gpu)
        for job, profile, moved, step_s in zip(part.jobs, jobs, there, answers, strict=True):
            doubted = step_s.times(_doubt(profile, partition, physics))
            found[job] = _Tenant(at, doubted, moved, partition.sms / instance.sms)
    if len(place.parts) == 1:
        return {job: each.step_s for job, each in found.items()}
    return _short_of_bandwidth(found)


def _doubt(profile: Profile, partition: Partition, physics: Physics) -> Interval:
    """How far a step may lie from that of the moved `profile`, around 1."""
    if partition.whole:
        return Interval(1.0, 1.0, 1.0)
    there = step_on(profile, partition, physics)
    return there.scaled(1 / there.p50)


def _short_of_bandwidth(tenants: Mapping[int, _Tenant]) -> dict[int, Interval]:
    """Seconds of a step of each beside those on the other parts, by number.

    They slow each other, and move no more together than their GPU instance can.
    """
    slowed = {
        job: each.step_s.times(
            slowed_by_traffic(
                sum(other.traffic for other in tenants.values() if other.part != each.part),
                each.there.busy_share,
            )
        )
        for job, each in tenants.items()
    }
    moved_s = [moving_s(each.there) for each in tenants.values()]
    least_s = [max(each.p50, moved) for each, moved in zip(slowed.values(), moved_s, strict=True)]
    together_s = contended(least_s, moved_s, 1.0)
    return {
        job: each.scaled(step_s / each.p50)
        for (job, each), step_s in zip(slowed.items(), together_s, strict=True)
    }


def slowed_by_traffic(others: float, busy: float | None) -> Interval:
    """How many times as long a step takes beside jobs with SMs of their own on the same memory.

    Args:
        others: Shares of the bandwidth that they use, summed.
        busy: Share of its step in which it keeps the GPU busy; None: all of it.
    """
    longer = _OTHERS * sqrt(others)
    return Interval(*(
        max(1.0, (1.0 if busy is None else min(1.0, busy)) * exp(each))
        for each in (0.0, longer, 2 * longer)
    ))  # fmt: skip


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
        InvalidInput: `gpu` has no such instances, or they start elsewhere.
        NothingFits: It cannot hold them at once.
    """
    starts: list[Instance] = []
    for hybrid in instance_sets(sharing):
        starts += place(gpu, hybrid.instances)
        for each in hybrid.places:
            sizes = [part.slices for part in each.partitions if part.slices is not None]
            if sizes:
                place_compute(gpu, each.instance.profile, sizes)
    return relocated(sharing, starts)
