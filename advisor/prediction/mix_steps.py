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
from advisor.prediction.model import Model, OwnPace, at_own_pace, pace_of
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
    mixes: Sequence[Mix], gpu: Gpu, model: Model, replay: ReplayFunction = replay_mix
) -> list[Floats] | None:
    """Predict steps of the jobs at `positions`, seconds: lower end, middle, upper end of 90 %.

    Their shapes are (3, positions). None without traces, or without a correction of a mode.
    """
    modes = [mix.sharing.mode for mix in mixes]
    steps: dict[int, Floats] = {}
    for mode in dict.fromkeys(modes):
        chosen = [at for at, other in enumerate(modes) if other == mode]
        answers = _of_one_mode([mixes[at] for at in chosen], gpu, model, replay)
        if answers is None:
            return None
        steps |= zip(chosen, answers, strict=True)
    return [steps[at] for at in range(len(mixes))]


def _of_one_mode(
    mixes: Sequence[Mix], gpu: Gpu, model: Model, replay: ReplayFunction
) -> list[Floats] | None:
    sharing, physics = mixes[0].sharing, model.of(gpu).physics
    correction = model.corrections.get(sharing.mode)
    variants = [replay_variants(mix.sharing, physics, mix.effort) for mix in mixes]
    played = iter(answer_all(
        lambda each: replay(each[0].profiles, each[0].sharing, gpu, *each[1]),
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
        low, high = correction.doubt.log_bounds(jobs, middle, correction.spread(near))
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


def _anchors(limits: Sequence[float], place: int) -> tuple[float, ...]:
    """Return the limits at which the job at `place` is replayed, from the mean of the others on.

    The further ones are the rungs from there to the first at or beyond its own limit.
    """
    own, others = limits[place], [*limits[:place], *limits[place + 1 :]]
    # Exactly their limit if all others have the same.
    centre = min(max(sum(others) / len(others), min(others)), max(others))
    if own > centre:
        rungs = [each for each in _RUNGS if each > centre]
        passed = [each for each in rungs if each < own]
    else:
        rungs = [each for each in reversed(_RUNGS) if each < centre]
        passed = [each for each in rungs if each > own]
    return (centre, *(rungs[: len(passed) + 1] if own != centre else ()))


def under_unequal_limits(
    profiles: Sequence[Profile], sharing: Mps, gpu: Gpu, model: Model, replay: ReplayFunction
) -> Floats | None:
    """Predict seconds of a step: lower end, middle and upper end of 90 %, shape (3, jobs).

    A job never slows when its limit is raised. So a job is replayed at a few limits of its own that
    do not depend on its limit, its anchors: the mean of the others' limits, and a few rungs above
    or below. Between two anchors the answer follows the surrogate model's curve, which only falls.
    Copies of a job with the same limit get one answer. None without traces or correction of limits.
    """
    limits = sharing.limits
    kinds = list(zip([each.name for each in profiles], limits, strict=True))
    order = sorted(range(len(kinds)), key=kinds.__getitem__)
    places = {kind: at for at, kind in reversed(list(enumerate(kinds)))}
    anchors = {place: _anchors(limits, place) for place in places.values()}
    steps = by_replay(
        [_mix(profiles, sharing, order, place, anchor)
         for place, some in anchors.items() for anchor in some],
        gpu, model, replay,
    )  # fmt: skip
    if steps is None:
        return None
    logs, curves = iter(np.log(steps)[:, :, 0]), _curves(profiles, limits, anchors, gpu, model)
    answers = {
        place: _between(limits[place], some, [next(logs) for _ in some], curve)
        for (place, some), curve in zip(anchors.items(), curves, strict=True)
    }
    return np.asarray(np.exp([answers[places[kind]] for kind in kinds]).T)


def alone_s(
    profile: Profile, sharing: Concurrent, gpu: Gpu, model: Model, replay: ReplayFunction
) -> float:
    """Return seconds of a step of a job alone: measured, or replayed under a limit.

    Without a trace a limit is taken not to slow it.
    """
    curve = _alone(profile, gpu, model.of(gpu).physics, replay) if sharing.limits else None
    if curve is None:
        return profile.step_s
    return float(np.exp(np.interp(np.log(sharing.limits[0]), np.log(_ALONE), curve)))


@once_a_profile
def _alone(profile: Profile, gpu: Gpu, physics: Physics, replay: ReplayFunction) -> Floats | None:
    """Return the log of the fastest step at `_ALONE` and below, shape (limits,)."""
    steps = [replay([profile], Mps((float(each),)), gpu, physics, Effort()) for each in _ALONE]
    steps_s = [each[0] for each in steps if each is not None]
    return np.minimum.accumulate(np.log(steps_s)) if steps_s else None


def _at(limits: Sequence[float], place: int, limit: float) -> tuple[float, ...]:
    """Return `limits` with another `limit` at `place`."""
    return (*limits[:place], limit, *limits[place + 1 :])


def _mix(
    profiles: Sequence[Profile], sharing: Mps, order: Sequence[int], place: int, anchor: float
) -> Mix:
    """Return the mix to replay for the job at `place` under the limit `anchor`."""
    sharing = without_idle_limits(replace(sharing, limits=_at(sharing.limits, place, anchor)))
    if len(set(sharing.limits)) <= 1:
        return Mix(tuple(profiles), sharing, (place,))
    first = (place, *(at for at in order if at != place))
    effort = Effort(events=max(_LEAST_EVENTS, _EVENTS * len(profiles)))
    return Mix(tuple(profiles[at] for at in first), sharing.among(first), (0,), effort)


def _curves(
    profiles: Sequence[Profile],
    limits: Sequence[float],
    anchors: Mapping[int, Sequence[float]],
    gpu: Gpu,
    model: Model,
) -> list[Floats]:
    """Return log steps of each job, but for a constant, at its own limit and at its anchors.

    By the surrogate model; without one each SM counts the same.
    """
    points = {place: (limits[place], *some) for place, some in anchors.items()}
    jobs = summaries(profiles, gpu, model.of(gpu).physics)
    if jobs is None or model.distilled is None or "mps-limits" not in model.distilled.surrogates:
        return [-np.log(some) for some in points.values()]
    rows = [_at(limits, place, limit) for place, some in points.items() for limit in some]
    places = np.broadcast_to(np.arange(len(profiles)), (len(rows), len(profiles)))
    steps_s = model.distilled.steps(jobs, MixBatch(places, np.array(rows)), "mps-limits")
    ends = np.cumsum([len(some) for some in points.values()])[:-1]
    parts = np.split(np.log(steps_s), ends)
    return [part[:, place] for part, place in zip(parts, points, strict=True)]


def _between(own: float, anchors: Sequence[float], logs: Sequence[Floats], curve: Floats) -> Floats:
    """Return logs of lower end, middle and upper end at the limit `own`, from those at anchors."""
    here, *at = curve
    chain = list(accumulate(logs, np.maximum if own < anchors[0] else np.minimum))
    below = max(0.0, here - at[-1]) if own < min(anchors) else 0.0
    if len(chain) == 1:
        return np.asarray(chain[0] + below)
    if abs(at[-1] - at[-2]) > _FLAT:
        part = (here - at[-2]) / (at[-1] - at[-2])
    else:
        near, far = anchors[-2:]
        part = np.log(own / near) / np.log(far / near)
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
class SurrogatePredictor:
    """Estimates by the surrogate model for some jobs and subsets of them."""

    profiles: tuple[Profile, ...]
    gpu: Gpu
    model: Model

    @property
    def distilled(self) -> SurrogateModel:
        assert self.model.distilled is not None, "estimates need a surrogate model"
        return self.model.distilled

    @property
    def jobs(self) -> Summaries:
        """Return the features of the jobs on the whole GPU."""
        return self._summaries(self.profiles, self.gpu)

    def _summaries(self, profiles: Sequence[Profile], gpu: Gpu) -> Summaries:
        jobs = summaries(profiles, gpu, self.model.of(self.gpu).physics)
        assert jobs is not None, "only profiles with traces and counters are estimated"
        return jobs

    def steps(self, sets: Sequence[tuple[Tenancy, _Places]]) -> list[Floats]:
        """Return seconds of a step for each of `sets`, shapes (sets, places); NaN: an empty place.

        Each has the profile in each place of its sets, -1 for none; all are of one width.
        """
        fitted = self.distilled.surrogates
        modes = [each.mode if each.mode in fitted else "mps" for each, _ in sets]
        steps: dict[int, Floats] = {}
        for mode in dict.fromkeys(modes):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            steps_s = self.distilled.steps(*self._joined([sets[at] for at in chosen]), mode)
            ends = np.cumsum([len(sets[at][1]) for at in chosen])
            steps |= zip(chosen, np.split(steps_s, ends[:-1]), strict=True)
        return [steps[at] for at in range(len(sets))]

    def _joined(self, sets: Sequence[tuple[Tenancy, _Places]]) -> tuple[Summaries, MixBatch]:
        """Return all sets as mixes of jobs that differ from partition to partition."""
        partitions = list(dict.fromkeys(tenancy.partition for tenancy, _ in sets))
        physics, jobs = self.model.of(self.gpu).physics, []
        for partition in partitions:
            moved = [on_partition(each, partition, physics) for each in self.profiles]
            jobs.append(self._summaries(moved, partition.as_gpu))
        first = {each: at * len(self.profiles) for at, each in enumerate(partitions)}
        places = [
            np.where(each < 0, each, each + first[tenancy.partition]) for tenancy, each in sets
        ]
        limits = [np.full(each.shape, tenancy.limit or 100.0) for tenancy, each in sets]
        return joined(jobs), MixBatch(np.concatenate(places), np.concatenate(limits))

    def fits(
        self, tenancy: Tenancy, counts: _Places, most_risk: float, margin: float
    ) -> NDArray[np.bool_]:
        """Return whether sets of jobs fit in memory, shape (sets,).

        `counts` are numbers of jobs of each profile, shape (sets, profiles), `most_risk` the
        highest chance of running out, and `margin` the share of the memory that upper ends must
        leave free.
        """
        part, own = tenancy.partition, self.model.of(self.gpu)
        taken = self.gpu.sms - (part.limited(tenancy.limit) if tenancy.limit else part).sms
        under_mps, sigma = tenancy.sharing.under_mps, self.model.memory_sigma
        needs = [
            need(each, own.context, under_mps=under_mps, sms_taken=taken) for each in self.profiles
        ]
        held_mib = counts @ np.array([each.held_mib for each in needs])
        cache_mib = np.sqrt(counts @ np.array([each.cache_mib**2 for each in needs]))
        capacity_mib = part.memory_mib - own.mps_server_mib * under_mps
        alone, several = (
            edge_for(own.memory_edges, tenancy.mode, processes, sigma).allows(
                held_mib, cache_mib, capacity_mib, most_risk
            )
            for processes in (1, 2)
        )
        fits = np.where(counts.sum(axis=1) == 1, alone, several)
        upper_mib = upper_end_mib(held_mib, sigma)
        return fits & leaves_free(upper_mib, capacity_mib, margin) if margin else fits

    def fit(self, limit: float, most_risk: float) -> bool:
        """Return whether all jobs at once fit in memory, each under `limit`, in per cent."""
        tenancy = Tenancy(whole_gpu(self.gpu), Mps(), limit)
        counts = np.ones((1, len(self.profiles)), dtype=np.intp)
        return bool(self.fits(tenancy, counts, most_risk, 0.0)[0])

    def added_w(self, tenancy: Tenancy, steps_s: Floats) -> Floats:
        """Return what a job of each profile adds to an awake GPU's power, shape (sets, profiles).

        `steps_s` are seconds of a step of a job of each profile, in the same shape.
        """
        whole, power = tenancy.partition.whole, self.model.of(self.gpu).power
        law = power.laws.get(tenancy.mode, PowerLaw()) if whole else PowerLaw()
        speeds = np.array([each.step_s for each in self.profiles]) / steps_s
        return power.added_w(self.profiles, speeds, law)

    def knows(self, mode: Mode) -> bool:
        """Return whether `mode` has a surrogate and a correction of replay."""
        return mode in self.distilled.surrogates and mode in self.model.corrections

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
        profiles, physics = self.profiles, self.model.of(self.gpu).physics
        correction = self.model.corrections["mps-limits"]
        replays = answer_all(
            lambda each: replay_mix(profiles, each, self.gpu, physics, _TO_CHOOSE), sharings
        )
        alone_s, steps = np.array([each.step_s for each in profiles]), []
        with one_thread():
            for sharing, replayed_s in zip(sharings, replays, strict=True):
                assert replayed_s is not None, "only profiles with traces are estimated"
                rows = features(profiles, sharing, self.gpu, Replayed(*[replayed_s] * 3))
                log_correction = correction.log_correction(correction.near(rows))
                steps.append(corrected(replayed_s, log_correction, alone_s))
        return np.array(steps)


def surrogate_predictor(
    profiles: Sequence[Profile], gpu: Gpu, model: Model
) -> SurrogatePredictor | None:
    """Return the surrogate for `profiles`; None without a surrogate model, traces or counters."""
    if model.distilled is None or summaries(profiles, gpu, model.of(gpu).physics) is None:
        return None
    return SurrogatePredictor(tuple(profiles), gpu, model)


class Predicts(Protocol):
    """A predictor of mixes, as `advisor.prediction.predictor.Predictor` is."""

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction: ...

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None: ...


@dataclass(frozen=True, slots=True)
class PacedPredictor:
    """Predictor of jobs as fast as in the user's own runs behind `paces`.

    A job's slowdown is relative to the job alone at that pace. Its steps together with others get
    the factor of its own runs; the other jobs have factors of their own.
    """

    predictor: Predicts
    paces: Mapping[str, OwnPace]

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict as `advisor.prediction.predictor.Predictor.predict`."""
        mix = self.predictor.predict(self._paced(profiles), sharing)
        mode = without_idle_limits(sharing).mode
        paces = [pace_of(profile, self.paces) for profile in profiles]
        steps = [pace.beside.get(mode) if pace else None for pace in paces]
        if len(profiles) == 1 or not any(steps):
            return mix
        jobs = tuple(
            job if step is None else job.longer(step.factor_at(job.slowdown))
            for job, step in zip(mix.jobs, steps, strict=True)
        )
        return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the predictor's surrogate, without factors on steps: `predict` adds them later."""
        return self.predictor.surrogate(self._paced(profiles))

    def _paced(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        return tuple(at_own_pace(profile, self.paces) for profile in profiles)
