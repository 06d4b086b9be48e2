"""Which power cap serves a plan, on one GPU or on each of several, if that is left open."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from advisor.hardware.catalogue import Gpu
from advisor.plan.candidates import Candidate, Forecaster, as_asked
from advisor.plan.forecast import CachingPredictor
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.recommendation import Forecast, LeftOut
from advisor.plan.search.candidate_space import Question
from advisor.prediction.mix_prediction import Level
from advisor.workload.job import Job

if TYPE_CHECKING:
    from advisor.plan.fleet_plan import FleetPlan

CAP_SHARES = (0.9, 0.8, 0.7, 0.6)
"""Caps that a plan may have, as shares of the GPU's own limit: a choice.

The least that boards take is not in the catalogue; a cap of less than 0.6 may be refused by one.
"""


def cap_choices(gpu: Gpu) -> tuple[float, ...]:
    """Whole watts that a plan on `gpu` may be capped to; none where its limit is not known."""
    if gpu.power_limit_w is None:
        return ()
    watts = (float(round(share * gpu.power_limit_w)) for share in CAP_SHARES)
    return tuple(cap_w for cap_w in watts if cap_w >= (gpu.power_limit_min_w or 0.0))


def under_caps(
    candidates: Sequence[Candidate], jobs: Sequence[Job], question: Question
) -> tuple[list[Forecast], list[LeftOut]]:
    """Each of `candidates` under the cap that is best, where one is better than none.

    A job that keeps its deadline without a cap keeps it under the cap.

    Args:
        candidates: Of all `jobs`, without caps.
        jobs: As they were asked for.
        question: What a cap is to be best at; its predictor knows of no cap.

    Returns:
        What comes of them, and why caps were not looked at.
    """
    if problem := _no_caps(question):
        return [], [LeftOut("power caps", problem)]
    forecaster = Forecaster(jobs, replace(question, predictor=CachingPredictor(question.predictor)))
    found = [_under_the_best(each, forecaster, question) for each in candidates]
    return [each for each in found if each is not None], []


def _no_caps(question: Question) -> str | None:
    """Why no cap is looked at; None where they are."""
    if not question.conditions.root:
        return "setting one takes root, and there is none"
    if not OBJECTIVES[question.objective].saves_energy:
        return f"a cap makes no job faster, and plans are ranked by {question.objective}"
    if not cap_choices(question.gpu):
        return f"the power limit of {question.gpu.key} is not known"
    return None


def _under_the_best(
    candidate: Candidate, forecaster: Forecaster, question: Question
) -> Forecast | None:
    """What comes of `candidate` under its best cap; None where that is no cap, or none fits."""
    free = forecaster.forecast(candidate)
    if isinstance(free, LeftOut):
        return None
    in_time = [free]
    for cap_w in cap_choices(question.gpu):
        capped = forecaster.forecast(replace(candidate, power_cap_w=cap_w))
        assert isinstance(capped, Forecast), "a cap takes no memory"
        if capped.late(question.level) <= free.late(question.level):
            in_time.append(capped)
    best = min(in_time, key=lambda each: _price(each, question))
    return None if best is free else best


def _price(forecast: Forecast, question: Question) -> float:
    return known_cost(forecast, question.objective).at(question.level)


def with_caps(found: "FleetPlan", question: Question) -> "FleetPlan":
    """`found` under the caps that save most joules of all GPUs, chosen for one after another.

    A job that keeps its deadline without caps keeps it under them.

    Args:
        found: Without caps.
        question: That it answers; its predictor knows of no cap.
    """
    late = set(found.late)
    for at, each in enumerate(found.on):
        tried = [found]
        for cap_w in cap_choices(found.gpu):
            candidate = replace(each.candidate, power_cap_w=cap_w)
            capped = replace(
                each,
                candidate=candidate,
                forecast=_forecast_under_cap(candidate, found.jobs, question),
            )
            tried.append(replace(found, on=(*found.on[:at], capped, *found.on[at + 1 :])))
        in_time = [each for each in tried if set(each.late) <= late]
        found = min(in_time, key=lambda each: _energy_j(each, question.level))
    return found


def _energy_j(found: "FleetPlan", level: Level) -> float:
    joules = found.energy_j
    assert joules is not None, "a cap changes how much energy is used, not whether it is known"
    return joules.at(level)


def _forecast_under_cap(candidate: Candidate, jobs: Sequence[Job], question: Question) -> Forecast:
    own = candidate.chosen(jobs)
    capped = replace(as_asked(len(own), candidate.sharing), power_cap_w=candidate.power_cap_w)
    found = Forecaster(own, question).forecast(capped)
    assert isinstance(found, Forecast), "a cap takes no memory"
    return found
