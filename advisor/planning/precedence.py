"""Which of several plans comes first, and by what rule.

Equality within an error is no order: of three plans the first may equal the second and the second
the third, and not the first the third. So plans are ranked by repeated choice: rank 1 is chosen
among all of them, rank 2 among those that are left, and so on. Each choice goes like this:

1. By energy, only plans that make the fewest jobs late are looked at.
2. For rank 1, where the cheapest plan equals, within our error, the cheapest that real runs stand
   behind, only such plans are. Intervals of estimated plans are wide by choice, not measured.
3. Where the cheapest that slows no job more than `STARVED` times costs no more than `COMPARED` more
   than the cheapest of these, only such plans are; an estimated plan never displaces a confirmed
   one so.
4. The cheapest of these is as good as all that cost no more than `CLOSE` more. Of them the simplest
   is chosen: see `simplicity`.

Cheap is meant by the objective, at the level that is asked for: a median, or an upper end. Equal
within our error is `objectives.tied`. It decides only in 2, for the intervals of two plans overlap
far more than the plans are mistaken for each other: both err the same way. Of 46 job sets that ran
in several ways, the plan that is best by its median gave away 1.9 % of the best measured throughput
on average; of those within 10 % of it the best that starves nobody gave away 2.8 %, the simplest
3.2 %. ``benchmarks/order_tolerance.py`` has the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import assert_never

from advisor.planning.capping import ENERGIES
from advisor.planning.objectives import slowdowns, tied
from advisor.planning.plan import Forecast, Precedence
from advisor.planning.solver.space import Question
from advisor.prediction.answer import Interval
from advisor.sharing import Hybrid, Mig, Mps, Naive, Phases, Serial, Sharing
from advisor.sharing.parts import hybrids
from advisor.simulation.energy import Level

COMPARED = 0.037
"""How far the ratio of two plans' costs is off, as a share.

The median of 270 pairs of ways to share that ran with the same jobs on an H200. Sparing jobs within
it gave away 0.1 % there.
"""

CLOSE = 0.0025
"""Costs that differ by less are the same, as a share.

Choosing the simplest of plans so close gave away nothing there.
"""

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A plan, and what it costs by the objective it is ranked by.

    Attributes:
        precedes_by: The rule by which it comes before the next; None: there is none, or it was not
            ranked.
    """

    forecast: Forecast
    price: Interval
    precedes_by: Precedence | None = None


_Step = tuple[Precedence, Sequence[Priced]]


def by_rule(plans: Sequence[Priced], question: Question) -> list[Priced]:
    """`plans` by the rules of this page, each with the one by which it precedes the next."""
    left, chosen, taken = list(plans), list[Priced](), list[Sequence[_Step]]()
    while left:
        taken.append(_steps(left, question, estimated=bool(chosen)))
        chosen.append(_simplest(taken[-1][-1][1], question))
        left.remove(chosen[-1])
    rules = [
        _rule(one, following, steps, question)
        for (one, following), steps in zip(pairwise(chosen), taken, strict=False)
    ]
    return [
        replace(each, precedes_by=rule) for each, rule in zip(chosen, (*rules, None), strict=True)
    ]


def simplicity(forecast: Forecast) -> tuple[int, bool, bool, bool]:
    """How much there is to set up, the less the simpler.

    By mode; then limits that differ, power cap and other batches than those asked for.
    """
    sharing, capped = forecast.sharing, forecast.prediction.power_cap_w is not None
    differ = isinstance(sharing, Mps) and len(set(sharing.limits)) > 1
    return how_simple(sharing), differ, capped, bool(forecast.batches)


def how_simple(sharing: Sharing) -> int:
    """0 of one after another; naive, MPS, limits, phases, MIG, and what mixes instances with any.

    The more of it there is to set up, the more.
    """
    match sharing:
        case Serial():
            return 0
        case Naive():
            return 1
        case Mps(limits):
            return 3 if limits else 2
        case Phases():
            return 6 if hybrids(sharing) else 4
        case Mig():
            return 5
        case Hybrid():
            return 6
        case _:
            assert_never(sharing)


def starved(forecast: Forecast, level: Level) -> dict[int, float]:
    """Positions of the jobs that are slowed more than `STARVED` times, and how many times."""
    found = enumerate(slowdowns(forecast.prediction.jobs, level))
    return {at: times for at, times in found if times > STARVED}


def _steps(left: Sequence[Priced], question: Question, *, estimated: bool) -> list[_Step]:
    """The rules in their order, each with the plans that it leaves; at least one of them.

    Args:
        left: Those that are not ranked yet.
        question: What the best is best at.
        estimated: Whether a plan that nothing confirmed may precede an equal one.
    """
    fewest = min(_late(each, question) for each in left)
    pool = [each for each in left if _late(each, question) == fewest]
    found: list[_Step] = [("deadlines", pool)]
    if not estimated:
        sure = [each for each in pool if _confirmed(each)]
        if sure and tied(_cheapest(sure, question).price, _cheapest(pool, question).price):
            pool = sure
        found.append(("confirmed", pool))
    best = _cheapest(pool, question)
    fair = [
        each
        for each in pool
        if not starved(each.forecast, question.level) and _confirmed(each) >= _confirmed(best)
    ]
    if _within(COMPARED, fair, best, question):
        pool = fair
    found.append(("fairness", pool))
    best = _cheapest(pool, question)
    found.append(("cost", _within(CLOSE, pool, best, question)))
    return found


def _rule(one: Priced, following: Priced, steps: Sequence[_Step], question: Question) -> Precedence:
    """By which of `steps` the plan that they led to comes before another."""
    dearer = _cost(following, question) > _cost(one, question)
    if dearer and _late(one, question) == _late(following, question):
        return "cost"
    simpler = simplicity(one.forecast) < simplicity(following.forecast)
    last: Precedence = "simplicity" if simpler else "cost"
    return next((rule for rule, kept in steps if following not in kept), last)


def _within(
    share: float, plans: Sequence[Priced], best: Priced, question: Question
) -> list[Priced]:
    """Those that cost no more than `share` more than `best`."""
    most = (1 + share) * _cost(best, question)
    return [each for each in plans if _cost(each, question) <= most]


def _simplest(plans: Sequence[Priced], question: Question) -> Priced:
    return min(plans, key=lambda each: (simplicity(each.forecast), _cost(each, question)))


def _cheapest(plans: Sequence[Priced], question: Question) -> Priced:
    return min(plans, key=lambda each: _cost(each, question))


def _cost(each: Priced, question: Question) -> float:
    return float(getattr(each.price, question.level))


def _late(each: Priced, question: Question) -> int:
    """Joules are saved under deadlines: jobs that it makes late."""
    return len(each.forecast.late(question.level)) if question.objective in ENERGIES else 0


def _confirmed(each: Priced) -> bool:
    return each.forecast.prediction.confirmed_on_hardware
