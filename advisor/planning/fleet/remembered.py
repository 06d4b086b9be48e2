"""A predictor that is asked each question once."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.planning.plan import Predicts
from advisor.prediction.answer import MixPrediction
from advisor.prediction.quick import Quick
from advisor.sharing import Arrangement, Mps, Naive, Serial
from advisor.workload.profile import Profile


class Remembered:
    """Answers as `predictor` does: groups that lose a job become smaller groups.

    Jobs that share a whole GPU are asked about in the order in which they were first: a replay
    differs a little with the order, and a plan is to be reported as it was found.
    """

    def __init__(self, predictor: Predicts) -> None:
        self._predictor = predictor
        # Where each stands by its id; it is held, so that no other takes its id.
        self._profiles: dict[int, tuple[int, Profile]] = {}
        self._known: dict[tuple[tuple[int, ...], Arrangement], MixPrediction] = {}

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        for each in profiles:
            self._profiles.setdefault(id(each), (len(self._profiles), each))
        places = [self._profiles[id(each)][0] for each in profiles]
        order = sorted(range(len(profiles)), key=places.__getitem__)
        if order == list(range(len(profiles))) or not isinstance(sharing, Serial | Naive | Mps):
            return self._asked(profiles, sharing)
        if isinstance(sharing, Mps) and sharing.limits:
            ordered: Arrangement = Mps(tuple(sharing.limits[at] for at in order))
        else:
            ordered = sharing
        found = self._asked([profiles[at] for at in order], ordered)
        jobs = dict(zip(order, found.jobs, strict=True))
        return replace(found, sharing=sharing, jobs=tuple(jobs[at] for at in sorted(jobs)))

    def quick(self, profiles: Sequence[Profile]) -> Quick | None:
        return self._predictor.quick(profiles)

    def _asked(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        key = tuple(map(id, profiles)), sharing
        if key not in self._known:
            self._known[key] = self._predictor.predict(profiles, sharing)
        return self._known[key]
