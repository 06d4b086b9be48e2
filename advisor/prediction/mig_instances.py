"""Jobs on MIG instances, alone or several on one: estimated, never confirmed on MIG hardware.

Each job's profile is moved to its partition; there, the jobs of a partition share as on a GPU of
that size, for which the model of whole GPUs answers. Compute instances have SMs of their own, and
the bandwidth and L2 of their GPU instance together. So have jobs under MPS limits that add up to at
most 100 %: 744 steps of such jobs on an H200 are 23 % longer than under the same limit alone, with
others' traffic as `_OTHERS` says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, sqrt
from typing import overload

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import place
from advisor.hardware.partition import Partition, partition_of, place_compute
from advisor.prediction.cache import once_a_profile
from advisor.prediction.capacity import contended
from advisor.prediction.kernels import moving_s
from advisor.prediction.model import Model
from advisor.prediction.other_gpu import on_partition, step_on
from advisor.prediction.prediction import Interval
from advisor.prediction.replay import Effort, Physics
from advisor.prediction.residual import Mix, ReplayFunction, by_replay
from advisor.prediction.surrogate import LIMIT_GRID, MixBatch, summaries
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Group, Hybrid, Instance, Mps, Place, Sharing
from advisor.sharing.groups import instance_sets, of_one_group, relocated, without_idle_limits
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


_RUNGS = (14.0, 36.0, 100.0)  # a seventh, as MIG's smallest share, all, and midway between

# At each anchor, for each of the jobs that share, and at least. With all the events that a mix has
# by itself, limits of 3 to 8 unseen jobs were predicted no better; with a fifth less, worse.
_EVENTS, _LEAST_EVENTS = 5_000, 20_000

# At which a job that is left alone is replayed, in per cent. Clients get two SMs at least.
_ALONE = (1, 3, *LIMIT_GRID)

# If the curve falls by less between two anchors, it is not used between them.
_FLAT = 1e-3


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that differs from the others in profile or limit.

    Attributes:
        place: First place with that profile and limit.
        mates: Places of the other jobs, in order.
        sharing: Of all jobs.
    """

    place: int
    mates: tuple[int, ...]
    sharing: Mps

    @property
    def own(self) -> float:
        return self.sharing.limits[self.place]

    @property
    def centre(self) -> float:
        """Mean limit of its mates; exactly their limit if they all have one."""
        limits = [self.sharing.limits[mate] for mate in self.mates]
        return min(max(sum(limits) / len(limits), min(limits)), max(limits))

    @property
    def anchors(self) -> tuple[float, ...]:
        """The centre, and the rungs from there to the first at or beyond its own limit."""
        if self.own > self.centre:
            rungs = [each for each in _RUNGS if each > self.centre]
            passed = [each for each in rungs if each < self.own]
        else:
            rungs = [each for each in reversed(_RUNGS) if each < self.centre]
            passed = [each for each in rungs if each > self.own]
        further = rungs[: len(passed) + 1] if self.own != self.centre else []
        return (self.centre, *further)

    def at(self, limit: float) -> tuple[float, ...]:
        """Limits of all jobs if its own limit were `limit`."""
        limits = enumerate(self.sharing.limits)
        return tuple(limit if at == self.place else each for at, each in limits)


def under_unequal_limits(
    profiles: Sequence[Profile],
    sharing: Mps,
    gpu: Gpu,
    model: Model,
    play: ReplayFunction,
) -> Floats | None:
    """Seconds of a step of each job: lower end, middle and upper end of 90 %, shape (3, jobs).

    Copies of a job with the same limit get one answer.

    Returns:
        None without traces, or without a correction of limits.
    """
    kinds = list(zip([each.name for each in profiles], sharing.limits, strict=True))
    order = sorted(range(len(kinds)), key=lambda at: kinds[at])
    places = {kind: at for at, kind in reversed(list(enumerate(kinds)))}
    jobs = [_Job(place, tuple(at for at in order if at != place), sharing)
            for place in places.values()]  # fmt: skip
    mixes = [_mix(profiles, job, anchor) for job in jobs for anchor in job.anchors]
    found = by_replay(mixes, gpu, model, play)
    if found is None:
        return None
    replayed, curves = iter(found), _curves(profiles, jobs, gpu, model)
    logs = [_between(job, [np.log(next(replayed)[:, 0]) for _ in job.anchors], curve)
            for job, curve in zip(jobs, curves, strict=True)]  # fmt: skip
    answers = dict(zip(places, logs, strict=True))
    return np.asarray(np.exp([answers[kind] for kind in kinds]).T)


def alone_under_limit(
    profile: Profile, limit: float, gpu: Gpu, physics: Physics, play: ReplayFunction
) -> float | None:
    """Seconds of a step of a job that is left alone under `limit`, in per cent.

    Returns:
        None without a trace.
    """
    curve = _alone(profile, gpu, physics, play)
    return None if curve is None else float(np.exp(np.interp(np.log(limit), np.log(_ALONE), curve)))


@once_a_profile
def _alone(profile: Profile, gpu: Gpu, physics: Physics, play: ReplayFunction) -> Floats | None:
    """Log of the fastest step at `_ALONE` and below, shape (limits,)."""
    found = [play([profile], Mps((float(each),)), gpu, physics, Effort()) for each in _ALONE]
    known = [each[0] for each in found if each is not None]
    return np.minimum.accumulate(np.log(known)) if known else None


def _mix(profiles: Sequence[Profile], job: _Job, anchor: float) -> Mix:
    """The mix that is replayed for `job` at `anchor`."""
    sharing = without_idle_limits(replace(job.sharing, limits=job.at(anchor)))
    if len(set(sharing.limits)) <= 1:
        return Mix(tuple(profiles), sharing, (job.place,))
    order = (job.place, *job.mates)
    return Mix(
        tuple(profiles[at] for at in order),
        sharing.among(order),
        (0,),
        Effort(events=max(_LEAST_EVENTS, _EVENTS * len(profiles))),
    )


def _curves(
    profiles: Sequence[Profile], jobs: Sequence[_Job], gpu: Gpu, model: Model
) -> list[Floats]:
    """Log steps of each job, but for a constant, at its own limit and at its anchors.

    By the surrogate model; without one each SM counts the same.
    """
    asked = [[job.own, *job.anchors] for job in jobs]
    seen = summaries(profiles, gpu, model.of(gpu).physics)
    if seen is None or model.distilled is None or "mps-limits" not in model.distilled.surrogates:
        return [-np.log(each) for each in asked]
    vectors = np.array([job.at(limit) for job, some in zip(jobs, asked, strict=True)
                        for limit in some])  # fmt: skip
    everyone = np.broadcast_to(np.arange(len(profiles)), vectors.shape)
    steps_s = model.distilled.steps(seen, MixBatch(everyone, vectors), "mps-limits")
    ends = np.cumsum([len(some) for some in asked])[:-1]
    parts = np.split(np.log(steps_s), ends)
    return [part[:, job.place] for part, job in zip(parts, jobs, strict=True)]


def _between(job: _Job, found: Sequence[Floats], curve: Floats) -> Floats:
    """Log of lower end, middle and upper end at the job's limit, from those at its anchors."""
    own, *at = curve
    slower = job.own < job.centre
    chain = list(accumulate(found, np.maximum if slower else np.minimum))
    below = max(0.0, own - at[-1]) if job.own < min(job.anchors) else 0.0
    if len(chain) == 1:
        return np.asarray(chain[0] + below)
    if abs(at[-1] - at[-2]) > _FLAT:
        part = (own - at[-2]) / (at[-1] - at[-2])
    else:
        near, far = job.anchors[-2:]
        part = np.log(job.own / near) / np.log(far / near)
    return np.asarray(chain[-2] + np.clip(part, 0.0, 1.0) * (chain[-1] - chain[-2]) + below)
