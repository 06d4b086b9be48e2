"""All ways to share one GPU among a set of jobs: the first by the rule of choice, then by cost."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, pairwise, zip_longest
from typing import Any, Literal

from advisor.errors import NothingFits, counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName, reasons
from advisor.plan.candidate_space import proposed
from advisor.plan.choice import STARVED, first_plan, starved
from advisor.plan.cuts import cut_into
from advisor.plan.forecast import Mixes, cap_choices, forecast, forecast_allowed, why_no_caps
from advisor.plan.limits import best_limits, protecting_limits
from advisor.plan.objectives import OBJECTIVES, cost, known_cost, rankable_by, tied
from advisor.plan.progress import step
from advisor.plan.rules import (
    TOO_SLOW,
    UNCONDITIONAL,
    Conditions,
    broken_rule,
    check_each_fits,
    slows_protected,
)
from advisor.plan.values import Forecast, LeftOut, Plan, Precedence, Question, Recommendation
from advisor.prediction.cache import one_thread, start_answers
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Level
from advisor.prediction.wrappers import CachingPredictor
from advisor.sharing import Group, Hybrid, Mode, Mps, Naive, Part, Place, Serial, Sharing
from advisor.sharing.groups import in_turn, kind_of, one_by_one, running_together
from advisor.workload.job import Job

_RULES: Mapping[Precedence, str] = {
    "deadlines": "as it makes fewer jobs late",
    "starvation": f"as it slows no job over {STARVED:g}x",
    "cost": "by its median",
    "makespan": "as all are done soonest under it, of those about as good",
    "simplicity": "whose lead is too small for what it takes",
}

Ordered = list[tuple[Forecast, Precedence | None]]
"""Plans, each with the rule by which it precedes the next; None: it is the last."""


def by_precedence(plans: Sequence[Forecast], question: Question) -> Ordered:
    """Order `plans` that have a cost, and note for each the rule by which it precedes the next."""
    objective, level = OBJECTIVES[question.objective], question.level

    def place(each: Forecast) -> tuple[int, float, float]:
        """Late jobs, for objectives in joules; the cost; and what decides between equal costs."""
        late = len(each.late(level)) if objective.saves_energy else 0
        own, then = (
            known_cost(each, name).at(level)
            for name in (objective.name, objective.then or objective.name)
        )
        return late, own, then

    first, rule = first_plan(plans, objective.name, level)
    ordered = [first, *sorted((each for each in plans if each is not first), key=place)]
    places = list(map(place, ordered))
    rules: list[Precedence | None] = [
        "deadlines" if one[0] < other[0] else "cost" for one, other in pairwise(places)
    ]
    if rules and places[0] > places[1]:
        rules[0] = rule
    return list(zip(ordered, [*rules, None], strict=True))


def rule_in_words(rule: Precedence, level: Level) -> str:
    """Describe the rule by which one plan precedes another, e.g. ``"by its median"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]


# Most plans shown of a kind: limits or MIG layouts have many.
MOST_OF_A_KIND = 2
# Ways that were ruled out and are named with the best plan.
_NAMED = 2


def plans_to_show(forecasts: Sequence[Forecast], question: Question) -> Ordered:
    """Choose the plans to show, the first and the best few of each kind, in order.

    Of plans that differ only in where instances lie or in the order of groups, the best remains.
    """
    prices = [
        (price.at(question.level), at)
        for at, each in enumerate(forecasts)
        if (price := cost(each, question.objective)) is not None
    ]
    distinct: dict[tuple[object, ...], Forecast] = {}
    for _, at in sorted(prices):
        plan = forecasts[at]
        distinct.setdefault((*_sorted_groups(plan), plan.prediction.power_cap_w), plan)
    kinds: Counter[tuple[Mode, bool]] = Counter()
    shown = []
    for plan, _ in by_precedence(list(distinct.values()), question):
        kind = kind_of(plan.sharing), plan.prediction.power_cap_w is not None
        kinds[kind] += 1
        if kinds[kind] <= MOST_OF_A_KIND or plan is forecasts[0]:
            shown.append(plan)
    return by_precedence(shown, question)  # the rules depend on which other plans are shown


def _sorted_groups(forecast: Forecast) -> list[str]:
    """Return the groups of a plan without places of instances and without order."""
    return sorted(re.sub(r"@\d+", "", str(forecast.sharing)).split(";"))


def _candidates(
    mixes: Mixes, question: Question
) -> tuple[list[Forecast], list[LeftOut], int, str | None]:
    """Forecast the candidates besides serial; what is left out, their number, and the search."""
    jobs, answer = mixes.jobs, partial(forecast_allowed, mixes, question)
    sharings, left_out, compared = _whole_gpu(mixes, question)
    answers = []
    with start_answers(answer, sharings) as first:  # replayed during the search for others
        more, unsearched, exact = proposed(jobs, question)
        left_out += unsearched
        more = [each for each in dict.fromkeys(more) if each not in sharings]
        with start_answers(answer, more) as others:
            for each in chain(first, others):
                step()
                answers.append(each)
    forecasts = [each for each in answers if isinstance(each, Forecast)]
    left_out += [each for each in answers if isinstance(each, LeftOut)]
    if question.conditions.power_caps:
        if problem := why_no_caps(question.gpu, question.objective, question.conditions):
            left_out.append(LeftOut("power caps", problem))
        else:
            forecasts += _under_caps([Serial(), *sharings, *more], mixes, question)
    sparing = [
        each for each in forecasts if not slows_protected(jobs, each.prediction, question.level)
    ]
    if too_slow := len(forecasts) - len(sparing):
        left_out.append(LeftOut(counted(too_slow, "way") + " to share", TOO_SLOW))
    searched = []
    if exact is not None:
        searched.append(
            "every set of jobs was predicted, at once, in phases and on MIG instances"
            if exact
            else "estimates chose the few phases and MIG layouts that were predicted"
        )
    if compared:
        searched.append(
            f"{compared:,} limits were compared by the surrogate model, and the best "
            "of them predicted"
        )
    considered = 1 + len(forecasts) + len(left_out) + compared
    return sparing, left_out, considered, "; ".join(searched) or None


def _whole_gpu(mixes: Mixes, question: Question) -> tuple[list[Sharing], list[LeftOut], int]:
    """Ways to share the whole GPU: those to forecast, those left out, and how many were worse."""
    ways, left_out = list[Sharing](), list[LeftOut]()
    for whole in (Naive(), Mps()) if len(mixes.jobs) > 1 else ():
        if problem := broken_rule(mixes.jobs, whole, question.gpu, question.conditions):
            left_out.append(LeftOut(str(whole), problem))
        else:
            ways.append(whole)
    if Mps() not in ways:
        return ways, left_out, 0
    limits, compared = best_limits(mixes, question.objective, question.level)
    return (
        list(dict.fromkeys((*ways, *limits, *protecting_limits(mixes.jobs)))),
        left_out,
        compared - len(limits),
    )


def _under_caps(sharings: Sequence[Sharing], mixes: Mixes, question: Question) -> list[Forecast]:
    """Forecast `sharings` under their best cap that makes no further job late, if one helps."""
    capped, level = [], question.level
    for sharing in sharings:
        answers = (
            forecast_allowed(mixes, question, sharing, cap_w)
            for cap_w in (None, *cap_choices(question.gpu))
        )
        plans = [each for each in answers if isinstance(each, Forecast)]
        plans = [each for each in plans if cost(each, question.objective) is not None]
        in_time = [each for each in plans if each.late(level) <= plans[0].late(level)]
        costs = [known_cost(each, question.objective).at(level) for each in in_time]
        if costs and costs[0] > min(costs):
            capped.append(in_time[costs.index(min(costs))])
    return capped


def ranked(
    jobs: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    objective: ObjectiveName,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
) -> Recommendation:
    """Rank the plans for `jobs` on `gpu` that the jobs and `conditions` allow.

    Raises:
        NothingFits: A job is too big for the whole GPU.
    """
    question = Question(
        gpu=gpu,
        predictor=CachingPredictor(predictor),
        objective=objective,
        level=level,
        conditions=conditions,
    )
    mixes = Mixes(jobs, question.predictor)
    serial = forecast(mixes, Serial())
    check_each_fits(serial.prediction, gpu, conditions)
    ranked_by, note = rankable_by([serial], objective)
    question = replace(question, objective=ranked_by)
    turns = best_turns(jobs, ranked_by)
    if conditions.instances is not None:  # on the largest of these
        (largest, *_) = cut_into(gpu, conditions.instances).instances
        order = [at for run in running_together(turns, len(jobs)) for at in run]
        turns = in_turn([Hybrid((Place(largest, (Part((at + 1,)),)),)) for at in order])
    serial = forecast(mixes, turns)
    if conditions.instances is not None:
        if problem := broken_rule(jobs, turns, gpu, conditions):
            raise NothingFits(f"{problem}: no plan is possible. Switch MIG mode off.")
        check_each_fits(serial.prediction, gpu, conditions)
    with one_thread():
        forecasts, left_out, considered, searched = _candidates(mixes, question)
    cap_w = serial.prediction.power_cap_w
    others = (  # without serial in other orders, which are no better
        each
        for each in forecasts
        if (not one_by_one(each.sharing) and _sorted_groups(each) != _sorted_groups(serial))
        or each.prediction.power_cap_w != cap_w
    )
    plans = _plans(jobs, plans_to_show([serial, *others], question), question, left_out)
    if len(jobs) > 2:
        left_out.append(
            LeftOut(
                "unequal limits in phases and limits on MIG instances",
                "limits are equal within a phase, and there are none on instances",
            )
        )
    return Recommendation(
        gpu=gpu,
        jobs=tuple(jobs),
        objective=objective,
        ranked_by=ranked_by,
        note=note,
        level=level,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction),
        plans=plans,
        left_out=tuple(left_out),
        considered=considered,
        searched=searched,
    )


def best_turns(jobs: Sequence[Job], objective: ObjectiveName) -> Sharing:
    """Order `jobs` one after another so that they cost least."""
    turn = OBJECTIVES[objective].turn
    order = sorted(range(len(jobs)), key=lambda at: turn(jobs[at]))
    return in_turn([Group((at + 1,), Serial()) for at in order])


def _plans(
    jobs: Sequence[Job], kept: Ordered, question: Question, left_out: Sequence[LeftOut]
) -> tuple[Plan, ...]:
    """The plans `kept`, each with its reasons; the best also with what was ruled out."""
    best, level, objective = kept[0][0], question.level, question.objective
    plans = []
    for rank, ((plan, rule), after) in enumerate(zip_longest(kept, kept[1:]), start=1):
        late, slow = sorted(plan.late(level)), starved(plan, level)
        if rank > 1:
            gap = reasons.compared(plan, best, "the best", objective, level)
        elif after:
            gap = reasons.compared(plan, after[0], "the next", objective, level)
        else:
            gap = "nothing else is possible"
        doubtful = after and rank == 1 and tied(plan, after[0], objective, level)
        if rule and (doubtful or rule != "cost"):
            gap += f"; before {rank + 1} {rule_in_words(rule, level)}"
        bound = reasons.binding(jobs, question.gpu, plan.prediction)
        parts = [reasons.limit_in_words(plan.prediction, bound), gap]
        if slow:
            parts.append(reasons.slowed([(jobs[at].name, times) for at, times in slow.items()]))
        if late:
            parts.append(f"misses its deadline: {reasons.named([jobs[at].name for at in late])}")
        if rank == 1 and left_out:
            few = ", ".join(f"{each.sharing} ({each.why})" for each in left_out[:_NAMED])
            more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
            parts.append(f"ruled out: {few}{more}")
        own: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
        plans.append(
            Plan(
                **own,
                rank=rank,
                ties_best=tied(plan, best, objective, level),
                why="; ".join(parts),
                late_jobs=tuple(at + 1 for at in late),
                precedes_by=rule,
            )
        )
    return tuple(plans)


Answer = Literal["nothing-to-share", "share", "dont-share", "fix-host-first", "equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion of a recommendation.

    Attributes:
        answers: All conclusions that hold, the one to act on first. ``"fix-host-first"``: the hosts
            hold back every job of the best plan, some of them far.
        next_behind: Share by which the next plan costs more than the best, if there is one.
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
    first, *others = (
        known_cost(plan, advised.ranked_by).at(advised.level) for plan in advised.plans[:2]
    )
    return Verdict(
        answers=tuple(answers),
        binding=bound,
        host_bound=slow,
        next_behind=others[0] / first - 1 if others else None,
    )
