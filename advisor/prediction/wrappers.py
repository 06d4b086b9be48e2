"""Predictors that change what another predicts, in the order in which they wrap each other.

Jobs share the host's cores, run as fast as in the user's own runs, and draw no more than a power
cap. Each mix is predicted once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput
from advisor.files.reading import MOST_CORES
from advisor.hardware.gpus import Gpu
from advisor.prediction.cache import once_a_mix, once_a_profile
from advisor.prediction.host import on_host, stretch_on
from advisor.prediction.mix_steps import Predicts, SurrogatePredictor
from advisor.prediction.model import OwnPace
from advisor.prediction.power import capped, check_cap
from advisor.prediction.prediction import MixPrediction
from advisor.sharing import Arrangement
from advisor.sharing.groups import restricted, running_together, without_idle_limits
from advisor.workload.profile import Profile

# Smaller factors on host work are within a host's own fluctuation.
_FELT = 1.001


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Predictor for jobs that have `cores` cores of a host together: below 1, part of one.

    Contention for the host's caches and memory bandwidth is not modelled.
    """

    predictor: Predicts
    cores: float

    def __post_init__(self) -> None:
        if not 0 < self.cores <= MOST_CORES:
            raise InvalidInput(f"jobs have 1 to {MOST_CORES} cores together, got {self.cores:g}")

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict as `predictor`, slowed where jobs at once need more cores than there are.

        A job's slowdown is relative to the job alone on these cores.
        """
        free = self.predictor.predict(profiles, sharing)
        alone = [stretch_on([each], [each.step_s], self.cores) for each in profiles]
        shared = [1.0] * len(profiles)
        for run in running_together(sharing, len(profiles)):
            steps_s = [free.jobs[at].step_s.p50 for at in run]
            stretch = stretch_on([profiles[at] for at in run], steps_s, self.cores)
            for at in run:
                shared[at] = stretch
        if max(*alone, *shared) < _FELT:
            return replace(free, host_cores=self.cores)
        slower = [on_host(each, by) for each, by in zip(profiles, shared, strict=True)]
        mix = self.predictor.predict(slower, sharing)
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
            host_cores=self.cores,
        )

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the surrogate for enough cores; its choices are predicted again for these."""
        return self.predictor.surrogate(profiles)


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


def at_own_pace(profile: Profile, paces: Mapping[str, OwnPace]) -> Profile:
    """Return `profile` with the host path of the user's own runs of it, if any showed that."""
    pace = pace_of(profile, paces)
    return _converted(profile, pace.slowdown) if pace and pace.runs else profile


def pace_of(profile: Profile, paces: Mapping[str, OwnPace]) -> OwnPace | None:
    """Return the pace of the user's own runs of this very `profile`; None without runs."""
    pace = paces.get(profile.name)
    return pace if pace and pace.profiled == date_of(profile) else None


def date_of(profile: Profile) -> str | None:
    """Return the date when `profile` was measured; None if it is not recorded."""
    return None if profile.provenance is None else profile.provenance.date


@once_a_profile
def _converted(profile: Profile, slowdown: float) -> Profile:
    """Convert `profile`, without the check of the host, which these runs replace."""
    return replace(on_host(profile, slowdown), host_check_s=None)


@dataclass(frozen=True, slots=True)
class CappedPredictor:
    """Predicts as `predictor` does, on a GPU capped at `cap_w` watts.

    The effect of a cap was learnt on other GPUs, so no answer counts as confirmed on hardware.

    Raises:
        InvalidInput: `gpu` cannot be set to that cap.
    """

    predictor: Predicts
    gpu: Gpu
    cap_w: float

    def __post_init__(self) -> None:
        check_cap(self.cap_w, self.gpu)

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """Predict; raise `InvalidInput` where the power of a job is not known."""
        mix = self.predictor.predict(profiles, sharing)
        turns = [mix] * len(profiles)
        if sharing.mode == "serial":
            turns = [self.predictor.predict([profile], sharing) for profile in profiles]
        powers = [turn.power_w.p50 for turn in turns if turn.power_w is not None]
        if len(powers) < len(turns):
            names = ", ".join(sorted({profile.name for profile in profiles}))
            raise InvalidInput(
                f"a power cap needs the power of every job, which was not measured of all of "
                f"{names}. Profile them again on a GPU that meters power, or leave the cap out."
            )
        return capped(mix, powers, self.cap_w, self.gpu)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Return the surrogate without the cap: which limits are best hardly depends on it."""
        return self.predictor.surrogate(profiles)


class MixCache:
    """Caches the answers of `predictor` for equal profiles in equal order."""

    def __init__(self, predictor: Predicts) -> None:
        self._predict = once_a_mix(predictor.predict)
        self._surrogate = once_a_mix(predictor.surrogate)

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        return self._predict(profiles, sharing)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        return self._surrogate(profiles)


class CachingPredictor(MixCache):
    """A `MixCache` that predicts jobs on a whole GPU in one order, that of their first use.

    Replay depends slightly on the order of the jobs, and a plan must be reported with the numbers
    with which it was found.
    """

    def __init__(self, predictor: Predicts) -> None:
        super().__init__(predictor)
        # Position and object by id: holding the object keeps its id from being reused.
        self._profiles: dict[int, tuple[int, Profile]] = {}

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        for profile in profiles:
            self._profiles.setdefault(id(profile), (len(self._profiles), profile))
        places = [self._profiles[id(each)][0] for each in profiles]
        order = sorted(range(len(profiles)), key=places.__getitem__)
        if order == list(range(len(profiles))) or sharing.instances:
            return super().predict(profiles, sharing)
        mix = super().predict([profiles[at] for at in order], restricted(sharing, order))
        jobs = dict(zip(order, mix.jobs, strict=True))
        return replace(mix, sharing=sharing, jobs=tuple(jobs[at] for at in sorted(jobs)))
