"""Predictions under a power cap."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.plan.recommendation import Predicts
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.power_cap import capped, check_cap
from advisor.prediction.surrogate_answers import Quick
from advisor.sharing import Arrangement
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class UnderCap:
    """Predicts as `predictor` does, on a GPU that may draw `cap_w` watts at most.

    What a cap does was translated from other GPUs, so nothing it says is confirmed on hardware.

    Raises:
        InvalidInput: `gpu` cannot be set to that cap.
    """

    predictor: Predicts
    gpu: Gpu
    cap_w: float

    def __post_init__(self) -> None:
        check_cap(self.cap_w, self.gpu)

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """What each job and the GPU do under `sharing` and the cap.

        Raises:
            InvalidInput: The power of a job was not measured.
        """
        mix = self.predictor.predict(profiles, sharing)
        if sharing.mode == "serial":
            turns = [self.predictor.predict([profile], sharing) for profile in profiles]
            powers = [_power_w(turn) for turn in turns]
        else:
            powers = [_power_w(mix)] * len(profiles)
        return capped(mix, powers, self.cap_w, self.gpu)

    def quick(self, profiles: Sequence[Profile]) -> Quick | None:
        """Rough answers without the cap: which limits are good hardly depends on it."""
        return self.predictor.quick(profiles)


def _power_w(mix: MixPrediction) -> float:
    if mix.power_w is None:
        dark = ", ".join(sorted({job.job for job in mix.jobs}))
        raise InvalidInput(
            f"a power cap needs the power of every job, which was not measured of all of {dark}. "
            "Profile them anew on a GPU that meters power, or leave the cap out."
        )
    return mix.power_w.p50
