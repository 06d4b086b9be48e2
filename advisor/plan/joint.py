"""The joint interval of two plans' costs: how sure it is that one of them is ahead.

The costs of two plans for the same jobs err together: both rest on the same profiles, and run on
the same host. So their ratio is surer than either.
"""

from statistics import fmean

from advisor.plan import ObjectiveName
from advisor.plan.objectives import known_cost
from advisor.plan.values import Forecast
from advisor.prediction.prediction import LEVELS, Interval, Level, around
from advisor.sharing.groups import one_by_one

COMMON = 0.75
"""Share of the errors of two ways to share, serial too, that has the same cause, such as the host.

Real runs of the same jobs on one host in two ways, each job predicted without its family: of 1588
pairs on an H200, 94 % of the measured ratios lie in their joint intervals, and at least 93 % of
those of any two kinds; on an H100, 96 % of 250. The largest share that covers 90 % is 0.8 or 0.85,
whichever family is left out, but on a checked host, of which less is unsure, it is 0.7. Intervals
are a third narrower than if errors were independent. No pair is of MIG: the share is taken over."""

SURE = 0.2
"""Part of the joint interval's lower half that a lead must exceed to be taken for real, so that
chances of it are five in eight: about 4 % for limits over plain MPS.

Of the 503 pairs of shared ways, the one that was measured faster is chosen in 448, and in 443 by
the cost alone. Of the limits chosen over plain MPS, 14 % are slower, and 22 % by the cost alone."""

_ROUNDED = 1e-9


def joint_ratio(first: Interval, second: Interval, *, same_way: bool) -> Interval:
    """Return the first number over the second, of two plans for the same jobs.

    If both share in the same way, they differ by the power cap of one: all else cancels.
    """
    return first.over_alike(second) if same_way else first.over(second, COMMON)


def cost_ratio(
    one: Forecast, other: Forecast, objective: ObjectiveName, level: Level = "p50"
) -> Interval:
    """Return the joint interval of the cost of `one` over that of `other`, around that at `level`.

    With serial as `one`, it is the gain of `other`: above 1 beats serial.
    """
    first, second = (_with_error(each, objective) for each in (one, other))
    ratio = joint_ratio(first, second, same_way=one.sharing == other.sharing)
    return ratio.scaled(first.at(level) / second.at(level) / ratio.p50)


def _with_error(forecast: Forecast, objective: ObjectiveName) -> Interval:
    """The cost with the error of its pace, which jobs that run one by one lack in throughput.

    The unit of throughput is the pace of each job alone, whatever that is.
    """
    cost = known_cost(forecast, objective)
    if objective != "throughput" or not one_by_one(forecast.sharing):
        return cost
    steps_s = [job.step_s for job in forecast.prediction.jobs]
    return cost.times(
        around([fmean(each.at(level) / each.p50 for each in steps_s) for level in LEVELS])
    )


def holds_one(ratio: Interval) -> bool:
    """Check whether two numbers of this `ratio` are equal within our error."""
    either_way = ratio.p05 < 1 - _ROUNDED and ratio.p95 > 1 + _ROUNDED
    return either_way or abs(ratio.p50 - 1) <= _ROUNDED


def tied(one: Forecast, other: Forecast, objective: ObjectiveName, level: Level = "p50") -> bool:
    """Check whether the costs of two plans are equal within our error."""
    return holds_one(cost_ratio(one, other, objective, level))


def lead_is_real(ratio: Interval) -> bool:
    """Check whether a plan is ahead of another, of whose cost over its own this is the `ratio`."""
    return ratio.widened(SURE).p05 > 1
