"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

What an instance has is a share of the GPU's SMs and of its bandwidth. Kernels are stretched by
what they miss of either; several jobs in one partition are then replayed against each other as on a
GPU of that size. Compute instances have SMs of their own, and the bandwidth of their GPU instance
together.
"""

from collections.abc import Sequence
from typing import overload

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import Partition, limit_shares, partition_of, place_compute
from advisor.hardware.mig_layouts import place
from advisor.prediction.cache import once_a_mix, once_a_profile
from advisor.prediction.fewer_sms import kernel_exponent, slowdown_on_fewer_sms
from advisor.prediction.mix_prediction import Interval, interval_around
from advisor.prediction.physics import Physics, mean_of_copies
from advisor.prediction.replay import Effort, replay_mps, replay_naive
from advisor.prediction.trace import Floats, ReplayTrace, replay_trace
from advisor.prediction.transfer import moving_s, on_partition
from advisor.prediction.utilisation_model import MPS_CAPACITY, NAIVE_CAPACITY, contended
from advisor.sharing import (
    Arrangement,
    Group,
    Hybrid,
    Instance,
    PartitionSharing,
    Place,
    Sharing,
)
from advisor.sharing.traversal import instance_sets, of_one_group, relocated
from advisor.workload.profile import Profile

# Log spread of an estimate for a MIG instance, which nothing measured stands behind: wide on
# purpose. Wider with mates on the instance: replay, too, was only measured on whole GPUs.
_ALONE, _WITH_MATES = 0.4, 0.5
# Of a step, where it is not known how long it keeps the GPU busy: midway.
_HALF = 0.5


def on_instances(
    profiles: Sequence[Profile], hybrid: Hybrid, gpu: Gpu, physics: Physics
) -> list[Interval]:
    """Seconds of a step of each job, in the jobs' order."""
    found: dict[int, Interval] = {}
    for held in hybrid.places:
        shares = _sm_shares(held, gpu)
        for job, step_s in _on_place(profiles, held, gpu, physics).items():
            mates = len(held.jobs) > 1
            found[job] = _doubt(profiles[job - 1], shares[job], gpu, mates=mates).scaled(step_s)
    return [found[job] for job in sorted(found)]


def _sm_shares(place: Place, gpu: Gpu) -> dict[int, float]:
    """Share of the GPU's SMs that each job on an instance may use, by number."""
    found: dict[int, float] = {}
    for part in place.partitions:
        whole = partition_of(gpu, place.instance.profile, part.slices).sm_share
        limits = part.sharing.limits or [100.0] * len(part.jobs)
        found |= {job: whole * limit / 100 for job, limit in zip(part.jobs, limits, strict=True)}
    return found


def _doubt(profile: Profile, sm_share: float, gpu: Gpu, *, mates: bool) -> Interval:
    """How far a step may lie from its estimate, around 1."""
    spread = _WITH_MATES if mates else _ALONE
    around = interval_around(1.0, -spread, spread)
    if profile.trace is not None:
        return around
    slower = slowdown_on_fewer_sms(profile, sm_share, gpu)
    own = slower.scaled(1 / slower.p50)
    return own.times(around) if mates else own


def _on_place(
    profiles: Sequence[Profile], place: Place, gpu: Gpu, physics: Physics
) -> dict[int, float]:
    """Seconds of a step of each job on one GPU instance, by number."""
    free: dict[int, float] = {}
    for part in place.partitions:
        partition = partition_of(gpu, place.instance.profile, part.slices)
        tenants = [profiles[job - 1] for job in part.jobs]
        steps = _steps_in_partition(tuple(tenants), part.sharing, partition, physics)
        free |= zip(part.jobs, map(float, steps), strict=True)
    if len(free) == 1:
        return free
    bandwidth = partition_of(gpu, place.instance.profile).bandwidth_share
    moved_s = [moving_s(profiles[job - 1]) / bandwidth for job in free]
    steps_s = [max(step, moved) for step, moved in zip(free.values(), moved_s, strict=True)]
    return dict(zip(free, contended(steps_s, moved_s, 1.0), strict=True))


@once_a_mix
def _steps_in_partition(
    tenants: Sequence[Profile],
    sharing: PartitionSharing,
    partition: Partition,
    physics: Physics,
) -> Floats:
    """Seconds of a step of each tenant, replayed; by capacity where one has no trace."""
    moved = [on_partition(each, partition, physics.packing) for each in tenants]
    scripts = [each for each in moved if each is not None]
    if len(scripts) < len(moved):
        return _by_capacity(tenants, sharing, partition)
    alone_s = [_alone_s(each, partition.gpu, physics.packing) for each in tenants]
    there_s = _replayed(scripts, sharing, partition.sms, physics)
    solo_s = np.array([each.step_s for each in tenants])
    slowdowns = np.maximum(1.0, there_s / np.array(alone_s))
    return mean_of_copies(solo_s * slowdowns, tenants, sharing)


@once_a_profile
def _alone_s(profile: Profile, gpu: Gpu, packing: float) -> float:
    """Seconds of a step on the whole GPU as replay has it; the profile has a trace."""
    whole = replay_trace(profile, gpu.sms, packing)
    assert whole is not None, "only what has traces is replayed"
    return float(replay_mps([whole], [1.0], [1.0], 0.0, Effort())[0])


def _replayed(
    scripts: Sequence[ReplayTrace], sharing: PartitionSharing, sms: int, physics: Physics
) -> Floats:
    """Steps of `scripts` against each other on a partition of `sms`, which they are scaled to."""
    if len(scripts) > 1 and not sharing.under_mps:
        return replay_naive(scripts, physics.slicing, Effort())
    shares = limit_shares(sharing.limits, sms) or [1.0] * len(scripts)
    # In proportion to the SMs: bandwidth that a limited job might keep is cut with the instance.
    whole, order = [1.0] * len(scripts), sharing.priorities
    return replay_mps(scripts, shares, whole, physics.ceded, Effort(), priorities=order)


def _by_capacity(
    tenants: Sequence[Profile], sharing: PartitionSharing, partition: Partition
) -> Floats:
    """The GPU path stretched as `fewer_sms` says of the SMs that the partition misses."""
    shares = [partition.sm_share * limit / 100 for limit in sharing.limits] or [
        partition.sm_share
    ] * len(tenants)
    busy_s = [
        (_HALF * each.step_s if each.gpu_s is None else each.gpu_s)
        * share ** -kernel_exponent(each, partition.gpu)
        for each, share in zip(tenants, shares, strict=True)
    ]
    free_s = [max(each.step_s, busy) for each, busy in zip(tenants, busy_s, strict=True)]
    if len(tenants) == 1:
        return np.array(free_s)
    capacity = MPS_CAPACITY if sharing.under_mps else NAIVE_CAPACITY
    return np.array(contended(free_s, busy_s, capacity))


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
