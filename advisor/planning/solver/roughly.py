"""A source that asks the distilled predictor: quick, and no better than it."""

from dataclasses import dataclass

import numpy as np

from advisor.gpu.layouts import profile_of
from advisor.planning.limits import MAX_OOM_PROBABILITY
from advisor.planning.plan import Predicts
from advisor.planning.solver.sets import Sets
from advisor.planning.solver.table import Answers, Option
from advisor.prediction import instances
from advisor.prediction.rough import Rough, Tenancy


@dataclass(frozen=True, slots=True)
class Roughly:
    """As `advisor.planning.solver.table.Source`, at the median.

    Attributes:
        margin: Share of each memory that jobs must leave free.
    """

    rough: Rough
    margin: float

    @property
    def awake_w(self) -> float:
        return self.rough.model.power.awake_w

    def answers(self, option: Option, sets: Sets) -> Answers:
        """As of every source."""
        tenancy = self._tenancy(option)
        fits = self.rough.fits(tenancy, sets.counts, MAX_OOM_PROBABILITY, self.margin)
        fits[0] = True
        steps_s = np.ones(sets.counts.shape)
        asked = np.flatnonzero(fits)  # with a set that fits, every part of it does
        places = sets.places[asked]
        answered = self.rough.steps(tenancy, places)
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
        part = instances.room_of(gpu, instance, room.slices or instance.compute_slices)
        return Tenancy(part, float(instance.memory_mib), option.sharing, option.limit)


def roughly(predictor: Predicts, margin: float, sets: Sets) -> Roughly | None:
    """A rough source for `sets`; None where the predictor has no rough answers."""
    quick = predictor.quick([job.profile for job in sets.variants])
    return None if quick is None else Roughly(quick.rough, margin)
