"""Which plans are kept, and in which order."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from advisor.planning.capping import ENERGIES
from advisor.planning.objectives import cost, tied
from advisor.planning.plan import Forecast
from advisor.planning.solver.space import Question
from advisor.prediction.answer import Interval
from advisor.sharing import Mps, Sharing

# Plans shown of a kind that has many: limits, MIG layouts.
MOST_OF_A_KIND = 2

_START = re.compile(r"@\d+")


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan, and what it costs by the objective it is ranked by."""

    forecast: Forecast
    price: Interval


def in_order(forecasts: Sequence[Forecast], question: Question) -> list[Priced]:
    """The best of each kind, best first; of equals, the one that was tried first.

    A plan that nothing confirmed on hardware is not put before a confirmed one that it equals
    within our error. Joules are saved under deadlines: plans that make fewer jobs late come first.

    Args:
        forecasts: Of all jobs; those that have no price are passed over.
        question: What the best is best at.
    """

    def late(each: Priced) -> int:
        return len(each.forecast.late(question.level)) if question.objective in ENERGIES else 0

    def rank(each: Priced) -> tuple[int, float]:
        return late(each), float(getattr(each.price, question.level))

    priced = [(each, cost(each, question.objective)) for each in forecasts]
    known = sorted((Priced(each, price) for each, price in priced if price is not None), key=rank)
    kinds = _kinds(_each_once(known))
    kept = sorted((each for kind in kinds for each in islice(kind, MOST_OF_A_KIND)), key=rank)
    kept.insert(0, kept.pop(_surest([each for each in kept if late(each) == late(kept[0])])))
    return kept


def _each_once(ordered: Iterable[Priced]) -> Iterator[Priced]:
    """Of plans that differ in where instances lie or in which group comes first, the best."""
    seen = set()
    for each in ordered:
        plan = each.forecast
        groups = sorted(_START.sub("", str(plan.sharing)).split(";"))
        mark = *groups, plan.batches, plan.prediction.power_cap_w
        if mark not in seen:
            seen.add(mark)
            yield each


def _kinds(priced: Iterable[Priced]) -> Iterable[Sequence[Priced]]:
    kinds: dict[tuple[type[Sharing], bool, bool, bool], list[Priced]] = {}
    for each in priced:
        plan = each.forecast
        limited = isinstance(plan.sharing, Mps) and bool(plan.sharing.limits)
        capped = plan.prediction.power_cap_w is not None
        kind = type(plan.sharing), limited, bool(plan.batches), capped
        kinds.setdefault(kind, []).append(each)
    return kinds.values()


def _surest(ordered: Sequence[Priced]) -> int:
    """Position of the best that is confirmed and equals the best of all; else the first."""
    sure = (
        position
        for position, each in enumerate(ordered)
        if each.forecast.prediction.confirmed_on_hardware and tied(each.price, ordered[0].price)
    )
    return next(sure, 0)
