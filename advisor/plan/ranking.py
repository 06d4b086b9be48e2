"""All ways to share one GPU among a set of jobs, best first."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Literal

from advisor.errors import NothingFits, counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName, reasons
from advisor.plan.candidates import Forecaster, proposed, under_caps, why_no_caps
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.joint import tied
from advisor.plan.limits import best_limits, protecting_limits
from advisor.plan.objectives import OBJECTIVES, cost, known_cost, rankable_by
from advisor.plan.partitions import cut_into
from advisor.plan.precedence import Priced, by_precedence, rule_in_words, starved
from advisor.plan.rules import (
    TOO_SLOW,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    check_each_fits,
    slows_protected,
)
from advisor.plan.values import Forecast, LeftOut, Plan, Question, Recommendation
from advisor.prediction.cache import one_thread, start_answers
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Level
from advisor.sharing import Group, Hybrid, Mode, Mps, Naive, Part, Place, Serial, Sharing
from advisor.sharing.groups import in_turn, kind_of, one_by_one, running_together
from advisor.workload.job import Job

# Most plans shown of a kind: limits or MIG layouts have many.
MOST_OF_A_KIND = 2


def plans_to_show(forecasts: Sequence[Forecast], question: Question) -> list[Priced]:
    """Choose the plans to show, the first few of each kind, in the order of the rules.

    The first of `forecasts` is among them. Of plans that differ only in where instances lie or in
    the order of groups, the best remains.
    """
    prices = [(each, cost(each, question.objective)) for each in forecasts]
    priced = [Priced(each, price) for each, price in prices if price is not None]
    distinct: dict[tuple[object, ...], Priced] = {}
    for plan in sorted(priced, key=lambda plan: plan.price.at(question.level)):
        key = (*_sorted_groups(plan.forecast), plan.forecast.prediction.power_cap_w)
        distinct.setdefault(key, plan)
    kinds: Counter[tuple[Mode, bool]] = Counter()
    shown = []
    for plan in by_precedence(list(distinct.values()), question):
        kind = kind_of(plan.forecast.sharing), plan.forecast.prediction.power_cap_w is not None
        kinds[kind] += 1
        if kinds[kind] <= MOST_OF_A_KIND or plan.forecast is forecasts[0]:
            shown.append(plan)
    return by_precedence(shown, question)  # the rules depend on which other plans are shown


def _sorted_groups(forecast: Forecast) -> list[str]:
    """Return the groups of a plan without places of instances and without order."""
    return sorted(re.sub(r"@\d+", "", str(forecast.sharing)).split(";"))


def _forecast_candidates(
    forecaster: Forecaster, question: Question
) -> tuple[list[Forecast], list[LeftOut], int, str | None]:
    """Forecast the candidates besides serial that are worth it and allowed.

    The other values: what is left out and why, the number of candidates considered, and how they
    were searched.
    """
    jobs = forecaster.jobs
    sharings, left_out, passed_over = _whole_gpu(forecaster.mixes(), question)
    first = start_answers(forecaster.forecast, sharings)  # replayed during the search for others
    if question.rough:
        more, exact = list[Sharing](), None
        left_out.append(LeftOut("MIG, phases and other limits", "the search stopped early"))
    else:
        more, unsearched, exact = proposed(jobs, question)
        left_out += unsearched
    candidates = list(dict.fromkeys((*sharings, *more)))
    rest = start_answers(forecaster.forecast, candidates[len(sharings) :])
    results = [*first(), *rest()]
    forecasts = [each for each in results if isinstance(each, Forecast)]
    left_out += [each for each in results if isinstance(each, LeftOut)]
    if question.conditions.power_caps:
        if problem := why_no_caps(question.gpu, question.objective, question.conditions):
            left_out.append(LeftOut("power caps", problem))
        else:
            forecasts += under_caps([Serial(), *candidates], forecaster, question)
    sparing = [each for each in forecasts
               if not slows_protected(jobs, each.prediction, question.level)]  # fmt: skip
    if too_slow := len(forecasts) - len(sparing):
        left_out.append(LeftOut(counted(too_slow, "way") + " to share", TOO_SLOW))
    considered = 1 + len(forecasts) + len(left_out) + passed_over
    return sparing, left_out, considered, reasons.searched(len(jobs), passed_over, exact=exact)


def _whole_gpu(mixes: Mixes, question: Question) -> tuple[list[Sharing], list[LeftOut], int]:
    """Ways to share the whole GPU: those to forecast, those left out, and how many were worse."""
    if len(mixes.jobs) == 1:
        return [], [], 0
    problems = {whole: broken_rule(mixes.jobs, whole, question.gpu, question.conditions)
                for whole in (Naive(), Mps())}  # fmt: skip
    left_out = [LeftOut(str(whole), problem) for whole, problem in problems.items() if problem]
    ways: list[Sharing] = [whole for whole, problem in problems.items() if not problem]
    if Mps() not in ways:
        return ways, left_out, 0
    limits, compared = best_limits(mixes, question.objective, question.level, rough=question.rough)
    protecting = [] if question.rough else protecting_limits(mixes.jobs)
    return [*ways, *limits, *protecting], left_out, compared - len(limits)


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
    """Rank the plans for `jobs` on `gpu` that the jobs and `conditions` allow; few if `rough`.

    Raises:
        NothingFits: A job is too big for the whole GPU.
    """
    question = Question(
        gpu=gpu, predictor=CachingPredictor(predictor), objective=objective, level=level,
        conditions=conditions, rough=rough,
    )  # fmt: skip
    forecaster = Forecaster(jobs, question)
    mixes = forecaster.mixes()
    serial = forecast(mixes, Serial())
    check_each_fits(serial.prediction, gpu, conditions)
    ranked_by, note = rankable_by([serial], objective)
    question = replace(question, objective=ranked_by)
    serial = forecast(mixes, _turns_here(jobs, gpu, ranked_by, conditions.instances))
    if conditions.instances is not None:
        if problem := broken_rule(jobs, serial.sharing, gpu, conditions):
            raise NothingFits(f"{problem}: no plan is possible. Switch MIG mode off.")
        check_each_fits(serial.prediction, gpu, conditions)
    with one_thread():
        forecasts, left_out, considered, search = _forecast_candidates(forecaster, question)
    cap_w = serial.prediction.power_cap_w
    others = (  # without serial in other orders, which are no better
        each for each in forecasts
        if (not one_by_one(each.sharing) and _sorted_groups(each) != _sorted_groups(serial))
        or each.prediction.power_cap_w != cap_w
    )  # fmt: skip
    kept = plans_to_show([serial, *others], question)
    plans = _plans(jobs, kept, question, left_out)
    if len(jobs) > 2:
        left_out.append(LeftOut(
            "unequal limits in phases and limits on MIG instances",
            "limits are equal within a phase, and there are none on instances",
        ))  # fmt: skip
    return Recommendation(
        gpu=gpu, jobs=tuple(jobs), objective=objective, ranked_by=ranked_by, note=note, level=level,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction), plans=plans,
        left_out=tuple(left_out), considered=considered, searched=search,
    )  # fmt: skip


def _turns_here(
    jobs: Sequence[Job], gpu: Gpu, objective: ObjectiveName, instances: Sequence[str] | None
) -> Sharing:
    """`best_turns`; on the largest of `instances` if plans are confined to these."""
    turns = best_turns(jobs, objective)
    if instances is None:
        return turns
    (largest, *_) = cut_into(gpu, instances).instances
    order = [at for run in running_together(turns, len(jobs)) for at in run]
    return in_turn([Hybrid((Place(largest, (Part((at + 1,)),)),)) for at in order])


def best_turns(jobs: Sequence[Job], objective: ObjectiveName) -> Sharing:
    """Order `jobs` one after another so that they cost least."""
    turn = OBJECTIVES[objective].turn
    order = sorted(range(len(jobs)), key=lambda at: turn(jobs[at]))
    return in_turn([Group((at + 1,), Serial()) for at in order])


def _plans(
    jobs: Sequence[Job], kept: Sequence[Priced], question: Question, left_out: Sequence[LeftOut]
) -> tuple[Plan, ...]:
    """The plans `kept`, each with its reasons; the best also with what was ruled out."""
    best, level, objective = kept[0].forecast, question.level, question.objective
    plans = []
    for rank, (entry, after) in enumerate(zip_longest(kept, kept[1:]), start=1):
        plan, rule = entry.forecast, entry.precedes_by
        late, slow = sorted(plan.late(level)), starved(plan, level)
        if rank > 1:
            gap = reasons.compared(plan, best, "the best", objective, level)
        elif after:
            gap = reasons.compared(plan, after.forecast, "the next", objective, level)
        else:
            gap = "nothing else is possible"
        doubtful = after and rank == 1 and tied(plan, after.forecast, objective, level)
        if after and rule and (doubtful or rule != "cost"):
            gap += f"; before {rank + 1} {rule_in_words(rule, level)}"
        bound = reasons.binding(jobs, question.gpu, plan.prediction)
        parts = [reasons.limit_in_words(plan.prediction, bound), gap]
        if slow:
            parts.append(reasons.slowed([(jobs[at].name, times) for at, times in slow.items()]))
        if late:
            parts.append(f"misses its deadline: {reasons.named([jobs[at].name for at in late])}")
        if rank == 1 and left_out:
            parts.append(f"ruled out: {reasons.ruled_out(left_out)}")
        own: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
        plans.append(Plan(
            **own, rank=rank, ties_best=tied(plan, best, objective, level), why="; ".join(parts),
            late_jobs=tuple(at + 1 for at in late), precedes_by=rule,
        ))  # fmt: skip
    return tuple(plans)


Answer = Literal["nothing-to-share", "share", "dont-share", "fix-host-first", "equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion of a recommendation.

    Attributes:
        answers: All conclusions that hold, the one to act on first. ``"fix-host-first"``: the hosts
            hold back every job of the best plan, some of them far. ``"equal"``: another plan equals
            the best within our error.
        next_behind: Share by which the next plan costs more than the best; negative where it costs
            less, and another rule puts the best before it. None: there is no other plan.
    """

    answers: tuple[Answer, ...]
    binding: reasons.Binding
    next_behind: float | None
    host_bound: tuple[reasons.HostBound, ...]


def verdict(advised: Recommendation) -> Verdict:
    """Draw the conclusion of the recommendation `advised`."""
    bound = reasons.binding(advised.jobs, advised.gpu, advised.best.prediction)
    slow = reasons.host_bound(advised.jobs, bound, advised.variants)
    answers: list[Answer] = ["fix-host-first"] if slow and bound.limit == "host path" else []
    if len(advised.jobs) == 1:
        answers.append("nothing-to-share")
    else:
        answers.append("dont-share" if one_by_one(advised.best.sharing) else "share")
    if any(plan.ties_best for plan in advised.plans[1:]):
        answers.append("equal")
    first, *others = (known_cost(plan, advised.ranked_by).at(advised.level)
                      for plan in advised.plans[:2])  # fmt: skip
    return Verdict(
        answers=tuple(answers), binding=bound, host_bound=slow,
        next_behind=others[0] / first - 1 if others else None,
    )  # fmt: skip
