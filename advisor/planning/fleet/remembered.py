"""A predictor that is asked each question once."""

from collections.abc import Sequence

from advisor.planning.plan import Predicts
from advisor.prediction.answer import MixPrediction
from advisor.prediction.quick import Quick
from advisor.sharing import Arrangement
from advisor.workload.profile import Profile


class Remembered:
    """Answers as `predictor` does: groups that lose a job become smaller groups."""

    def __init__(self, predictor: Predicts) -> None:
        self._predictor = predictor
        self._profiles: dict[int, Profile] = {}  # held, so that no other takes its id
        self._known: dict[tuple[tuple[int, ...], Arrangement], MixPrediction] = {}

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        key = tuple(map(id, profiles)), sharing
        if key not in self._known:
            self._profiles.update(zip(key[0], profiles, strict=True))
            self._known[key] = self._predictor.predict(profiles, sharing)
        return self._known[key]

    def quick(self, profiles: Sequence[Profile]) -> Quick | None:
        return self._predictor.quick(profiles)
