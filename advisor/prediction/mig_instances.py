"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

Each job's profile is moved to its partition. The jobs of a partition share as on a GPU of
that size, for which the model of whole GPUs answers. Compute instances have SMs of their own, and
the bandwidth and L2 of their GPU instance together. So have jobs under MPS limits that add up to at
most 100 %: 744 steps of such jobs on an H200 are 23 % longer than under the same limit alone, with
others' traffic as `_OTHERS` says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import NamedTuple, overload

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import place
from advisor.hardware.partition import Partition, partition_of, place_compute
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import busy_slowdown, contended, slowdown_on
from advisor.prediction.host import at_pace, engine_growth, longer, thinned
from advisor.prediction.prediction import Interval
from advisor.prediction.replay import Physics
from advisor.prediction.trace import (
    Floats,
    WaitingStep,
    demand,
    exponent_alone,
    measured_exponent,
    moving_s,
    replay_trace,
    slowdowns,
)
from advisor.sharing import Arrangement, Concurrent, Group, Hybrid, Instance, Place, Sharing
from advisor.sharing.groups import instance_sets, of_one_group, relocated
from advisor.workload.profile import LimitedRun, MpsProbe, Profile

# Log of what kernels lose next to traffic that takes all of the bandwidth; nine in ten lie between
# nothing and twice that. What jobs that fill an H200's SMs use of its bandwidth, in the median.
_OTHERS = 0.45
_USUAL_TRAFFIC = 0.27

StepsOnGpu = Callable[[Sequence[Profile], Concurrent, Gpu], list[Interval]]
"""Seconds of a step of each job that shares a whole GPU."""


def on_instances(
    profiles: Sequence[Profile], hybrid: Hybrid, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> list[Interval]:
    """Predict seconds of a step of each job, in the jobs' order; `steps` answers for whole GPUs."""
    by_job: dict[int, Interval] = {}
    for held in hybrid.places:
        by_job |= _on_place(profiles, held, gpu, physics, steps)
    return [by_job[job] for job in sorted(by_job)]


@dataclass(frozen=True, slots=True)
class _Tenant:
    """A job on its part of a GPU instance.

    Attributes:
        step_s: Of it with others on the part, if nobody were on the other parts.
        moved: Its profile, moved to the part.
        sm_share: The part's, of the instance's SMs.
    """

    part: int
    step_s: Interval
    moved: Profile
    sm_share: float

    @property
    def traffic(self) -> float:
        """Share of the instance's bandwidth that it uses, 0..1; the usual where not measured."""
        counters = self.moved.counters
        if counters is None or counters.dram_active is None:
            return _USUAL_TRAFFIC * self.sm_share
        return counters.dram_active


def _on_place(
    profiles: Sequence[Profile], place: Place, gpu: Gpu, physics: Physics, steps: StepsOnGpu
) -> dict[int, Interval]:
    """Seconds of a step of each job on one GPU instance, by number."""
    instance = partition_of(gpu, place.instance.profile)
    tenants: dict[int, _Tenant] = {}
    for at, part in enumerate(place.parts):
        partition = partition_of(gpu, place.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        moved = [on_partition(each, partition, physics) for each in jobs]
        answers = steps(moved, part.sharing, partition.as_gpu)
        for job, profile, own, step_s in zip(part.jobs, jobs, moved, answers, strict=True):
            doubt = Interval(1.0, 1.0, 1.0)
            if not partition.whole:
                alone = step_on(profile, partition, physics)
                doubt = alone.scaled(1 / alone.p50)
            tenants[job] = _Tenant(at, step_s.times(doubt), own, partition.sms / instance.sms)
    if len(place.parts) == 1:
        return {job: each.step_s for job, each in tenants.items()}
    return _short_of_bandwidth(tenants)


def _short_of_bandwidth(tenants: Mapping[int, _Tenant]) -> dict[int, Interval]:
    """Seconds of a step of each with jobs on the other parts, by number.

    They slow each other, and move no more together than their GPU instance can.
    """
    slowed = {
        job: each.step_s.times(
            slowed_by_traffic(
                sum(other.traffic for other in tenants.values() if other.part != each.part),
                each.moved.busy_share,
            )
        )
        for job, each in tenants.items()
    }
    moved_s = [moving_s(each.moved) for each in tenants.values()]
    least_s = [max(each.p50, moved) for each, moved in zip(slowed.values(), moved_s, strict=True)]
    together_s = contended(least_s, moved_s, 1.0)
    return {
        job: each.scaled(step_s / each.p50)
        for (job, each), step_s in zip(slowed.items(), together_s, strict=True)
    }


def slowed_by_traffic(others: float, busy: float | None) -> Interval:
    """Return how many times as long a step takes next to jobs on other SMs of the same memory.

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
    """Return the sharing of the whole GPU if the only instance has all of its SMs and bandwidth.

    `sharing` itself if the GPU is cut into less.
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
    """Return `sharing` with a start for each MIG instance; unchanged without instances.

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


_OF_SMS = ("sm_active", "sm_occupancy", "tensor_active")
_OF_BANDWIDTH = ("dram_active", "memory_utilization")


@once_a_profile
def on_partition(profile: Profile, partition: Partition, physics: Physics) -> Profile:
    """Return `profile` of the job alone on a part of its GPU; its shares are of that part.

    Kernels slow as `advisor.prediction.trace.slowdowns`. What they lose with L2 is not modelled
    apart from bandwidth, because a slice has as much of both. Jobs without a trace slow as
    `advisor.prediction.capacity` says.
    """
    if partition.whole:
        return profile
    work = _work(profile, partition.gpu, physics)
    busy_s = 0.0 if work is None else float(work.duration_s.sum())
    if work is None:
        busier = busy_slowdown(profile, partition)
    else:
        busier = work.busy_s(profile, partition) / busy_s if busy_s else 1.0
    stretch = step_on(profile, partition, physics).p50 / profile.step_s
    of_sms = dict.fromkeys(_OF_SMS, 1 / partition.sm_share)
    of_bandwidth = dict.fromkeys(_OF_BANDWIDTH, 1 / partition.bandwidth_share)
    grown = of_sms | of_bandwidth | {"gract": engine_growth(profile, busier)}
    slower, trace, gpu = at_pace(profile, stretch), profile.trace, partition.gpu
    if trace is not None:
        demanded, exponent = demand(trace, gpu.sms, physics.packing), exponent_alone(profile, gpu)
        us = np.asarray(trace.duration_us) * slowdowns(demanded, profile, partition, exponent)
        trace = replace(trace, duration_us=tuple(us.tolist()))
    return replace(
        slower,
        gpu_s=profile.gpu_s and profile.gpu_s * busier,
        counters=profile.counters and thinned(profile.counters, stretch, grown),
        mps=slower.mps and _probe_on(slower.mps, profile, partition, physics),
        trace=trace,
        sm_exponent=measured_exponent(profile, gpu),
    )


# By how much the log of what kernels lose on a partition is off, as a share of it, for nine jobs in
# ten: under limits of an H200 and an H100, each predicted from a probe's other limits, and without
# a probe. On MIG hardware, all of 14 steps of two networks were inside that others measured on an
# A100 and that were translated from an H100.
_DOUBT, _DOUBT_WITHOUT_PROBE = 0.1, 0.25
# How sharply the slower of host and GPU sets the pace of a step: where both take as long, bursts of
# kernels wait for the GPU, and the GPU waits for the host between them. Over 486 limits, each left
# out of a probe of an H200 or an H100, logs of steps are least off with this one of 4 to 30, and
# with 10 to 14 without any one family. 43 steps for which host and GPU take within 15 % as long
# took 3.9 % longer than the slower of them, and 0.9 % longer than this says.
_SHARPNESS = 12


class _Work(NamedTuple):
    """The kernels that the GPU runs for a step, in turn.

    Attributes:
        duration_s: On the whole GPU, shape (kernels,).
        demand: SMs that each can use, as a share of the GPU's, shape (kernels,).
        gaps_s: Seconds between them, together.
        waiting: The step where the host waits for them; else None.
        exponent: As of `exponent_alone`.
    """

    duration_s: Floats
    demand: Floats
    gaps_s: float
    waiting: WaitingStep | None
    exponent: float

    def busy_s(self, profile: Profile, partition: Partition) -> float:
        slower = slowdowns(self.demand, profile, partition, self.exponent)
        return float((self.duration_s * slower).sum())


def _work(profile: Profile, gpu: Gpu, physics: Physics) -> _Work | None:
    """None without a trace."""
    played = replay_trace(profile, gpu.sms, physics.packing)
    if played is None:
        return None
    exponent = exponent_alone(profile, gpu)
    gaps_s = played.gap_s * len(played.demand)
    return _Work(played.duration_s, played.demand, gaps_s, played.waiting, exponent)


def sm_time(profile: Profile, partition: Partition, physics: Physics) -> float:
    """Return SMs times seconds that a step keeps busy on a partition, over those on the whole GPU.

    Kernels that slow by less than in proportion keep fewer SMs busy for not as much longer: over
    289 mixes under limits that keep jobs apart, on an H200 and an H100, SM activity so summed was
    12 % off, and 25 % if each step took as much SM time as alone. 1 without a trace.
    """
    work = _work(profile, partition.gpu, physics)
    if work is None:
        return 1.0
    slower = slowdowns(work.demand, profile, partition, work.exponent)
    on_part = work.duration_s * slower * np.minimum(work.demand, partition.sm_share)
    whole = float((work.duration_s * work.demand).sum())
    return float(on_part.sum()) / whole if whole else 1.0


def step_on(profile: Profile, partition: Partition, physics: Physics) -> Interval:
    """Return seconds of a step on a partition: mostly the slower of host and GPU sets the pace.

    Where the host waits for the GPU, both do.
    """
    work = _work(profile, partition.gpu, physics)
    if work is None:
        return slowdown_on(profile, partition).scaled(profile.step_s)
    busy_s, alone_s = work.busy_s(profile, partition), float(work.duration_s.sum())
    doubt = _DOUBT_WITHOUT_PROBE if profile.mps is None else _DOUBT
    end = doubt * log(busy_s / alone_s) if alone_s else 0.0
    if (waiting := work.waiting) is not None:
        slower = busy_s / alone_s
        return Interval(*(waiting.changed(gpu=slower * exp(away)).seconds()
                          for away in (-end, 0.0, end)))  # fmt: skip
    before = (alone_s + work.gaps_s) / profile.step_s
    after = [(busy_s * exp(away) + work.gaps_s) / profile.step_s for away in (-end, 0.0, end)]
    return Interval(*(profile.step_s * longer_step(before, each) for each in after))


def longer_step(before: float, after: float) -> float:
    """Return how many times as long a step takes, at least 1, once its GPU work takes longer.

    1 where the GPU's part stays as it was, and `after` where that is much more than a step.

    Args:
        before: Seconds of its GPU work over those of the step, alone on the whole GPU.
        after: Seconds of its GPU work on the partition over those of the step before.
    """
    grown = max(before, after) ** _SHARPNESS - min(1.0, before) ** _SHARPNESS
    return float(max(1.0, after, (1 + max(0.0, grown)) ** (1 / _SHARPNESS)))


def _probe_on(
    probe: MpsProbe, profile: Profile, partition: Partition, physics: Physics
) -> MpsProbe:
    """`probe` at the same per cents of the partition, computed for the job alone."""
    whole_s = step_on(profile, partition, physics).p50

    def limited(run: LimitedRun) -> LimitedRun:
        left = partition.limited(run.limit_pct)
        step_s = probe.unlimited.step_s * step_on(profile, left, physics).p50 / whole_s
        return replace(longer(run, step_s / run.step_s), sms=left.sms)

    return replace(
        probe,
        unlimited=replace(probe.unlimited, sms=partition.sms),
        limited=tuple(map(limited, probe.limited)),
    )
