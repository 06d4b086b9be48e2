"""Power caps that plans choose: those that save most joules and make no further job late."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.cluster import GpuPool
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions, slows_protected
from advisor.plan.schedule import schedule
from advisor.plan.values import GpuPlan, Question, Schedule
from advisor.prediction.caching_predictor import CachingPredictor

# Caps that a plan may have, as shares of the GPU's own limit: a choice. Boards may refuse less.
_CAP_SHARES = (0.9, 0.8, 0.7, 0.6)


def cap_choices(gpu: Gpu) -> tuple[float, ...]:
    """Return power caps, in whole watts, for plans on `gpu`; none if its limit is unknown."""
    if gpu.power_limit_w is None:
        return ()
    watts = (float(round(share * gpu.power_limit_w)) for share in _CAP_SHARES)
    return tuple(cap_w for cap_w in watts if cap_w >= (gpu.power_limit_min_w or 0.0))


def why_no_caps(gpu: Gpu, objective: ObjectiveName, conditions: Conditions) -> str | None:
    """Say why no plan on `gpu` chooses a power cap although it may; None where plans do."""
    if not conditions.root:
        return "setting one takes root, and there is none"
    if not OBJECTIVES[objective].saves_energy:
        return f"a cap makes no job faster, and plans are ranked by {objective}"
    if not cap_choices(gpu):
        return f"the power limit of {gpu.key} is not known"
    return None


def under_caps(
    schedules: Sequence[Schedule], pools: Sequence[GpuPool], questions: Sequence[Question]
) -> Iterator[Schedule]:
    """Yield each of `schedules` that a cap on some GPUs helps, under the best caps.

    `questions` are those of one GPU of each pool. GPUs that run equal jobs equally have the same
    cap.
    """
    for free in schedules:
        if free.energy_j is not None:
            capped = _capped(free, pools, questions)
            if capped is not free:
                yield capped


def _capped(free: Schedule, pools: Sequence[GpuPool], questions: Sequence[Question]) -> Schedule:
    level = questions[0].level

    def joules(plan: Schedule) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(level)

    late, best, left = free.late(level), free, list(free.gpus)
    while left:
        like = left[0]
        same = [on.number for on in left if _runs_as(on, like)]
        left = [on for on in left if on.number not in same]
        question = next(each for each in questions if each.gpu == like.gpu)
        plans = [best]
        for cap_w in cap_choices(question.gpu):
            predictor = CachingPredictor(question.predictor, question.gpu, cap_w=cap_w)
            capped = forecast(Mixes(like.members, predictor), like.sharing)
            if not slows_protected(like.members, capped.prediction, level):
                gpus = [
                    replace(on, forecast=capped) if on.number in same else on for on in best.gpus
                ]
                plans.append(schedule(pools, gpus, free.way))
        best = min((plan for plan in plans if plan.late(level) <= late), key=joules)
    return best


def _runs_as(one: GpuPlan, other: GpuPlan) -> bool:
    return (one.gpu, one.members, one.sharing) == (other.gpu, other.members, other.sharing)
