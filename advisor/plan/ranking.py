"""All ways to share one GPU among a set of jobs, best first."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any

from advisor.errors import counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.bottlenecks import binding
from advisor.plan.candidates import Forecaster, Proposed, as_asked, proposed, under_caps, unsearched
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.limit_tuning import protecting_limits
from advisor.plan.limits import best_limits, estimated_limits
from advisor.plan.objectives import OBJECTIVES, rankable_by, tied
from advisor.plan.precedence import Priced, plans_to_show, starved
from advisor.plan.reasons import gap_in_words, rule_in_words, searched, why
from advisor.plan.rules import (
    TOO_SLOW,
    UNCONDITIONAL,
    Conditions,
    check_each_fits,
    first_broken,
    rules,
    slows_protected,
)
from advisor.plan.values import Forecast, LeftOut, Plan, Question, Recommendation
from advisor.prediction.cache import begun, one_thread
from advisor.prediction.prediction import Interval, Level
from advisor.prediction.surrogate_predictor import Predicts
from advisor.sharing import Group, Mps, Naive, Serial, Sharing
from advisor.sharing.groups import in_turn, one_by_one
from advisor.workload.job import Job

_NOT_YET = Proposed((), (LeftOut("MIG, phases and other limits", "the search stopped early"),))


@dataclass(frozen=True, slots=True)
class ForecastCandidates:
    """The candidates besides serial, and what came of them.

    Attributes:
        forecasts: Forecasts of the candidates that jobs and machine allow.
        left_out: Candidates that they do not allow, or that were not looked at, and why.
        passed_over: Number of further candidates that were only estimated, and estimated to be
            worse.
        predicted: Number of forecasts, those that slow a protected job too much included.
        asked: As of `Proposed`.
    """

    forecasts: tuple[Forecast, ...]
    left_out: tuple[LeftOut, ...]
    passed_over: int
    predicted: int
    asked: bool | None


def forecast_candidates(forecaster: Forecaster, question: Question) -> ForecastCandidates:
    """Find the candidates that are worth a forecast for the jobs of `forecaster`; forecast them."""
    jobs, one_by_one = forecaster.jobs, as_asked(len(forecaster.jobs), Serial())
    sharings, left_out, passed_over = _shared(forecaster.mixes(one_by_one), question)
    plain = [as_asked(len(jobs), each) for each in sharings]
    first = begun(forecaster.forecast, plain)  # they are replayed while the others are looked for
    more = _NOT_YET if question.rough else proposed(jobs, question)
    candidates = list(dict.fromkeys((*plain, *more.candidates)))
    rest = begun(forecaster.forecast, candidates[len(plain) :])
    judged = [*first(), *rest()]
    found = [each for each in judged if isinstance(each, Forecast)]
    left_out += [*more.left_out, *(each for each in judged if isinstance(each, LeftOut))]
    if question.conditions.power_caps:
        capped, uncapped = under_caps([one_by_one, *candidates], jobs, question)
        found += capped
        left_out += uncapped
    sparing = [each for each in found if not slows_protected(jobs, each.prediction, question.level)]
    if hurting := len(found) - len(sparing):
        ways = counted(hurting, "way") + " to share"
        left_out.append(LeftOut(ways, TOO_SLOW))
    return ForecastCandidates(tuple(sparing), tuple(left_out), passed_over, len(found), more.asked)


def _shared(mixes: Mixes, question: Question) -> tuple[list[Sharing], list[LeftOut], int]:
    """Ways to share the whole GPU: those to forecast, those left out, and how many were worse."""
    if len(mixes.jobs) == 1:
        return [], [], 0
    forbidding = rules(question.gpu, question.conditions)
    asked = [(whole, first_broken(forbidding, mixes.jobs, whole)) for whole in (Naive(), Mps())]
    left_out = [LeftOut(str(whole), problem) for whole, problem in asked if problem]
    tried: list[Sharing] = [whole for whole, problem in asked if not problem]
    if Mps() not in tried:
        return tried, left_out, 0
    if question.rough:
        guessed = estimated_limits(mixes, question.objective)
        return [*tried, *guessed.sharings], left_out, guessed.compared - len(guessed.sharings)
    found = best_limits(mixes, question.objective, question.level)
    protecting = [each for each in protecting_limits(mixes.jobs) if each not in found.sharings]
    passed_over = found.compared - len(found.sharings)
    return [*tried, *found.sharings, *protecting], left_out, passed_over


def ranked(
    jobs: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    objective: ObjectiveName,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
    *,
    rough: bool = False,
) -> Recommendation:
    """Every plan for `jobs` on `gpu` that the jobs and `conditions` allow; few where it is `rough`.

    Raises:
        NothingFits: A job is too big for the whole GPU.
    """
    question = Question(
        gpu=gpu, predictor=CachingPredictor(predictor), objective=objective, level=level,
        conditions=conditions, rough=rough,
    )  # fmt: skip
    forecaster = Forecaster(jobs, question)
    one_after_another = forecaster.mixes(as_asked(len(jobs), Serial()))
    serial = forecast(one_after_another, Serial())
    check_each_fits(serial.prediction, gpu, conditions)
    ranked_by, note = rankable_by([serial], objective)
    question = replace(question, objective=ranked_by)
    serial = forecast(one_after_another, best_turns(jobs, ranked_by))
    with one_thread():
        seen = forecast_candidates(forecaster, question)
    others = (each for each in seen.forecasts if not _other_turns(each, serial))
    kept = plans_to_show([serial, *others], question)
    plans = _plans(jobs, kept, question, seen.left_out)
    return Recommendation(
        gpu=gpu, jobs=tuple(jobs), objective=objective, ranked_by=ranked_by, note=note, level=level,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction), plans=plans,
        left_out=(*seen.left_out, *unsearched(jobs)),
        considered=1 + seen.predicted + len(seen.left_out) + seen.passed_over,
        searched=searched(len(jobs), seen.passed_over, asked=seen.asked),
    )  # fmt: skip


def best_turns(jobs: Sequence[Job], objective: ObjectiveName) -> Sharing:
    """`jobs` one after another in the order that costs least; as asked for where none does."""
    turn = OBJECTIVES[objective].turn
    order = sorted(range(len(jobs)), key=lambda at: turn(jobs[at]))
    return in_turn([Group((at + 1,), Serial()) for at in order])


def _other_turns(each: Forecast, serial: Forecast) -> bool:
    """Whether it is as `serial` in an order that is no better."""
    capped = each.prediction.power_cap_w != serial.prediction.power_cap_w
    return one_by_one(each.sharing) and not capped


def _plans(
    jobs: Sequence[Job], kept: Sequence[Priced], question: Question, left_out: Sequence[LeftOut]
) -> tuple[Plan, ...]:
    """The plans `kept`, each with its reasons; the best also with what was ruled out."""
    best, level = kept[0].price, question.level
    found = []
    for rank, (each, after) in enumerate(zip_longest(kept, kept[1:]), start=1):
        plan, price = each.forecast, each.price
        late, slow = sorted(plan.late(level)), starved(plan, level)
        bound = binding(jobs, question.gpu, plan.prediction)
        said = why(
            plan.prediction, bound, _compared(each, best, after, question, rank),
            left_out if rank == 1 else (), late=[jobs[at].name for at in late],
            starved=[(jobs[at].name, times) for at, times in slow.items()],
        )  # fmt: skip
        own: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
        found.append(Plan(
            **own, rank=rank, ties_best=tied(price, best), why=said,
            late_jobs=tuple(at + 1 for at in late), precedes_by=each.precedes_by,
        ))  # fmt: skip
    return tuple(found)


def _compared(
    each: Priced, best: Interval, after: Priced | None, question: Question, rank: int
) -> str:
    """How a plan compares in numbers, and by which rule it precedes the next if not by numbers."""
    said = gap_in_words(each.price, best, None if after is None else after.price, question.level)
    if after is None or each.precedes_by is None:
        return said
    plain = each.precedes_by == "cost" and not (rank == 1 and tied(each.price, after.price))
    rule = rule_in_words(each.precedes_by, question.level)
    return said if plain else f"{said}; before {rank + 1} {rule}"
