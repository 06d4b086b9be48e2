"""Predicts each mix once, under the laws that correct the model for a user's machine."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Self

from advisor.errors import InvalidInput
from advisor.files.units import MOST_CORES
from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import cached_by_profiles
from advisor.prediction.host import on_host, stretch_on
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor
from advisor.prediction.model import OwnPace
from advisor.prediction.power import capped, check_cap
from advisor.prediction.prediction import MixPrediction
from advisor.prediction.shared_loader import as_consumers, at_one_pace, loaders, works_s
from advisor.sharing import Arrangement
from advisor.sharing.groups import restricted, running_together, without_idle_limits
from advisor.workload.profile import Profile

Predict = Callable[[Sequence[Profile], Arrangement], MixPrediction]
"""Predicts a mix, as `advisor.prediction.predictor.Predictor.predict`."""


class CachingPredictor:
    """Predicts as `predictor` under these laws, in this order, and caches the answers.

    Profiles are the same if they are the same objects, in the same order.

    Args:
        predictor: Predictor of jobs as fast as their profiles, with enough cores and no power cap.
        gpu: GPU that a cap is for.
        paces: Paces of jobs in the user's own runs, by the job's name.
        cores: Cores of a host that the jobs have together: below 1, part of one; None: enough.
        cap_w: Power cap in watts; None: the GPU's own limit.

    Raises:
        InvalidInput: `gpu` cannot be set to that cap, or the cores are not a number of cores.
    """

    def __init__(
        self,
        predictor: Predicts,
        gpu: Gpu | None = None,
        paces: Mapping[str, OwnPace] = MappingProxyType({}),
        *,
        cores: float | None = None,
        cap_w: float | None = None,
    ) -> None:
        self._predictor, self._gpu, self._paces = predictor, gpu, paces
        self._free = cached_by_profiles(predictor.predict)
        self._corrected = cached_by_profiles(self._by_laws)
        self.surrogate = cached_by_profiles(self._surrogate)
        # Position and object by id: holding the object keeps its id from being reused.
        self._first_use: dict[int, tuple[int, Profile]] | None = None
        self._set(cores, cap_w)

    def _set(self, cores: float | None, cap_w: float | None) -> None:
        if cores is not None and not 0 < cores <= MOST_CORES:
            raise InvalidInput(
                f"expected 1 to {MOST_CORES} cores for all jobs together, got {cores:g}"
            )
        if cap_w is not None:
            assert self._gpu is not None, "a power cap needs a single GPU model"
            check_cap(cap_w, self._gpu)
        self._cores, self._cap_w = cores, cap_w

    def under(self, *, cores: float | None, cap_w: float | None) -> Self:
        """Return the same with these cores under this cap; both share their answers."""
        other = copy(self)
        other._set(cores, cap_w)
        return other

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict as `advisor.prediction.predictor.Predictor.predict`.

        Raises:
            InvalidInput: Under a cap the power of a job is unknown.
        """
        order = places = list(range(len(profiles)))
        if self._first_use is not None:
            for each in profiles:
                self._first_use.setdefault(id(each), (len(self._first_use), each))
            if not sharing.instances:
                first_use = [self._first_use[id(each)][0] for each in profiles]
                order = sorted(places, key=first_use.__getitem__)
        ordered, shared = profiles, sharing
        if order != places:
            ordered, shared = [profiles[at] for at in order], restricted(sharing, order)
        free = self._cores is None and self._cap_w is None and not self._paces
        if free and not any(each.workload.shared_loader for each in ordered):
            mix = self._free(ordered, shared)
        else:
            mix = self._corrected(ordered, shared, self._cores, self._cap_w)
        if order == places:
            return mix
        jobs = dict(zip(order, mix.jobs, strict=True))
        return replace(mix, sharing=sharing, jobs=tuple(jobs[at] for at in places))

    def _by_laws(
        self,
        profiles: Sequence[Profile],
        sharing: Arrangement,
        cores: float | None,
        cap_w: float | None,
    ) -> MixPrediction:
        if cap_w is not None:
            assert self._gpu is not None

            def uncapped(jobs: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
                return self._corrected(jobs, sharing, cores, None)

            return under_cap(uncapped, profiles, sharing, self._gpu, cap_w)
        paced = [at_own_pace(each, self._paces) for each in profiles]
        mix = with_shared_loaders(self._free, paced, sharing, cores)
        return with_own_steps(mix, profiles, sharing, self._paces)

    def _surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return estimates to search by, on enough cores and without a cap: `predict` corrects."""
        return self._predictor.surrogate([at_own_pace(each, self._paces) for each in profiles])


def in_one_order(predictor: Predicts) -> CachingPredictor:
    """Return `predictor` that predicts jobs on a whole GPU in one order, that of their first use.

    Replay depends slightly on the order of the jobs, and a plan must be reported with the numbers
    with which it was found.
    """
    own = (
        copy(predictor) if isinstance(predictor, CachingPredictor) else CachingPredictor(predictor)
    )
    own._first_use = {}
    return own


def at_own_pace(profile: Profile, paces: Mapping[str, OwnPace]) -> Profile:
    """Return `profile` with the host path of the user's own runs of it, if any showed that."""
    pace = pace_of(profile, paces)
    return _on_own_host(profile, pace.slowdown) if pace and pace.runs else profile


@cached_by_profiles
def _on_own_host(profile: Profile, slowdown: float) -> Profile:
    """Convert `profile`, without the check of the host, which these runs replace."""
    return replace(on_host(profile, slowdown), host_check_s=None)


def pace_of(profile: Profile, paces: Mapping[str, OwnPace]) -> OwnPace | None:
    """Return the pace of the user's own runs of this very `profile`; None without runs."""
    pace = paces.get(profile.name)
    return pace if pace and pace.profiled == date_of(profile) else None


def date_of(profile: Profile) -> str | None:
    """Return the date when `profile` was measured; None if it is not recorded."""
    return None if profile.provenance is None else profile.provenance.date


def with_own_steps(
    mix: MixPrediction,
    profiles: Sequence[Profile],
    sharing: Arrangement,
    paces: Mapping[str, OwnPace],
) -> MixPrediction:
    """Return `mix` with the factors that the user's own runs showed on steps of jobs together.

    A job's slowdown is relative to the job alone at its own pace.
    """
    mode = without_idle_limits(sharing).mode
    own = [pace_of(profile, paces) for profile in profiles]
    steps = [pace.beside.get(mode) if pace else None for pace in own]
    if len(profiles) == 1 or not any(steps):
        return mix
    jobs = tuple(
        job if step is None else job.longer(step.factor_at(job.slowdown))
        for job, step in zip(mix.jobs, steps, strict=True)
    )
    return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))


def with_shared_loaders(
    predict: Predict, profiles: Sequence[Profile], sharing: Arrangement, cores: float | None
) -> MixPrediction:
    """Predict as `on_cores`; None: on enough. Jobs that share a loader receive their batches.

    A job's slowdown is relative to the job alone with its own loader.
    """
    shared = loaders(profiles, sharing)
    members = as_consumers(profiles, shared)
    together = at_one_pace(predict, shared) if shared else predict
    if cores is None:
        mix = together(members, sharing)
    else:
        mix = on_cores(together, members, sharing, cores, works_s(members, shared))
    if not shared:
        return mix
    jobs = tuple(
        replace(job, slowdown=job.slowdown * own.step_s / alone.step_s)
        for job, own, alone in zip(mix.jobs, members, profiles, strict=True)
    )
    return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))


# Smaller factors on host work are within a host's own fluctuation.
_FELT = 1.001


def on_cores(
    predict: Predict,
    profiles: Sequence[Profile],
    sharing: Arrangement,
    cores: float,
    works_s: Sequence[float | None],
) -> MixPrediction:
    """Predict as `predict`, slowed where jobs at once need more cores than there are.

    `works_s` are core seconds of a step of each job, together with the others. A job's slowdown is
    relative to the job alone on these cores. Contention for the host's caches and memory bandwidth
    is not modelled.
    """
    free = predict(profiles, sharing)
    alone = [stretch_on([each], [each.step_s], cores) for each in profiles]
    shared = [1.0] * len(profiles)
    for run in running_together(sharing, len(profiles)):
        steps_s = [free.jobs[at].step_s.p50 for at in run]
        own_s = [works_s[at] for at in run]
        stretch = stretch_on([profiles[at] for at in run], steps_s, cores, own_s)
        for at in run:
            shared[at] = stretch
    if max(*alone, *shared) < _FELT:
        return replace(free, host_cores=cores)
    slower = [on_host(each, by) for each, by in zip(profiles, shared, strict=True)]
    mix = predict(slower, sharing)
    by_itself = [on_host(each, by) for each, by in zip(profiles, alone, strict=True)]
    jobs = tuple(
        replace(job, slowdown=job.slowdown * here.step_s / own.step_s)
        for job, here, own in zip(mix.jobs, slower, by_itself, strict=True)
    )
    return replace(
        mix,
        jobs=jobs,
        weighted_speedup=1.0 if sharing.mode == "serial" else sum(1 / j.slowdown for j in jobs),
        host_stretch=max(shared),
        host_cores=cores,
    )


def under_cap(
    predict: Predict, profiles: Sequence[Profile], sharing: Arrangement, gpu: Gpu, cap_w: float
) -> MixPrediction:
    """Predict as `predict`, on a GPU capped at `cap_w` watts.

    The effect of a cap was learnt on other GPUs, so no answer counts as confirmed on hardware.

    Raises:
        InvalidInput: The power of a job is unknown.
    """
    mix = predict(profiles, sharing)
    turns = [mix] * len(profiles)
    if sharing.mode == "serial":
        turns = [predict([profile], sharing) for profile in profiles]
    powers = [turn.power_w.p50 for turn in turns if turn.power_w is not None]
    if len(powers) < len(turns):
        names = ", ".join(sorted({profile.name for profile in profiles}))
        raise InvalidInput(
            f"a power cap needs the power of every job, which is missing for some of {names}. "
            "Profile them again on a GPU that meters power, or leave the cap out."
        )
    return capped(mix, powers, cap_w, gpu)
