"""How evenly a plan treats its jobs: which of them pay for the speed of the others."""

from dataclasses import dataclass

from advisor.plan.objectives.pace import over_equal_shares
from advisor.plan.precedence import COMPARED
from advisor.prediction.interval import LEVELS, Interval
from advisor.prediction.mix_prediction import MixPrediction


@dataclass(frozen=True, slots=True)
class Treatment:
    """How one job of a plan is treated.

    Attributes:
        slowdown: Step while it runs, over its step alone.
        over_equal_share: Step over the step that an equal share of the GPU's time would give.
        unfair: Whether an equal share would be better for the job, by more than our error.
    """

    job: str
    slowdown: Interval
    over_equal_share: Interval
    unfair: bool

    @property
    def equal_slowdown(self) -> float:
        """The slowdown that an equal share of the GPU would give the job."""
        return self.slowdown.p50 / self.over_equal_share.p50


def treatments(mix: MixPrediction) -> tuple[Treatment, ...]:
    """How each job of `mix` is treated, in the order of its jobs."""
    in_turn = mix.sharing.mode == "serial"  # where a power cap alone slows
    return tuple(
        Treatment(
            job=job.job,
            slowdown=Interval(*map(job.slowdown_at, LEVELS)),
            over_equal_share=over,
            unfair=not in_turn and over.p50 > 1 + COMPARED,
        )
        for job, over in zip(mix.jobs, over_equal_shares(mix), strict=True)
    )
