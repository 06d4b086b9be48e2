"""Predicts for the host on which a calibration was made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.prediction.gpu_constants import calibrated_constants
from advisor.prediction.host_transfer import host_slowdown, on_host
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.workload.machine_calibration import Calibration
from advisor.workload.profile import Profile


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
