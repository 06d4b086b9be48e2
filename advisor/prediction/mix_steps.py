"""Steps of jobs in a mix: by replay and correction, or by the surrogate model for searching."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, whole_gpu
from advisor.prediction.cache import answer_all, once_a_profile, one_thread
from advisor.prediction.correction import features, others_spread, wider_bounds
from advisor.prediction.memory import edge_for, leaves_free, need, upper_end_mib
from advisor.prediction.mig_instances import on_partition
from advisor.prediction.model import Model, OwnPace, at_own_pace, step_of
from advisor.prediction.power import PowerLaw
from advisor.prediction.prediction import MixPrediction, all_known
from advisor.prediction.replay import (
    Effort,
    Physics,
    Replayed,
    combined_variants,
    replay_mix,
    replay_variants,
)
from advisor.prediction.surrogate import (
    LIMIT_GRID,
    MixBatch,
    Summaries,
    SurrogateModel,
    joined,
    summaries,
)
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Concurrent, Mode, Mps
from advisor.sharing.groups import without_idle_limits
from advisor.workload.profile import Profile

# A short replay suffices to choose among mixes.
_TO_CHOOSE = Effort(events=4_000)

# `replay_mix`, or a function that caches its answers.
ReplayFunction = Callable[[Sequence[Profile], Concurrent, Gpu, Physics, Effort], Floats | None]


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs that share a GPU, and the `positions` of those to predict."""

    profiles: tuple[Profile, ...]
    sharing: Concurrent
    positions: tuple[int, ...]
    effort: Effort = Effort()  # noqa: RUF009 - frozen


def by_replay(
    mixes: Sequence[Mix], gpu: Gpu, model: Model, play: ReplayFunction = replay_mix
) -> list[Floats] | None:
    """Predict steps of the jobs at `positions`, seconds: lower end, middle, upper end of 90 %.

    Args:
        mixes: At least one.
        gpu: The GPU that all share.
        model: Its physics and corrections by mode.
        play: Replays a mix.

    Returns:
        Of each mix, shape (3, positions); None without traces, or without a correction of a mode.
    """
    modes = [mix.sharing.mode for mix in mixes]
    steps: dict[int, Floats] = {}
    for mode in dict.fromkeys(modes):
        chosen = [at for at, other in enumerate(modes) if other == mode]
        answers = _of_one_mode([mixes[at] for at in chosen], gpu, model, play)
        if answers is None:
            return None
        steps |= zip(chosen, answers, strict=True)
    return [steps[at] for at in range(len(mixes))]


def _of_one_mode(
    mixes: Sequence[Mix], gpu: Gpu, model: Model, play: ReplayFunction
) -> list[Floats] | None:
    sharing, physics = mixes[0].sharing, model.of(gpu).physics
    correction = model.corrections.get(sharing.mode)
    variants = [replay_variants(mix.sharing, physics, mix.effort) for mix in mixes]
    played = iter(answer_all(
        lambda each: play(each[0].profiles, each[0].sharing, gpu, *each[1]),
        [(mix, way) for mix, some in zip(mixes, variants, strict=True) for way in some],
    ))  # fmt: skip
    replays = all_known(combined_variants([next(played) for _ in some]) for some in variants)
    if correction is None or replays is None:
        return None
    pairs = list(zip(mixes, replays, strict=True))
    rows = [features(mix.profiles, mix.sharing, gpu, replayed) for mix, replayed in pairs]
    chosen = np.concatenate([x[list(mix.positions)] for x, mix in zip(rows, mixes, strict=True)])
    jobs = [mix.profiles[at] for mix in mixes for at in mix.positions]
    replayed_s = np.concatenate([replayed.steps_s[list(mix.positions)] for mix, replayed in pairs])
    with one_thread():
        near, alone_s = correction.near(chosen), np.array([each.step_s for each in jobs])
        middle = corrected(replayed_s, correction.log_correction(near), alone_s)
        low, high = correction.log_bounds(jobs, near, middle)
        if sharing.mode == "naive":
            spreads = [
                others_spread(mix.profiles, replayed.steps_s)[list(mix.positions)]
                for mix, replayed in pairs
            ]
            low, high = wider_bounds(low, high, np.concatenate(spreads))
    ends = np.cumsum([len(mix.positions) for mix in mixes])[:-1]
    return np.split(np.array([middle * np.exp(low), middle, middle * np.exp(high)]), ends, axis=1)


def corrected(replayed_s: Floats, log_correction: Floats, alone_s: Floats) -> Floats:
    """Return replayed steps times their correction; no job gets faster by sharing."""
    return np.asarray(np.maximum(replayed_s * np.exp(log_correction), alone_s))


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
        others: Places of the other jobs, in order.
        sharing: Of all jobs.
    """

    place: int
    others: tuple[int, ...]
    sharing: Mps

    @property
    def own(self) -> float:
        return self.sharing.limits[self.place]

    @property
    def centre(self) -> float:
        """Mean limit of the others; exactly their limit if they all have one."""
        limits = [self.sharing.limits[at] for at in self.others]
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
    """Predict seconds of a step: lower end, middle and upper end of 90 %, shape (3, jobs).

    A job never slows when its limit is raised. So a job is replayed at a few limits of its own that
    do not depend on its limit, its anchors: the mean of the others' limits, and a few rungs above
    or below. Between two anchors the answer follows the surrogate model's curve, which only falls.
    Copies of a job with the same limit get one answer. None without traces or correction of limits.
    """
    kinds = list(zip([each.name for each in profiles], sharing.limits, strict=True))
    order = sorted(range(len(kinds)), key=lambda at: kinds[at])
    places = {kind: at for at, kind in reversed(list(enumerate(kinds)))}
    jobs = [_Job(place, tuple(at for at in order if at != place), sharing)
            for place in places.values()]  # fmt: skip
    steps = by_replay(
        [_mix(profiles, job, anchor) for job in jobs for anchor in job.anchors], gpu, model, play
    )
    if steps is None:
        return None
    replayed, curves = iter(steps), _curves(profiles, jobs, gpu, model)
    logs = [_between(job, [np.log(next(replayed)[:, 0]) for _ in job.anchors], curve)
            for job, curve in zip(jobs, curves, strict=True)]  # fmt: skip
    answers = dict(zip(places, logs, strict=True))
    return np.asarray(np.exp([answers[kind] for kind in kinds]).T)


def alone_under_limit(
    profile: Profile, limit: float, gpu: Gpu, physics: Physics, play: ReplayFunction
) -> float | None:
    """Return seconds of a step of a job alone under `limit`, in per cent; None without a trace."""
    curve = _alone(profile, gpu, physics, play)
    return None if curve is None else float(np.exp(np.interp(np.log(limit), np.log(_ALONE), curve)))


@once_a_profile
def _alone(profile: Profile, gpu: Gpu, physics: Physics, play: ReplayFunction) -> Floats | None:
    """Log of the fastest step at `_ALONE` and below, shape (limits,)."""
    steps = [play([profile], Mps((float(each),)), gpu, physics, Effort()) for each in _ALONE]
    steps_s = [each[0] for each in steps if each is not None]
    return np.minimum.accumulate(np.log(steps_s)) if steps_s else None


def _mix(profiles: Sequence[Profile], job: _Job, anchor: float) -> Mix:
    """The mix that is replayed for `job` at `anchor`."""
    sharing = without_idle_limits(replace(job.sharing, limits=job.at(anchor)))
    if len(set(sharing.limits)) <= 1:
        return Mix(tuple(profiles), sharing, (job.place,))
    order = (job.place, *job.others)
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
    limits = [[job.own, *job.anchors] for job in jobs]
    seen = summaries(profiles, gpu, model.of(gpu).physics)
    if seen is None or model.distilled is None or "mps-limits" not in model.distilled.surrogates:
        return [-np.log(each) for each in limits]
    vectors = np.array([job.at(limit) for job, some in zip(jobs, limits, strict=True)
                        for limit in some])  # fmt: skip
    places = np.broadcast_to(np.arange(len(profiles)), vectors.shape)
    steps_s = model.distilled.steps(seen, MixBatch(places, vectors), "mps-limits")
    ends = np.cumsum([len(some) for some in limits])[:-1]
    parts = np.split(np.log(steps_s), ends)
    return [part[:, job.place] for part, job in zip(parts, jobs, strict=True)]


def _between(job: _Job, logs: Sequence[Floats], curve: Floats) -> Floats:
    """Log of lower end, middle and upper end at the job's limit, from those at its anchors."""
    own, *at = curve
    slower = job.own < job.centre
    chain = list(accumulate(logs, np.maximum if slower else np.minimum))
    below = max(0.0, own - at[-1]) if job.own < min(job.anchors) else 0.0
    if len(chain) == 1:
        return np.asarray(chain[0] + below)
    if abs(at[-1] - at[-2]) > _FLAT:
        part = (own - at[-2]) / (at[-1] - at[-2])
    else:
        near, far = job.anchors[-2:]
        part = np.log(job.own / near) / np.log(far / near)
    return np.asarray(chain[-2] + np.clip(part, 0.0, 1.0) * (chain[-1] - chain[-2]) + below)


_Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """A partition of the GPU, and how jobs share it.

    Attributes:
        limit: MPS limit of each job, in per cent; None: no limit.
    """

    partition: Partition
    sharing: Concurrent
    limit: float | None = None

    @property
    def mode(self) -> Mode:
        """The mode of jobs that share the whole GPU like this."""
        return self.sharing.mode if self.limit is None else "mps-limits"


@dataclass(frozen=True, slots=True)
class SurrogateAnswers:
    """Estimates by the surrogate model for sets of jobs in any partition."""

    profiles: tuple[Profile, ...]
    gpu: Gpu
    model: Model

    def steps(self, sets: Sequence[tuple[Tenancy, _Places]]) -> list[Floats]:
        """Return seconds of a step, each shape (sets, places); NaN where a place is empty.

        Args:
            sets: Tenancies, each with the profile in each place of its sets, -1 for none; all of
                one width.
        """
        distilled = self.model.distilled
        assert distilled is not None, "estimates need a surrogate model"
        modes = [each.mode if each.mode in distilled.surrogates else "mps" for each, _ in sets]
        steps: dict[int, Floats] = {}
        for mode in dict.fromkeys(modes):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            steps_s = distilled.steps(*self._joined([sets[at] for at in chosen]), mode)
            ends = np.cumsum([len(sets[at][1]) for at in chosen])
            steps |= zip(chosen, np.split(steps_s, ends[:-1]), strict=True)
        return [steps[at] for at in range(len(sets))]

    def _joined(self, sets: Sequence[tuple[Tenancy, _Places]]) -> tuple[Summaries, MixBatch]:
        """All sets as mixes of jobs that differ from partition to partition."""
        partitions = list(dict.fromkeys(tenancy.partition for tenancy, _ in sets))
        first = {each: at * len(self.profiles) for at, each in enumerate(partitions)}
        jobs, physics = [], self.model.of(self.gpu).physics
        for partition in partitions:
            moved = [on_partition(each, partition, physics) for each in self.profiles]
            summary = summaries(moved, partition.as_gpu, physics)
            assert summary is not None, "only profiles with traces and counters are estimated"
            jobs.append(summary)
        places = [
            np.where(each < 0, each, each + first[tenancy.partition]) for tenancy, each in sets
        ]
        limits = [np.full(each.shape, tenancy.limit or 100.0) for tenancy, each in sets]
        return joined(jobs), MixBatch(np.concatenate(places), np.concatenate(limits))

    def fits(
        self, tenancy: Tenancy, counts: _Places, most_risk: float, margin: float
    ) -> NDArray[np.bool_]:
        """Return whether sets of jobs fit in memory, shape (sets,).

        Args:
            tenancy: Partition and sharing.
            counts: Number of jobs of each profile, shape (sets, profiles).
            most_risk: Highest chance of running out that is allowed, 0..1.
            margin: Share of the memory that the jobs' upper ends must leave free.
        """
        under_mps = tenancy.sharing.under_mps
        part = (
            tenancy.partition if tenancy.limit is None else tenancy.partition.limited(tenancy.limit)
        )
        own, taken = self.model.of(self.gpu), self.gpu.sms - part.sms
        needs = [
            need(each, own.context, under_mps=under_mps, sms_taken=taken) for each in self.profiles
        ]
        held_mib = counts @ np.array([each.held_mib for each in needs])
        cache_mib = np.sqrt(counts @ np.array([each.cache_mib**2 for each in needs]))
        capacity_mib = tenancy.partition.memory_mib - own.mps_server_mib * under_mps
        sigma = self.model.memory_sigma
        alone, several = (
            edge_for(own.memory_edges, tenancy.mode, processes, sigma).allows(
                held_mib, cache_mib, capacity_mib, most_risk
            )
            for processes in (1, 2)
        )
        fits = np.where(counts.sum(axis=1) == 1, alone, several)
        upper_mib = upper_end_mib(held_mib, sigma)
        return fits & leaves_free(upper_mib, capacity_mib, margin) if margin else fits

    def added_w(self, tenancy: Tenancy, steps_s: Floats) -> Floats:
        """Return what a job of each profile adds to an awake GPU's power, shape (sets, profiles).

        `steps_s` are seconds of a step of a job of each profile, in the same shape.
        """
        whole, power = tenancy.partition.whole, self.model.of(self.gpu).power
        law = power.laws.get(tenancy.mode, PowerLaw()) if whole else PowerLaw()
        speeds = np.array([each.step_s for each in self.profiles]) / steps_s
        return power.added_w(self.profiles, speeds, law)


@dataclass(frozen=True, slots=True)
class SurrogatePredictor:
    """Estimates by the surrogate model for one set of jobs.

    Attributes:
        answers: Answers about subsets of the jobs, and partitions of the GPU.
    """

    distilled: SurrogateModel
    jobs: Summaries
    answers: SurrogateAnswers

    def knows(self, mode: Mode) -> bool:
        """Whether `mode` has a surrogate and a correction of replay."""
        return mode in self.distilled.surrogates and mode in self.answers.model.corrections

    def fit(self, limit: float, most_risk: float) -> bool:
        """Return whether all jobs at once fit in memory, each under `limit`, in per cent.

        `most_risk` is the highest chance of running out that is allowed, 0..1.
        """
        tenancy = Tenancy(whole_gpu(self.answers.gpu), Mps(), limit)
        counts = np.ones((1, len(self.answers.profiles)), dtype=np.intp)
        return bool(self.answers.fits(tenancy, counts, most_risk, 0.0)[0])

    def limited(self, limits: Floats, running: NDArray[np.bool_] | None = None) -> Floats:
        """Return seconds of a step of each job under MPS limits in per cent, shape (mixes, jobs).

        `running` is False for jobs that have ended, whose step is NaN; None: all run.
        """
        jobs = np.broadcast_to(np.arange(limits.shape[1]), limits.shape)
        jobs = jobs if running is None else np.where(running, jobs, -1)
        return self.distilled.steps(self.jobs, MixBatch(jobs, limits), "mps-limits")

    def replayed(self, sharings: Sequence[Mps]) -> Floats:
        """Return steps under sharings with limits by a short replay: more accurate than `limited`.

        It is corrected without uncertainty of the constants.
        """
        profiles, gpu, model = self.answers.profiles, self.answers.gpu, self.answers.model
        physics, correction = model.of(gpu).physics, model.corrections["mps-limits"]
        replays = answer_all(
            lambda each: replay_mix(profiles, each, gpu, physics, _TO_CHOOSE), sharings
        )
        alone_s, steps = np.array([each.step_s for each in profiles]), []
        with one_thread():
            for sharing, replayed_s in zip(sharings, replays, strict=True):
                assert replayed_s is not None, "only profiles with traces are estimated"
                rows = features(profiles, sharing, gpu, Replayed(*[replayed_s] * 3))
                log_correction = correction.log_correction(correction.near(rows))
                steps.append(corrected(replayed_s, log_correction, alone_s))
        return np.array(steps)


def surrogate_predictor(
    profiles: Sequence[Profile], gpu: Gpu, model: Model
) -> SurrogatePredictor | None:
    """Return the surrogate for `profiles`; None without a surrogate model, traces or counters."""
    if model.distilled is None:
        return None
    if (jobs := summaries(profiles, gpu, model.of(gpu).physics)) is None:
        return None
    return SurrogatePredictor(model.distilled, jobs, SurrogateAnswers(tuple(profiles), gpu, model))


class Predicts(Protocol):
    """A predictor of mixes, as `advisor.prediction.predictor.Predictor` is."""

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction: ...

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None: ...


@dataclass(frozen=True, slots=True)
class PacedPredictor:
    """Predicts as `predictor` does, each job as fast as in the user's own runs behind `paces`.

    A job's slowdown is relative to the job alone at that pace. Its steps together with others get
    the factor of its own runs; the other jobs have factors of their own.
    """

    predictor: Predicts
    paces: Mapping[str, OwnPace]

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict as `advisor.prediction.predictor.Predictor.predict`."""
        mix = self.predictor.predict(self._paced(profiles), sharing)
        mode = without_idle_limits(sharing).mode
        own = [step_of(profile, self.paces, mode) for profile in profiles]
        if len(profiles) == 1 or not any(own):
            return mix
        jobs = tuple(
            job if step is None else job.longer(step.factor_at(job.slowdown))
            for job, step in zip(mix.jobs, own, strict=True)
        )
        return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the predictor's surrogate, without factors on steps: `predict` adds them later."""
        return self.predictor.surrogate(self._paced(profiles))

    def _paced(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        return tuple(at_own_pace(profile, self.paces) for profile in profiles)
