"""Which jobs of a plan pay for the others' speed, in words."""

from collections.abc import Sequence

from advisor.plan.fair_share import Treatment
from advisor.report import units

UNFAIR = "▲"
"""Marks a job that an equal share of the GPU's time would serve better."""

_TICK = "The tick is where an equal share of the GPU's time would have it."


def fairness_text(fares: Sequence[Treatment]) -> str:
    """The jobs that are worse off than with equal shares of the GPU, if any."""
    worse = dict.fromkeys(
        f"{each.job} takes {units.times(each.over_equal_share)} as long as with an equal share"
        for each in fares
        if each.unfair
    )
    if not worse:
        return f"No job is worse off than with an equal share of the GPU's time. {_TICK}"
    return f"{UNFAIR} Unfair: {'; '.join(worse)}. {_TICK}"
