"""Predicts for the host on which a calibration was made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.errors import InvalidInput
from advisor.prediction.host import host_slowdown, on_host, stretch_on
from advisor.prediction.model import calibrated_constants
from advisor.prediction.prediction import JobPrediction, MixPrediction
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_predictor import Predicts, SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.sharing.groups import running_together
from advisor.workload.calibration import Calibration
from advisor.workload.profile import Profile
from advisor.workload.reading import MOST_CORES


@dataclass(frozen=True, slots=True)
class CalibratedPredictor:
    """Predicts as `predictor` does, for the host on which `calibration` was made.

    A profile that recorded the speed of its host is converted to this host, with as many cores busy
    as jobs run at once. The slowdown of a job is relative to the job alone on this host.
    """

    predictor: Predictor
    calibration: Calibration

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `advisor.prediction.predictor.Predictor.predict`."""
        busy = 1 if sharing.mode == "serial" else len(profiles)
        here = profiles_on_calibrated(profiles, self.calibration, busy)
        return self.predictor.predict(here, sharing)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """As `advisor.prediction.predictor.Predictor.surrogate`, with all of the jobs at work."""
        here = profiles_on_calibrated(profiles, self.calibration, len(profiles))
        return self.predictor.surrogate(here)


def profiles_on_calibrated(
    profiles: Sequence[Profile], calibration: Calibration, busy: int
) -> tuple[Profile, ...]:
    """`profiles` on the host of `calibration` with `busy` cores at work.

    A profile that did not record the speed of its host is unchanged.
    """
    return tuple(_here(profile, calibration, busy) for profile in profiles)


def _here(profile: Profile, calibration: Calibration, busy: int) -> Profile:
    slowdown = slowdown_of(profile, calibration, busy)
    return profile if slowdown is None else on_host(profile, slowdown)


def slowdown_of(profile: Profile, calibration: Calibration, busy: int) -> float | None:
    """Host time here, with `busy` cores at work, over host time where `profile` was made.

    None if the profile did not record the speed of its host.
    """
    if not profile.host_check_s:
        return None
    here_s = calibration.host_check_s(busy)
    return host_slowdown(profile.host_check_s, here_s, in_passing=calibration.in_passing)


def calibrated_predictor(predictor: Predictor, calibration: Calibration) -> CalibratedPredictor:
    """`predictor` with the measured host speed and GPU constants instead of the fitted ones."""
    known = predictor.on_known_cores()
    gpu, model = known.gpu, known.model
    own = calibrated_constants(model.of(gpu), calibration, fitted=gpu.key in model.constants)
    if calibration.contexts is not None:
        gpu = replace(gpu, reserved_mib=round(calibration.contexts.driver_mib))
    known = replace(known, gpu=gpu, model=model.with_own(gpu, own))
    return CalibratedPredictor(known, calibration)


# Smaller factors on host work are within a host's own fluctuation.
_FELT = 1.001


@dataclass(frozen=True, slots=True)
class SharedCores:
    """Predicts as `predictor` does, on a host with `cores` cores for all jobs.

    Contention for the host's caches and memory bandwidth is not modelled.

    Raises:
        InvalidInput: The number of cores is below 1 or implausibly high.
    """

    predictor: Predicts
    cores: int

    def __post_init__(self) -> None:
        if not 1 <= self.cores <= MOST_CORES:
            raise InvalidInput(f"a host has 1 to {MOST_CORES} cores, got {self.cores}")

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """The prediction of `predictor`, slowed where jobs at once need more cores than there are.

        A job's slowdown is relative to the job alone on these cores.
        """
        free = self.predictor.predict(profiles, sharing)
        alone = [stretch_on([each], [each.step_s], self.cores) for each in profiles]
        shared = self._stretches(profiles, free, sharing)
        if max(*alone, *shared) < _FELT:
            return free
        slower = [on_host(each, by) for each, by in zip(profiles, shared, strict=True)]
        found = self.predictor.predict(slower, sharing)
        against = [on_host(each, by) for each, by in zip(profiles, alone, strict=True)]
        jobs = tuple(map(_against, found.jobs, slower, against))
        return replace(
            found,
            jobs=jobs,
            weighted_speedup=1.0 if sharing.mode == "serial" else sum(1 / j.slowdown for j in jobs),
            host_stretch=max(shared),
        )

    def _stretches(
        self, profiles: Sequence[Profile], free: MixPrediction, sharing: Arrangement
    ) -> list[float]:
        """Factor by which the host work of each job gets longer."""
        found = [1.0] * len(profiles)
        for run in running_together(sharing, len(profiles)):
            steps_s = [free.jobs[at].step_s.p50 for at in run]
            stretch = stretch_on([profiles[at] for at in run], steps_s, self.cores)
            for at in run:
                found[at] = stretch
        return found

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """Surrogate for enough cores; what it finds is predicted again for the cores there are."""
        return self.predictor.surrogate(profiles)


def _against(job: JobPrediction, shared: Profile, alone: Profile) -> JobPrediction:
    return replace(job, slowdown=job.slowdown * shared.step_s / alone.step_s)
