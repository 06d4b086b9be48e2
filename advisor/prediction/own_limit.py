"""Steps under MPS limits that differ, such that a job never slows when its limit is raised.

Replay and correction at each limit would only nearly satisfy that. So a job is replayed at a few
limits of its own that do not depend on the limit asked for, its *anchors*, with its mates at
theirs: the mean of its mates' limits, and a few rungs above or below. Between two anchors the
answer follows the surrogate model's curve, which only falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.cache import once_a_profile
from advisor.prediction.model_file import Model
from advisor.prediction.physics import Physics
from advisor.prediction.replay import Effort
from advisor.prediction.residual import Mix, ReplayFunction, by_replay
from advisor.prediction.surrogate import MixBatch
from advisor.prediction.surrogate_features import LIMIT_GRID, summaries
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.sharing.traversal import without_idle_limits
from advisor.workload.profile import Profile

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
