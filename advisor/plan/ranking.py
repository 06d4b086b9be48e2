"""All ways to share one GPU among a set of jobs, best first."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any, Literal, get_args

from advisor.errors import NothingFits, counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName, reasons
from advisor.plan.candidates import Forecaster, proposed, under_caps, why_no_caps
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.limits import best_limits, estimated_limits, protecting_limits
from advisor.plan.objectives import OBJECTIVES, cost, known_cost, rankable_by, tied
from advisor.plan.partitions import cut_into
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
from advisor.prediction.prediction import Interval, Level
from advisor.sharing import Group, Hybrid, Mode, Mps, Naive, Part, Place, Serial, Sharing
from advisor.sharing.groups import in_turn, kind_of, one_by_one, running_together
from advisor.workload.job import Job

COMPARED = 0.037
"""Error of the ratio of two plans' costs, as a share: the median of 270 pairs of ways to share that
ran with the same jobs on an H200. Of plans so close, one whose kind has run goes first."""

CLOSE = 0.0025
"""Costs that differ by less, as a share, are the same: on the H200, the simplest cost no more."""

WORTH = 0.01
"""Jobs that gain less by sharing, as a share, run one after another: a choice."""

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""

SPARING = 0.1
"""Share that it may cost that no job starves, if the objective is pace alone: a choice. Under other
objectives, which count the ends of all jobs, it may cost `COMPARED`."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A plan with its cost by the objective that plans are ranked by.

    Attributes:
        precedes_by: The rule by which it precedes the next plan; None: it is the last or unranked.
    """

    forecast: Forecast
    price: Interval
    precedes_by: Precedence | None = None


_Step = tuple[Precedence, Sequence[Priced]]
_Price = Callable[[Priced], float]


def by_precedence(plans: Sequence[Priced], question: Question) -> list[Priced]:
    """Order `plans`, and note for each the rule by which it precedes the next."""
    left, chosen = list(plans), list[tuple[Priced, Sequence[_Step]]]()
    while left:
        steps = _steps(left, question)
        _, equal = steps[-1]
        costs = [(simplicity(each.forecast), _deciding_cost(each, question)) for each in equal]
        first = equal[costs.index(min(costs))]
        left.remove(first)
        chosen.append((first, steps))
    order = [_rule(one, following, steps, question)
             for (one, steps), (following, _) in pairwise(chosen)]  # fmt: skip
    return [replace(each, precedes_by=rule)
            for (each, _), rule in zip(chosen, (*order, None), strict=True)]  # fmt: skip


def simplicity(forecast: Forecast) -> tuple[int, bool, bool]:
    """Rank a plan by what it takes to set up, the simplest first.

    The mode counts first (phases with MIG as hybrid), then whether limits differ, then a power cap.
    """
    sharing = forecast.sharing
    mixed = sharing.mode == "phases" and sharing.instances
    mode = get_args(Mode).index("hybrid" if mixed else kind_of(sharing))
    return mode, len(set(sharing.limits)) > 1, forecast.prediction.power_cap_w is not None


def starved(forecast: Forecast, level: Level) -> dict[int, float]:
    """Return the positions and slowdowns of the jobs that are slowed more than `STARVED` times."""
    slowdowns = enumerate(job.slowdown_at(level) for job in forecast.prediction.jobs)
    return {at: times for at, times in slowdowns if times > STARVED}


def _steps(left: Sequence[Priced], question: Question) -> list[_Step]:
    """Each rule in order, with the plans that remain after it; at least one always remains."""
    objective, level = OBJECTIVES[question.objective], question.level
    price: _Price = partial(_cost, question=question)
    fewest = min(_late(each, question) for each in left)
    pool = [each for each in left if _late(each, question) == fewest]
    steps: list[_Step] = [("deadlines", pool)]

    spared = [each for each in pool if not starved(each.forecast, level)]
    may_cost = SPARING if objective.unit == "ratio" else COMPARED
    pool = spared if _within(may_cost, spared, pool, price) else pool
    steps.append(("starvation", pool))

    # If only runs on this GPU counted, serial would come first on every GPU without such runs.
    ran = [each for each in pool if each.forecast.prediction.confirmed_on_hardware
           or each.forecast.prediction.ran_elsewhere]  # fmt: skip
    pool = ran if _within(COMPARED, ran, pool, price) else pool
    steps.append(("confirmed", pool))

    last: Precedence = "cost"
    if objective.then is not None:
        near = _within(COMPARED, pool, pool, price)
        fewest = min(len(each.forecast.late(level)) for each in near)
        pool = [each for each in near if len(each.forecast.late(level)) == fewest]
        steps.append(("cost", pool))
        last, price = "makespan", partial(_deciding_cost, question=question)
    alone = [each for each in pool if one_by_one(each.forecast.sharing)]
    pool = _within(WORTH, alone, pool, price) or pool
    return [*steps, ("gain", pool), (last, _within(CLOSE, pool, pool, price))]


def _rule(one: Priced, following: Priced, steps: Sequence[_Step], question: Question) -> Precedence:
    """The rule of `steps` by which `one`, the plan that they chose, precedes `following`."""
    then = OBJECTIVES[question.objective].then
    costs_more = _cost(following, question) > _cost(one, question)
    if then is None and costs_more and _late(one, question) == _late(following, question):
        return "cost"
    simpler = simplicity(one.forecast) < simplicity(following.forecast)
    last = "simplicity" if simpler else then or "cost"
    return next((rule for rule, kept in steps if following not in kept), last)


def _within(
    share: float, plans: Sequence[Priced], pool: Sequence[Priced], price: _Price
) -> list[Priced]:
    """The plans whose price exceeds the least of `pool` by at most `share`."""
    most = (1 + share) * min(map(price, pool))
    return [each for each in plans if price(each) <= most]


def _cost(each: Priced, question: Question) -> float:
    return each.price.at(question.level)


def _deciding_cost(each: Priced, question: Question) -> float:
    """Cost that decides between plans whose objectives are equal within our error."""
    then = OBJECTIVES[question.objective].then
    price = each.price if then is None else known_cost(each.forecast, then)
    return price.at(question.level)


def _late(each: Priced, question: Question) -> int:
    """Number of late jobs, for objectives in joules; other objectives ignore deadlines here: 0."""
    saves_energy = OBJECTIVES[question.objective].saves_energy
    return len(each.forecast.late(question.level)) if saves_energy else 0


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


_RULES: Mapping[Precedence, str] = {
    "deadlines": "as it makes fewer jobs late",
    "starvation": f"as the best of those nearly as good that slow no job over {STARVED:g}x",
    "confirmed": f"as the best of those within {COMPARED:.1%} whose kind real runs stand behind",
    "gain": f"as sharing gains less than {WORTH:.0%}",
    "cost": "by its median",
    "makespan": f"as all are done soonest under it, of those within {COMPARED:.1%}",
    "simplicity": f"as the simplest of those within {CLOSE:.2%}",
}


def rule_in_words(rule: Precedence, level: Level) -> str:
    """Describe the rule by which one plan precedes another, e.g. ``"by its median"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]


def out_of_order(
    advised: Recommendation, shown: Sequence[Plan]
) -> dict[Precedence, list[tuple[int, int]]]:
    """Find ranks of plans `shown` and of the next shown with a lower median cost, by the rule."""

    def median(plan: Plan) -> float:
        return known_cost(plan, advised.ranked_by).p50

    pairs: dict[Precedence, list[tuple[int, int]]] = {}
    for at, plan in enumerate(shown):
        less = (1 - reasons.SEEN) * median(plan)
        later = next((each for each in shown[at + 1 :] if median(each) < less), None)
        between = advised.plans[plan.rank - 1 : later.rank] if later else ()
        for one, following in pairwise(between):
            if median(following) < median(one) and later and one.precedes_by:
                pairs.setdefault(one.precedes_by, []).append((plan.rank, later.rank))
                break
    return pairs


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
    if question.rough:
        limits, compared = estimated_limits(mixes, question.objective)
        protecting = []
    else:
        limits, compared = best_limits(mixes, question.objective, question.level)
        protecting = [each for each in protecting_limits(mixes.jobs) if each not in limits]
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
    best, level = kept[0].price, question.level
    plans = []
    for rank, (entry, after) in enumerate(zip_longest(kept, kept[1:]), start=1):
        plan, price, rule = entry.forecast, entry.price, entry.precedes_by
        late, slow = sorted(plan.late(level)), starved(plan, level)
        if rank > 1:
            gap = reasons.compared(price, best, "the best", level)
        elif after:
            gap = reasons.compared(price, after.price, "the next", level)
        else:
            gap = "nothing else is possible"
        plain = rule == "cost" and not (after and rank == 1 and tied(price, after.price))
        if after and rule and not plain:
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
            **own, rank=rank, ties_best=tied(price, best), why="; ".join(parts),
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
