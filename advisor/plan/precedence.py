"""The order of plans, and which of them are shown."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import get_args

from advisor.plan.objectives import OBJECTIVES, cost, known_cost
from advisor.plan.values import Forecast, Precedence, Question
from advisor.prediction.prediction import Interval, Level
from advisor.sharing import Mode, Sharing
from advisor.sharing.groups import kind_of, one_by_one

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
    found.append(("fairness", pool))
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
