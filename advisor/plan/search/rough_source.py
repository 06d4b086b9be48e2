"""A source that asks the distilled predictor: quick, and no better than it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.mig_layouts import profile_of
from advisor.plan.limits import MAX_OOM_PROBABILITY
from advisor.plan.recommendation import Predicts
from advisor.plan.search.cost_table import Answers, Option
from advisor.plan.search.job_sets import Sets
from advisor.prediction import mig_instances
from advisor.prediction.surrogate_answers import SurrogateAnswers, Tenancy
from advisor.prediction.trace import Floats


@dataclass(frozen=True, slots=True)
class Roughly:
    """As `advisor.plan.search.cost_table.Source`, at the median.

    Attributes:
        margin: Share of each memory that jobs must leave free.
    """

    rough: SurrogateAnswers
    margin: float

    @property
    def awake_w(self) -> float:
        return self.rough.model.power.awake_w

    def answers(self, options: Sequence[Option], sets: Sets) -> list[Answers]:
        """As of every source; all are looked at together, for sets may be few."""
        tenancies = [self._tenancy(each) for each in options]
        fits = [self._fit(each, sets) for each in tenancies]
        # With a set that fits, every part of it does.
        crowds = list(zip(tenancies, (sets.places[each] for each in fits), strict=True))
        answered = self.rough.steps(crowds)
        return [
            self._answers(tenancy, sets, fit, steps_s)
            for tenancy, fit, steps_s in zip(tenancies, fits, answered, strict=True)
        ]

    def _fit(self, tenancy: Tenancy, sets: Sets) -> NDArray[np.bool_]:
        fits = self.rough.fits(tenancy, sets.counts, MAX_OOM_PROBABILITY, self.margin)
        fits[0] = True
        return fits

    def _answers(
        self, tenancy: Tenancy, sets: Sets, fits: NDArray[np.bool_], answered: Floats
    ) -> Answers:
        """From seconds of a step of each job of the sets that fit, shape (fitting sets, places)."""
        steps_s, asked, places = np.ones(sets.counts.shape), np.flatnonzero(fits), sets.places[fits]
        rows, columns = np.nonzero(places >= 0)
        steps_s[asked[rows], places[rows, columns]] = answered[rows, columns]
        return Answers(
            steps_s=steps_s,
            fits=fits,
            added_w=np.where(sets.counts > 0, self.rough.added_w(tenancy, steps_s), 0.0),
        )

    def _tenancy(self, option: Option) -> Tenancy:
        gpu, room = self.rough.gpu, option.room
        if room.profile is None:
            return Tenancy(None, float(gpu.usable_mib), option.sharing, option.limit)
        instance = profile_of(gpu, room.profile)
        part = mig_instances.room_of(gpu, instance, room.slices or instance.compute_slices)
        return Tenancy(part, float(instance.memory_mib), option.sharing, option.limit)


def roughly(predictor: Predicts, margin: float, sets: Sets) -> Roughly | None:
    """A rough source for `sets`; None where the predictor has no rough answers."""
    quick = predictor.quick([job.profile for job in sets.variants])
    return None if quick is None else Roughly(quick.rough, margin)
