"""How the jobs of a plan fare against each other: which of them pay for the others' speed."""

from dataclasses import dataclass

from advisor.plan.objectives.pace import over_equal_shares
from advisor.plan.precedence import COMPARED
from advisor.prediction.mix_prediction import LEVELS, Interval, MixPrediction


@dataclass(frozen=True, slots=True)
class Treatment:
    """How one job of a plan fares.

    Attributes:
        slowdown: How many times as long as alone a step takes, while it runs.
        over_equal_share: How many times as long it takes as with an equal share of the GPU's time.
        unfair: Whether an equal share would serve it better, by more than plans are told apart by.
    """

    job: str
    slowdown: Interval
    over_equal_share: Interval
    unfair: bool

    @property
    def equal_slowdown(self) -> float:
        """The slowdown at which it would fare as with an equal share."""
        return self.slowdown.p50 / self.over_equal_share.p50


def treatments(mix: MixPrediction) -> tuple[Treatment, ...]:
    """How each job of `mix` fares, in its order."""
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
