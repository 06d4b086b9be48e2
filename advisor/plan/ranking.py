"""All ways to share one GPU among a set of jobs, best first."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any, Literal, get_args

from advisor.errors import counted
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidates import Forecaster, Proposed, as_asked, proposed, under_caps, unsearched
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.limits import best_limits, estimated_limits, protecting_limits
from advisor.plan.objectives import OBJECTIVES, cost, known_cost, rankable_by, tied
from advisor.plan.reasons import (
    SEEN,
    Binding,
    HostBound,
    binding,
    gap_in_words,
    host_bound,
    searched,
    why,
)
from advisor.plan.rules import (
    TOO_SLOW,
    UNCONDITIONAL,
    Conditions,
    check_each_fits,
    first_broken,
    rules,
    slows_protected,
)
from advisor.plan.values import Forecast, LeftOut, Plan, Precedence, Question, Recommendation
from advisor.prediction.cache import begun, one_thread
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import Interval, Level
from advisor.sharing import Group, Mode, Mps, Naive, Serial, Sharing
from advisor.sharing.groups import in_turn, kind_of, one_by_one
from advisor.workload.job import Job

_NOT_YET = Proposed((), (LeftOut("MIG, phases and other limits", "the search stopped early"),))


COMPARED = 0.037
"""How far the ratio of two plans' costs is off, as a share.

The median of 270 pairs of ways to share that ran with the same jobs on an H200. Of plans so close,
one whose kind has run goes before one whose kind has not; farther apart, the estimate decides, as
of MIG.
"""

CLOSE = 0.0025
"""Costs that differ by less are the same, as a share.

Choosing the simplest of plans so close gave away nothing there.
"""

WORTH = 0.01
"""Jobs that gain less by sharing, as a share, run one after another: a choice.

It is less than what our ratios are off by, and sharing has to be set up.
"""

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""

SPARING = 0.1
"""What it may cost that no job starves, as a share, where the objective is pace alone: a choice.

Of other objectives, which look to the end of all jobs, it may cost `COMPARED`.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A plan with its cost by the objective that plans are ranked by.

    Attributes:
        precedes_by: The rule by which it comes before the next plan; None: it is the last, or was
            not ranked.
    """

    forecast: Forecast
    price: Interval
    precedes_by: Precedence | None = None


_Step = tuple[Precedence, Sequence[Priced]]
_Price = Callable[[Priced], float]


def by_precedence(plans: Sequence[Priced], question: Question) -> list[Priced]:
    """`plans` in order, each with the rule of this module by which it precedes the next."""
    left, chosen, taken = list(plans), list[Priced](), list[Sequence[_Step]]()
    while left:
        taken.append(_steps(left, question))
        chosen.append(_simplest(taken[-1][-1][1], question))
        left.remove(chosen[-1])
    rules = [
        _rule(one, following, steps, question)
        for (one, following), steps in zip(pairwise(chosen), taken, strict=False)
    ]
    return [
        replace(each, precedes_by=rule) for each, rule in zip(chosen, (*rules, None), strict=True)
    ]


def simplicity(forecast: Forecast) -> tuple[int, bool, bool]:
    """How much a plan needs to be set up; smaller is simpler.

    Compares the mode first, then whether limits differ and a power cap is set.
    """
    sharing, capped = forecast.sharing, forecast.prediction.power_cap_w is not None
    differ = len(set(sharing.limits)) > 1
    return how_simple(sharing), differ, capped


def how_simple(sharing: Sharing) -> int:
    """Index of the sharing's mode in `Mode`, simplest first; phases with MIG count as hybrid."""
    mixed = sharing.mode == "phases" and sharing.instances
    return get_args(Mode).index("hybrid" if mixed else kind_of(sharing))


def starved(forecast: Forecast, level: Level) -> dict[int, float]:
    """The jobs that are slowed more than `STARVED` times: their positions and slowdowns."""
    found = enumerate(job.slowdown_at(level) for job in forecast.prediction.jobs)
    return {at: times for at, times in found if times > STARVED}


def _steps(left: Sequence[Priced], question: Question) -> list[_Step]:
    """Each rule in order, with the plans that remain after it; at least one always remains."""
    acceptable = _acceptable(left, question)
    return acceptable + _cheapest(acceptable[-1][1], question)


def _acceptable(left: Sequence[Priced], question: Question) -> list[_Step]:
    """The rules that look at more than cost: deadlines, starved jobs, and runs that confirm."""
    price: _Price = partial(_asked_cost, question=question)
    fewest = min(_late(each, question) for each in left)
    pool = [each for each in left if _late(each, question) == fewest]
    found: list[_Step] = [("deadlines", pool)]
    best = min(pool, key=price)
    spared = [each for each in pool if not starved(each.forecast, question.level)]
    may_cost = SPARING if OBJECTIVES[question.objective].unit == "ratio" else COMPARED
    pool = spared if _within(may_cost, spared, best, price) else pool
    found.append(("starvation", pool))
    best = min(pool, key=price)
    ran = [each for each in pool if _confirmed(each)]
    pool = ran if _within(COMPARED, ran, best, price) else pool
    found.append(("confirmed", pool))
    return found


def _cheapest(pool: Sequence[Priced], question: Question) -> list[_Step]:
    """The rules by which, of acceptable plans, those as good as the cheapest remain."""
    price: _Price = partial(_asked_cost, question=question)
    last: Precedence = "cost"
    found: list[_Step] = []
    if OBJECTIVES[question.objective].then is not None:
        near = _within(COMPARED, pool, min(pool, key=price), price)
        pool = _punctual(near, question)
        found.append(("cost", pool))
        last, price = "makespan", partial(_deciding_cost, question=question)
    alone = [each for each in pool if one_by_one(each.forecast.sharing)]
    pool = _within(WORTH, alone, min(pool, key=price), price) or pool
    found.append(("gain", pool))
    found.append((last, _within(CLOSE, pool, min(pool, key=price), price)))
    return found


def _rule(one: Priced, following: Priced, steps: Sequence[_Step], question: Question) -> Precedence:
    """The rule of `steps` by which `one`, the plan that they chose, precedes `following`."""
    then = OBJECTIVES[question.objective].then
    costs_more = _asked_cost(following, question) > _asked_cost(one, question)
    if then is None and costs_more and _late(one, question) == _late(following, question):
        return "cost"
    simpler = simplicity(one.forecast) < simplicity(following.forecast)
    last = "simplicity" if simpler else then or "cost"
    return next((rule for rule, kept in steps if following not in kept), last)


def _within(share: float, plans: Sequence[Priced], best: Priced, price: _Price) -> list[Priced]:
    """The plans whose price exceeds that of `best` by at most `share`."""
    most = (1 + share) * price(best)
    return [each for each in plans if price(each) <= most]


def _simplest(plans: Sequence[Priced], question: Question) -> Priced:
    return min(plans, key=lambda each: (simplicity(each.forecast), _deciding_cost(each, question)))


def _asked_cost(each: Priced, question: Question) -> float:
    return each.price.at(question.level)


def _deciding_cost(each: Priced, question: Question) -> float:
    """Cost that decides between plans whose objectives are equal within our error."""
    then = OBJECTIVES[question.objective].then
    if then is None:
        return _asked_cost(each, question)
    return known_cost(each.forecast, then).at(question.level)


def _punctual(plans: Sequence[Priced], question: Question) -> list[Priced]:
    """The plans with the fewest late jobs."""
    late = [len(each.forecast.late(question.level)) for each in plans]
    return [each for each, many in zip(plans, late, strict=True) if many == min(late)]


def _late(each: Priced, question: Question) -> int:
    """Number of late jobs, for objectives in joules; other objectives ignore deadlines here: 0."""
    saves_energy = OBJECTIVES[question.objective].saves_energy
    return len(each.forecast.late(question.level)) if saves_energy else 0


def _confirmed(each: Priced) -> bool:
    """Whether real runs of its kind, on this or another GPU, confirm the plan.

    If only runs on this GPU counted, serial would come first on every GPU without runs of its own.
    """
    prediction = each.forecast.prediction
    return prediction.confirmed_on_hardware or prediction.ran_elsewhere


# Most plans shown of a kind: limits or MIG layouts have many.
MOST_OF_A_KIND = 2

_START = re.compile(r"@\d+")


def plans_to_show(forecasts: Sequence[Forecast], question: Question) -> list[Priced]:
    """The plans to show, in the order of the rules: the first few of each kind."""
    priced = [(each, cost(each, question.objective)) for each in forecasts]
    known = [Priced(each, price) for each, price in priced if price is not None]
    known.sort(key=lambda each: each.price.at(question.level))
    shown = _few_of_a_kind(by_precedence(list(_each_once(known)), question))
    return by_precedence(list(shown), question)  # who precedes whom depends on who else is there


def _each_once(ordered: Iterable[Priced]) -> Iterator[Priced]:
    """The best of plans that differ only in where instances lie or in the order of groups."""
    seen = set()
    for each in ordered:
        plan = each.forecast
        groups = sorted(_START.sub("", str(plan.sharing)).split(";"))
        mark = *groups, plan.prediction.power_cap_w
        if mark not in seen:
            seen.add(mark)
            yield each


def _few_of_a_kind(ordered: Iterable[Priced]) -> Iterator[Priced]:
    kinds: Counter[tuple[Mode, bool]] = Counter()
    for each in ordered:
        plan = each.forecast
        capped = plan.prediction.power_cap_w is not None
        kind = kind_of(plan.sharing), capped
        kinds[kind] += 1
        if kinds[kind] <= MOST_OF_A_KIND:
            yield each


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
    """The rule by which one plan precedes another, in words, e.g. ``"by its median"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]


def out_of_order(
    advised: Recommendation, shown: Sequence[Plan]
) -> dict[Precedence, list[tuple[int, int]]]:
    """Ranks of plans `shown` and of the next shown that costs less by its median, by the rule."""

    def median(plan: Plan) -> float:
        return known_cost(plan, advised.ranked_by).p50

    found: dict[Precedence, list[tuple[int, int]]] = {}
    for at, plan in enumerate(shown):
        less = (1 - SEEN) * median(plan)
        later = next((each for each in shown[at + 1 :] if median(each) < less), None)
        between = advised.plans[plan.rank - 1 : later.rank] if later else ()
        for one, following in pairwise(between):
            if median(following) < median(one) and later and one.precedes_by:
                found.setdefault(one.precedes_by, []).append((plan.rank, later.rank))
                break
    return found


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


Answer = Literal["nothing-to-share", "share", "dont-share", "fix-host-first", "equal"]


@dataclass(frozen=True, slots=True)
class Rival:
    """The next best plan, compared with the best.

    Attributes:
        behind: Share by which its cost exceeds that of the best; negative where it is cheaper and
            the best precedes it by another rule.
        within_error: Whether both costs are equal within our error.
    """

    plan: Plan
    behind: float
    within_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion of a recommendation.

    Attributes:
        answers: All conclusions that hold, the one to act on first. ``"fix-host-first"``: the hosts
            hold back every job of the best plan, some of them far. ``"equal"``: another plan equals
            the best within our error.
        binding: Which resources limit the jobs under the best plan.
        runner_up: The next plan; None: there is no other.
        host_bound: Jobs whose host path should be shortened, even where something else limits the
            plan.
    """

    answers: tuple[Answer, ...]
    binding: Binding
    runner_up: Rival | None
    host_bound: tuple[HostBound, ...]


def verdict(advised: Recommendation) -> Verdict:
    """The conclusion of the recommendation `advised`."""
    best = advised.best
    bound = binding(advised.jobs, advised.gpu, best.prediction)
    slow = host_bound(advised.jobs, bound, advised.variants)
    others = [_rival(advised, plan) for plan in advised.plans[1:]]
    return Verdict(
        answers=_answers(advised, bound, slow, others),
        binding=bound,
        runner_up=next(iter(others), None),
        host_bound=slow,
    )


def _answers(
    advised: Recommendation, bound: Binding, slow: Sequence[HostBound], others: Sequence[Rival]
) -> tuple[Answer, ...]:
    found: list[Answer] = ["fix-host-first"] if slow and bound.limit == "host path" else []
    if len(advised.jobs) == 1:
        found.append("nothing-to-share")
    elif one_by_one(advised.best.sharing):
        found.append("dont-share")
    else:
        found.append("share")
    return (*found, "equal") if any(each.within_error for each in others) else tuple(found)


def _rival(advised: Recommendation, plan: Plan) -> Rival:
    best, own = (known_cost(each, advised.ranked_by) for each in (advised.best, plan))
    level = advised.level
    return Rival(plan, own.at(level) / best.at(level) - 1, tied(own, best))
