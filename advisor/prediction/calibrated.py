"""Predictions for the machine that was calibrated, from profiles measured on others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.prediction.host_scaling import on_host
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.predictor import Predictor
from advisor.prediction.surrogate_answers import SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.workload.calibration import Calibration, Contexts
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class CalibratedPredictor:
    """Predicts as `predictor` does, for the host that `calibration` was measured on.

    A profile that knows how fast its host was is taken to this one, with as many cores busy as
    jobs run at once; how much slower than alone a job is refers to it alone on such a host.
    """

    predictor: Predictor
    calibration: Calibration

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `advisor.prediction.predictor.Predictor.predict`."""
        busy = 1 if sharing.mode == "serial" else len(profiles)
        here = [_here(profile, self.calibration, busy) for profile in profiles]
        return self.predictor.predict(here, sharing)

    def quick(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """As `advisor.prediction.predictor.Predictor.quick`, with all of the jobs at work."""
        here = [_here(profile, self.calibration, len(profiles)) for profile in profiles]
        return self.predictor.quick(here)


def _here(profile: Profile, calibration: Calibration, busy: int) -> Profile:
    slowdown = slowdown_of(profile, calibration, busy)
    return profile if slowdown is None else on_host(profile, slowdown)


def slowdown_of(profile: Profile, calibration: Calibration, busy: int) -> float | None:
    """How much longer host work takes here, with `busy` cores at it, than where `profile` ran.

    None if the profile does not say how fast its host was.
    """
    if not profile.host_check_s:
        return None
    return calibration.host_check_s(busy) / profile.host_check_s


def calibrated_predictor(predictor: Predictor, calibration: Calibration) -> CalibratedPredictor:
    """`predictor`, with what was measured of hosts and contexts in place of what was fitted."""
    if calibration.contexts is not None:
        predictor = _with_contexts(predictor, calibration.contexts)
    return CalibratedPredictor(predictor, calibration)


def _with_contexts(predictor: Predictor, sizes: Contexts) -> Predictor:
    context = predictor.model.context
    if sizes.plain_mib is not None:
        context = replace(context, usual_mib=sizes.plain_mib)
    if sizes.per_sm_mib is not None:
        context = replace(context, per_sm_mib=sizes.per_sm_mib)
    if sizes.mps_server_mib is not None:
        predictor = replace(predictor, mps_server_mib=sizes.mps_server_mib)
    return replace(
        predictor,
        gpu=replace(predictor.gpu, reserved_mib=round(sizes.driver_mib)),
        model=replace(predictor.model, context=context),
    )
