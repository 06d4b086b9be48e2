"""Predicts jobs at the pace of the user's own runs of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.prediction.interval import Interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.prediction.own_pace import OwnPace, OwnStep, at_own_pace, step_of
from advisor.prediction.surrogate_answers import Predicts, SurrogatePredictor
from advisor.sharing import Arrangement
from advisor.sharing.traversal import without_idle_limits
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class PacedPredictor:
    """Predicts as `predictor` does, each job as fast as in the runs behind `paces`.

    A job's slowdown is relative to the job alone at that pace. What runs showed of its steps beside
    others lengthens or shortens its own alone: its mates have factors of their own.
    """

    predictor: Predicts
    paces: Mapping[str, OwnPace]

    def predict(self, profiles: Sequence[Profile], sharing: Arrangement) -> MixPrediction:
        """As `advisor.prediction.predictor.Predictor.predict`."""
        mix = self.predictor.predict(self._paced(profiles), sharing)
        mode = without_idle_limits(sharing).mode
        own = [step_of(each, self.paces, mode) for each in profiles]
        if len(profiles) == 1 or not any(own):
            return mix
        jobs = tuple(map(_as_beside_others, mix.jobs, own))
        return replace(mix, jobs=jobs, weighted_speedup=sum(1 / job.slowdown for job in jobs))

    def surrogate(self, profiles: Sequence[Profile]) -> SurrogatePredictor | None:
        """As of `Predictor`, without factors on steps: what it finds is predicted with them."""
        return self.predictor.surrogate(self._paced(profiles))

    def _paced(self, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
        return tuple(at_own_pace(each, self.paces) for each in profiles)


def _as_beside_others(job: JobPrediction, own: OwnStep | None) -> JobPrediction:
    """`job` with the steps that `own` tells of.

    A GPU as full as before draws as much power, so energy grows with the step.
    """
    if own is None:
        return job
    by = own.factor_at(job.slowdown)

    def longer(value: Interval | None) -> Interval | None:
        return None if value is None else value.scaled(by)

    return replace(
        job,
        step_s=job.step_s.scaled(by),
        epoch_s=longer(job.epoch_s),
        slowdown=job.slowdown * by,
        energy_step_j=longer(job.energy_step_j),
        energy_epoch_j=longer(job.energy_epoch_j),
        energy_example_j=longer(job.energy_example_j),
    )
