"""Predicts jobs at the pace of the user's own runs of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.plan.recommendation import Predicts
from advisor.prediction.mix_prediction import MixPrediction
from advisor.prediction.own_pace import OwnPace, at_own_pace
from advisor.prediction.surrogate_answers import SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class PacedPredictor:
    """Predicts as `predictor` does, each job as fast as in the runs behind `paces`.

    A job's slowdown is relative to the job alone at that pace.
    """

    predictor: Predicts
    paces: Mapping[str, OwnPace]

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `advisor.prediction.predictor.Predictor.predict`."""
        return self.predictor.predict(self._paced(profiles), sharing)

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """As `advisor.prediction.predictor.Predictor.surrogate`."""
        return self.predictor.surrogate(self._paced(profiles))

    def _paced(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        return tuple(at_own_pace(each, self.paces) for each in profiles)
