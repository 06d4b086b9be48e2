"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

The jobs of a partition share as on a GPU of that size. Compute instances have SMs of their own, and
the bandwidth and L2 of their GPU instance together.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log, sqrt
from typing import overload

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import place
from advisor.hardware.partition import Partition, partition_of, place_compute
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.capacity import contended
from advisor.prediction.host import engine_growth
from advisor.prediction.parts import AS_ALONE, busy_slowdown, slowdown_on, work_s
from advisor.prediction.prediction import LEVELS, Interval, interval_around
from advisor.prediction.replay import Physics
from advisor.prediction.trace import (
    Floats,
    ReplayTrace,
    demand,
    exponent_alone,
    measured_exponent,
    moving_s,
    replay_trace,
    slowdowns,
)
from advisor.sharing import Arrangement, Concurrent, Group, Hybrid, Instance, Place, Serial, Sharing
from advisor.sharing.groups import instance_sets, of_one_group, relocated
from advisor.workload.profile import LimitedRun, MpsProbe, Profile
from advisor.workload.profile_checks import at_pace, longer, thinned

# Log of the loss of kernels next to traffic that takes all of the bandwidth; nine in ten lose
# between nothing and twice that.
_OTHERS = 0.45
# Share of an H200's bandwidth that jobs use which fill its SMs, in the median.
_USUAL_TRAFFIC = 0.27

StepsOnGpu = Callable[[Sequence[Profile], Concurrent, Gpu], list[Interval]]
"""Seconds of a step of each job that shares a whole GPU."""
RangeAlone = Callable[[Profile], Interval]
"""Range of the step of a job alone on the whole GPU, over its median."""


def on_instances(
    profiles: Sequence[Profile],
    hybrid: Hybrid,
    gpu: Gpu,
    physics: Physics,
    steps: StepsOnGpu,
    alone: RangeAlone,
) -> list[Interval]:
    """Predict seconds of a step of each job, in the jobs' order; `steps` answers for whole GPUs."""
    by_job: dict[int, Interval] = {}
    for held in hybrid.places:
        by_job |= _on_place(profiles, held, gpu, physics, steps, alone)
    return [by_job[job] for job in sorted(by_job)]


def _on_place(
    profiles: Sequence[Profile],
    place: Place,
    gpu: Gpu,
    physics: Physics,
    steps: StepsOnGpu,
    alone: RangeAlone,
) -> dict[int, Interval]:
    """Predict seconds of a step of each job on one GPU instance, by number."""
    instance = partition_of(gpu, place.instance.profile)
    apart: dict[int, Interval] = {}  # as if no job were on the other parts
    moved: dict[int, Profile] = {}
    traffic: dict[int, float] = {}  # shares of the instance's bandwidth
    for part in place.parts:
        partition = partition_of(gpu, place.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        here = [on_partition(each, partition, physics) for each in jobs]
        assert not isinstance(part.sharing, Serial), "of jobs in line, one is predicted at a time"
        answers = steps(here, part.sharing, partition.as_gpu)
        for job, profile, own, step_s in zip(part.jobs, jobs, here, answers, strict=True):
            moved[job], apart[job] = own, step_on(profile, partition, physics, alone(profile))
            if len(jobs) > 1 or part.sharing.limits:
                here_s = step_on(profile, partition, physics)
                together_s = step_s.times(here_s.scaled(1 / here_s.p50))
                apart[job] = together_s.at_least(apart[job])
            dram = None if own.counters is None else own.counters.dram_active
            traffic[job] = _USUAL_TRAFFIC * partition.sms / instance.sms if dram is None else dram
        apart |= _filling({job: apart[job] for job in part.jobs}, profiles, partition)
    if len(place.parts) == 1:
        return apart
    slowed = {}
    for part in place.parts:
        others = sum(share for job, share in traffic.items() if job not in part.jobs)
        for job in part.jobs:
            slowed[job] = apart[job].times(slowed_by_traffic(others, moved[job].busy_share))
    moving = np.array([moving_s(each) for each in moved.values()])
    together_s = contended(np.array([each.p50 for each in slowed.values()]), moving, 1.0).tolist()
    moved_s = {
        job: each.scaled(step_s / each.p50)
        for (job, each), step_s in zip(slowed.items(), together_s, strict=True)
    }
    return _filling(moved_s, profiles, instance)


def _filling(
    steps: dict[int, Interval], profiles: Sequence[Profile], partition: Partition
) -> dict[int, Interval]:
    """Return `steps` of jobs on a part, by number, in which they fill it all the time at most."""
    jobs = [profiles[job - 1] for job in steps]
    # Replay does so by itself: only steps of jobs without a trace may be too short.
    if len(jobs) == 1 or all(each.trace is not None for each in jobs):
        return steps
    fills_s = [work_s(each, partition) for each in jobs]
    ends = []
    for level in LEVELS:
        free_s, full_s = (
            np.array([each.at(level) for each in them]) for them in (steps.values(), fills_s)
        )
        ends.append(contended(free_s, full_s, 1.0))
    # Where the slowest of the others leaves more, a job's own middle is its upper end.
    by_job = np.maximum.accumulate(ends).T.tolist()
    return {job: Interval(*each) for job, each in zip(steps, by_job, strict=True)}


def slowed_by_traffic(others: float, busy: float | None) -> Interval:
    """Return how many times as long a step takes next to jobs that use a share of its bandwidth.

    These `others` run on other SMs; `busy` is its share of time on the GPU, None: all of it.
    """
    longer = _OTHERS * sqrt(others)
    return Interval(
        *(
            max(1.0, (1.0 if busy is None else min(1.0, busy)) * exp(each))
            for each in (0.0, longer, 2 * longer)
        )
    )


def as_whole_gpu(sharing: Arrangement, gpu: Gpu) -> Arrangement:
    """Return a sharing of the whole GPU if the only instance is all of it; else `sharing`."""
    if sets := instance_sets(sharing):
        first, *others = sets[0].partitions
        if not others and partition_of(gpu, sets[0].instances[0].profile, first.slices).whole:
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
        for held in hybrid.places:
            sizes = [part.slices for part in held.partitions if part.slices is not None]
            if sizes:
                place_compute(gpu, held.instance.profile, sizes)
    return relocated(sharing, starts)


_OF_SMS = ("sm_active", "sm_occupancy", "tensor_active")
_OF_BANDWIDTH = ("dram_active", "memory_utilization")


@cached_by_profiles
def on_partition(profile: Profile, partition: Partition, physics: Physics) -> Profile:
    """Return `profile` of the job alone on a part of its GPU; its shares are of that part.

    Kernels slow by `advisor.prediction.trace.slowdowns`. Their loss with L2 is not modelled apart
    from bandwidth, because a slice has as much of both. Jobs without a trace slow by the law of
    `advisor.prediction.parts`.
    """
    if partition.whole:
        return profile
    played = replay_trace(profile, partition.gpu.sms, physics.packing)
    if played is None:
        busier = busy_slowdown(profile, partition)
    else:
        busy_s = float(played.duration_s.sum())
        busier = _busy_s(played, profile, partition) / busy_s if busy_s else 1.0
    step_s = step_on(profile, partition, physics).p50
    stretch = step_s / profile.step_s
    of_sms = dict.fromkeys(_OF_SMS, 1 / partition.sm_share)
    of_bandwidth = dict.fromkeys(_OF_BANDWIDTH, 1 / partition.bandwidth_share)
    grown = of_sms | of_bandwidth | {"gract": engine_growth(profile, busier)}
    slower, trace, gpu = at_pace(profile, stretch), profile.trace, partition.gpu
    if trace is not None:
        demanded, exponent = demand(trace, gpu.sms, physics.packing), exponent_alone(profile, gpu)
        us = np.asarray(trace.duration_us) * slowdowns(demanded, profile, partition, exponent)
        trace = replace(trace, duration_us=tuple(us.tolist()))
    else:
        slower = replace(slower, power_w=_fuller_w(profile, partition, stretch))
    return replace(
        slower,
        gpu_s=profile.gpu_s and profile.gpu_s * busier,
        counters=profile.counters and thinned(profile.counters, stretch, grown),
        mps=slower.mps and _probe_on(slower.mps, profile, partition, physics, step_s),
        trace=trace,
        sm_exponent=measured_exponent(profile, gpu),
        epoch_end=profile.epoch_end and profile.epoch_end.changed(steps=stretch),
    )


# Share of an H200's and an H100's power limit that they draw while awake.
_AWAKE = 0.15


def _fuller_w(profile: Profile, partition: Partition, stretch: float) -> float | None:
    """Return the power of a whole GPU as full as the job makes the part, whose steps are longer."""
    power_w, limit_w = profile.power_w, partition.gpu.power_limit_w
    if power_w is None or limit_w is None:
        return power_w
    awake_w = min(power_w, _AWAKE * limit_w)
    added_w = (power_w - awake_w) / (stretch * partition.sm_share)
    return max(power_w, min(limit_w, awake_w + added_w))


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


def _slowdowns(played: ReplayTrace, profile: Profile, partition: Partition) -> Floats:
    return slowdowns(played.demand, profile, partition, exponent_alone(profile, partition.gpu))


def _busy_s(played: ReplayTrace, profile: Profile, partition: Partition) -> float:
    return float((played.duration_s * _slowdowns(played, profile, partition)).sum())


def sm_time(profile: Profile, partition: Partition, physics: Physics) -> float:
    """Return SMs times seconds that a step keeps busy on a partition, over those on the whole GPU.

    Kernels that slow by less than in proportion keep fewer SMs busy for a shorter time. 1 without a
    trace.
    """
    played = replay_trace(profile, partition.gpu.sms, physics.packing)
    if played is None:
        return 1.0
    part_s = played.duration_s * _slowdowns(played, profile, partition)
    whole = float((played.duration_s * played.demand).sum())
    on_part = float((part_s * np.minimum(played.demand, partition.sm_share)).sum())
    return on_part / whole if whole else 1.0


def step_on(
    profile: Profile, partition: Partition, physics: Physics, alone: Interval = AS_ALONE
) -> Interval:
    """Return seconds of a step on a partition, by the slower of host and GPU.

    If the host waits for the GPU, both set the pace. `alone` is the range of the step alone on the
    whole GPU, over its median: a slower GPU hides a part of a slower host.
    """
    played = replay_trace(profile, partition.gpu.sms, physics.packing)
    if played is None:
        return slowdown_on(profile, partition, alone).scaled(profile.step_s)
    busy_s, alone_s = _busy_s(played, profile, partition), float(played.duration_s.sum())
    doubt = _DOUBT_WITHOUT_PROBE if profile.mps is None else _DOUBT
    end = doubt * log(busy_s / alone_s) if alone_s else 0.0
    slower_s = [busy_s * exp(away) for away in (-end, 0.0, end)]
    if (waiting := played.waiting) is not None:
        growths = [waiting.growth(gpu=each / alone_s) for each in slower_s]
    else:
        gaps_s, round_s = played.gap_s * len(played.demand), profile.step_s * played.steps
        before, *after = ((each + gaps_s) / round_s for each in (alone_s, *slower_s))
        growths = [longer_step(before, each) for each in after]
    by_gpu = growths[1] ** _SHARPNESS - 1
    ends = ((each**_SHARPNESS + by_gpu) ** (1 / _SHARPNESS) for each in (alone.p05, alone.p95))
    low, high = (log(each / growths[1]) for each in ends)
    by_host = interval_around(1.0, min(0.0, low), max(0.0, high))
    return Interval(*growths).times(by_host).scaled(profile.step_s)


def longer_step(before: float, after: float) -> float:
    """Return how many times as long a step takes, at least 1, once its GPU work takes longer.

    `before` and `after` are seconds of GPU work, on the whole GPU and on the partition, over those
    of the step on the whole GPU.
    """
    grown = max(before, after) ** _SHARPNESS - min(1.0, before) ** _SHARPNESS
    return float(max(1.0, after, (1 + max(0.0, grown)) ** (1 / _SHARPNESS)))


def _probe_on(
    probe: MpsProbe, profile: Profile, partition: Partition, physics: Physics, whole_s: float
) -> MpsProbe:
    """Compute `probe` at the same per cents of the partition, on all of which a step takes that."""

    def limited(run: LimitedRun) -> LimitedRun:
        left = partition.limited(run.limit_pct)
        step_s = probe.unlimited.step_s * step_on(profile, left, physics).p50 / whole_s
        return replace(longer(run, step_s / run.step_s), sms=left.sms)

    return replace(
        probe,
        unlimited=replace(probe.unlimited, sms=partition.sms),
        limited=tuple(map(limited, probe.limited)),
    )
