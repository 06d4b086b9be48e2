"""Which power cap each plan is best under, where plans may choose one."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.hardware.catalogue import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidates import Candidate, Forecaster
from advisor.plan.forecast import CachingPredictor
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.recommendation import Forecast, LeftOut, Question
from advisor.plan.rules import Conditions
from advisor.workload.job import Job

CAP_SHARES = (0.9, 0.8, 0.7, 0.6)
"""Caps that a plan may have, as shares of the GPU's own limit: a choice.

The least that boards take is not in the catalogue; a cap of less than 0.6 may be refused by one.
"""


def cap_choices(gpu: Gpu) -> tuple[float, ...]:
    """Power caps, in whole watts, that a plan on `gpu` may choose; none if its limit is unknown."""
    if gpu.power_limit_w is None:
        return ()
    watts = (float(round(share * gpu.power_limit_w)) for share in CAP_SHARES)
    return tuple(cap_w for cap_w in watts if cap_w >= (gpu.power_limit_min_w or 0.0))


def under_caps(
    candidates: Sequence[Candidate], jobs: Sequence[Job], question: Question
) -> tuple[list[Forecast], list[LeftOut]]:
    """The `candidates`, each of all `jobs`, under their best power cap where one helps.

    A job that keeps its deadline without a cap must keep it under the cap. The predictor of
    `question` is one without a cap.

    Returns:
        What comes of them, and why caps were not looked at.
    """
    if problem := why_no_caps(question.gpu, question.objective, question.conditions):
        return [], [LeftOut("power caps", problem)]
    forecaster = Forecaster(jobs, replace(question, predictor=CachingPredictor(question.predictor)))
    found = [_under_the_best(each, forecaster, question) for each in candidates]
    return [each for each in found if each is not None], []


def why_no_caps(gpu: Gpu, objective: ObjectiveName, conditions: Conditions) -> str | None:
    """Why no plan on `gpu` chooses a power cap although it may; None where plans do."""
    if not conditions.root:
        return "setting one takes root, and there is none"
    if not OBJECTIVES[objective].saves_energy:
        return f"a cap makes no job faster, and plans are ranked by {objective}"
    if not cap_choices(gpu):
        return f"the power limit of {gpu.key} is not known"
    return None


def _under_the_best(
    candidate: Candidate, forecaster: Forecaster, question: Question
) -> Forecast | None:
    """Forecast of `candidate` under its best cap; None where no cap is best, or none fits."""
    free = forecaster.forecast(candidate)
    if isinstance(free, LeftOut):
        return None
    in_time = [free]
    for cap_w in cap_choices(question.gpu):
        capped = forecaster.forecast(replace(candidate, power_cap_w=cap_w))
        assert isinstance(capped, Forecast), "a cap takes no memory"
        if capped.late(question.level) <= free.late(question.level):
            in_time.append(capped)
    best = min(in_time, key=lambda each: known_cost(each, question.objective).at(question.level))
    return None if best is free else best
