"""Why a plan stands where it stands, in one line of numbers."""

from advisor.planning.objectives import tied
from advisor.planning.plan import Forecast
from advisor.prediction.answer import Interval, MixPrediction
from advisor.sharing import Hybrid, Mig, Serial

_BUSY, _FULL = 0.9, 0.9


def why(forecast: Forecast, cost: Interval, best: Interval, runner_up: Interval | None) -> str:
    """What binds under this plan, and how it compares.

    Args:
        forecast: Of the plan.
        cost: Of the plan, by the objective it is ranked by.
        best: The same of the best plan; `cost` itself where this is the best.
        runner_up: The same of the plan behind it, for the best; None: there is no other.
    """
    return f"{_binds(forecast.prediction)}; {_standing(cost, best, runner_up)}"


def _binds(mix: MixPrediction) -> str:
    if isinstance(mix.sharing, Mig):
        return "SMs and memory of its own for each job, estimated, not confirmed on hardware"
    if isinstance(mix.sharing, Hybrid):
        return "jobs on instances of their own or shared, estimated, not confirmed on hardware"
    parts = [_gpu_or_host(mix)]
    if mix.memory_total_mib > _FULL * mix.memory_capacity_mib:
        parts.append(f"memory {mix.memory_total_mib / mix.memory_capacity_mib:.0%} full")
    if mix.wide_because:
        parts.append(mix.wide_because)
    return ", ".join(parts)


def _gpu_or_host(mix: MixPrediction) -> str:
    if mix.gract is None:
        return "GPU activity not measured"
    busy = f"GPU busy {mix.gract:.0%} of the time"
    if mix.gract >= _BUSY:
        return f"{busy}: it is the limit"
    if isinstance(mix.sharing, Serial):
        return f"{busy}, idle while the host works"
    return f"{busy}: the host is the limit"


def _standing(cost: Interval, best: Interval, runner_up: Interval | None) -> str:
    if cost is not best:
        return _compared(cost, best, "the best")
    if runner_up is None:
        return "nothing else is possible"
    return _compared(cost, runner_up, "the next")


def _compared(cost: Interval, other: Interval, name: str) -> str:
    """How much more than `other` this costs; less: how much more the other does."""
    if cost.p50 > other.p50:
        distance = f"{cost.p50 / other.p50 - 1:.0%} behind {name}"
    else:
        distance = f"{other.p50 / cost.p50 - 1:.0%} ahead of {name}"
    return f"{distance}, equal within our error" if tied(cost, other) else distance
