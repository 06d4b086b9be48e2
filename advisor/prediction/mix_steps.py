"""Steps of jobs in a mix: by replay and correction, or by the surrogate model for searching."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import Partition, whole_gpu
from advisor.prediction.cache import answer_all, cached_by_profiles, one_thread
from advisor.prediction.capacity import contended, steps_of_sets
from advisor.prediction.correction import corrected, features
from advisor.prediction.memory import edge_for, leaves_free, need, upper_end_mib
from advisor.prediction.mig_instances import on_partition
from advisor.prediction.model import Model
from advisor.prediction.parts import work_s
from advisor.prediction.power import PowerLaw
from advisor.prediction.prediction import MixPrediction
from advisor.prediction.replay import Effort, Physics, replay_mix
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
from advisor.workload.profile import Profile

# A short replay suffices to choose among mixes.
_TO_CHOOSE = Effort(events=4_000)

# `replay_mix`, or a function that caches its answers.
ReplayFunction = Callable[[Sequence[Profile], Concurrent, Gpu, Physics, Effort], Floats | None]


# Growth of an interval under limits if the job was not measured alone under some: errors of jobs
# that fill an H200 grow from 4.6 to 6.0 %.
_WITHOUT_PROBE = 1.3


def steps_together(
    profiles: Sequence[Profile],
    sharing: Concurrent,
    gpu: Gpu,
    model: Model,
    replay: ReplayFunction = replay_mix,
) -> Floats | None:
    """Predict seconds of a step: lower end, middle and upper end of 90 %, shape (3, jobs).

    None without traces, or if the model was not fitted to the mode. Each limit is replayed and
    corrected by itself, so a higher limit may slow a job, by 2.5 % at most from one to the next.
    """
    physics, intervals = model.of(gpu).physics, model.intervals.get(sharing.mode)
    replayed_s = None if intervals is None else replay(profiles, sharing, gpu, physics, Effort())
    if replayed_s is None or intervals is None:
        return None
    middle = corrected_steps(profiles, sharing, gpu, model, replayed_s)
    low, high = intervals.log_ends(profiles, middle)
    if sharing.limits:
        wider = np.array(
            [1.0 if each.mps and each.mps.limited else _WITHOUT_PROBE for each in profiles]
        )
        low, high = low * wider, high * wider
    return np.array([middle * np.exp(low), middle, middle * np.exp(high)])


def corrected_steps(
    profiles: Sequence[Profile], sharing: Concurrent, gpu: Gpu, model: Model, replayed_s: Floats
) -> Floats:
    """Return `replayed_s` corrected, shape (jobs,); under time slicing replay is not corrected."""
    if (correction := model.corrections.get(sharing.mode)) is None:
        return replayed_s
    rows = features(profiles, sharing, gpu, model.of(gpu).physics, replayed_s)
    alone_s = np.array([each.step_s for each in profiles])
    with one_thread():
        return corrected(replayed_s, correction.log_correction(rows), alone_s)


# At which a job that is left alone is replayed, in per cent. Clients get two SMs at least.
_ALONE = (1, 3, *LIMIT_GRID)


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


@cached_by_profiles
def _alone(profile: Profile, gpu: Gpu, physics: Physics, replay: ReplayFunction) -> Floats | None:
    """Return the log of the fastest step at `_ALONE` and below, shape (limits,)."""
    steps = [replay([profile], Mps((float(each),)), gpu, physics, Effort()) for each in _ALONE]
    steps_s = [each[0] for each in steps if each is not None]
    return np.minimum.accumulate(np.log(steps_s)) if steps_s else None


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
    """Estimates for some jobs and subsets of them, to search by.

    Attributes:
        replays: Whether it estimates by the surrogate model of replay. Without a fit, traces or
            counters, it uses the capacity model.
    """

    profiles: tuple[Profile, ...]
    gpu: Gpu
    model: Model
    replays: bool = True

    @property
    def distilled(self) -> SurrogateModel:
        assert self.model.distilled is not None, "estimates need a surrogate model"
        return self.model.distilled

    @property
    def jobs(self) -> Summaries:
        """Return the features of the jobs on the whole GPU."""
        return self._summaries(self.profiles, self.gpu)

    @property
    def step_s(self) -> Floats:
        """Return seconds of a step of each job alone, shape (profiles,)."""
        return np.array([each.step_s for each in self.profiles])

    def _summaries(
        self, profiles: Sequence[Profile], gpu: Gpu, limits: Sequence[int] = LIMIT_GRID
    ) -> Summaries:
        jobs = summaries(profiles, gpu, self.model.of(self.gpu).physics, limits)
        assert jobs is not None, "only profiles with traces and counters are estimated"
        return jobs

    def steps(self, sets: Sequence[tuple[Tenancy, _Places]]) -> list[Floats]:
        """Return seconds of a step for each of `sets`, shapes (sets, places); NaN: an empty place.

        Each has the profile in each place of its sets, -1 for none; all are of one width.
        """
        if not self.replays:
            return [self._by_capacity(*each) for each in sets]
        fitted = self.distilled.surrogates
        modes = [each.mode if each.mode in fitted else "mps" for each, _ in sets]
        steps: dict[int, Floats] = {}
        for mode in dict.fromkeys(modes):
            chosen = [at for at, other in enumerate(modes) if other == mode]
            steps_s = self.distilled.steps(*self._joined([sets[at] for at in chosen]), mode)
            ends = np.cumsum([len(sets[at][1]) for at in chosen])
            steps |= zip(chosen, np.split(steps_s, ends[:-1]), strict=True)
        return [steps[at] for at in range(len(sets))]

    def _by_capacity(self, tenancy: Tenancy, places: _Places) -> Floats:
        physics, part = self.model.of(self.gpu).physics, tenancy.partition
        moved = [on_partition(each, part, physics) for each in self.profiles]
        steps_s = steps_of_sets(
            moved, places, tenancy.sharing, part.as_gpu, self.model.capacity, tenancy.limit or 100.0
        )
        if part.whole:
            return steps_s
        fills_s = np.array([work_s(each, part).p50 for each in self.profiles])
        present = places >= 0
        together_s = contended(
            np.where(present, steps_s, 1.0), np.where(present, fills_s[places], 0.0), 1.0
        )
        return np.where(present, together_s, np.nan)

    def _joined(self, sets: Sequence[tuple[Tenancy, _Places]]) -> tuple[Summaries, MixBatch]:
        """Return all sets as mixes of jobs that differ from partition to partition."""
        partitions = list(dict.fromkeys(tenancy.partition for tenancy, _ in sets))
        physics, jobs = self.model.of(self.gpu).physics, []
        for partition in partitions:
            moved = [on_partition(each, partition, physics) for each in self.profiles]
            tried = LIMIT_GRID if partition.whole else LIMIT_GRID[-1:]  # on parts there are none
            jobs.append(self._summaries(moved, partition.as_gpu, tried))
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
        return power.added_w(self.profiles, self.step_s / steps_s, law)

    def knows(self, mode: Mode) -> bool:
        """Return whether the surrogate model, or else the capacity model, was fitted to `mode`."""
        if not self.replays:
            return self.model.capacity is not None and mode in self.model.capacity.intervals
        return mode in self.distilled.surrogates and mode in self.model.intervals

    def limited(self, limits: Floats, running: NDArray[np.bool_] | None = None) -> Floats:
        """Return seconds of a step of each job under MPS limits in per cent, shape (mixes, jobs).

        `running` is False for jobs that have ended, whose step is NaN; None: all run.
        """
        jobs = np.broadcast_to(np.arange(limits.shape[1]), limits.shape)
        jobs = jobs if running is None else np.where(running, jobs, -1)
        if not self.replays:
            capacity = self.model.capacity
            return steps_of_sets(self.profiles, jobs, Mps(), self.gpu, capacity, limits)
        return self.distilled.steps(self.jobs, MixBatch(jobs, limits), "mps-limits")

    def replayed(self, sharings: Sequence[Mps]) -> Floats:
        """Return steps under sharings with limits by a short replay: more accurate than `limited`.

        It is corrected without uncertainty of the constants. Without traces they are those of
        `limited`.
        """
        if not self.replays:
            return self.limited(np.array([each.limits for each in sharings]))
        physics = self.model.of(self.gpu).physics
        replays = answer_all(
            lambda each: replay_mix(self.profiles, each, self.gpu, physics, _TO_CHOOSE), sharings
        )
        steps = []
        for sharing, replayed_s in zip(sharings, replays, strict=True):
            assert replayed_s is not None, "only profiles with traces are estimated"
            steps.append(corrected_steps(self.profiles, sharing, self.gpu, self.model, replayed_s))
        return np.array(steps)


def surrogate_predictor(profiles: Sequence[Profile], gpu: Gpu, model: Model) -> SurrogatePredictor:
    """Return the estimates for `profiles`, by the surrogate model if there are all its inputs."""
    replays = model.distilled is not None
    replays = replays and summaries(profiles, gpu, model.of(gpu).physics) is not None
    return SurrogatePredictor(tuple(profiles), gpu, model, replays)


def paced_steps(profiles: Sequence[Profile], steps_s: Floats) -> Floats:
    """Return `Profile.paced_s` of steps of `profiles`, shape (..., profiles)."""
    host_s, work = np.array([each.end_share for each in profiles]).T
    return np.asarray(steps_s * (1 + work) + host_s)


class Predicts(Protocol):
    """A predictor of mixes, as `advisor.prediction.predictor.Predictor` is."""

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction: ...

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None: ...
