"""Which plans are kept, and in which order."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from advisor.planning.objectives import cost
from advisor.planning.plan import Forecast
from advisor.planning.precedence import Priced, by_rule
from advisor.planning.solver.space import Question
from advisor.sharing import Mps, Sharing

# Plans shown of a kind that has many: limits, MIG layouts.
MOST_OF_A_KIND = 2

_START = re.compile(r"@\d+")


def in_order(forecasts: Sequence[Forecast], question: Question) -> list[Priced]:
    """The first of each kind by the rules of `precedence`, in the order which these give.

    Args:
        forecasts: Of all jobs; those that have no price are passed over.
        question: What the best is best at.
    """
    priced = [(each, cost(each, question.objective)) for each in forecasts]
    known = [Priced(each, price) for each, price in priced if price is not None]
    known.sort(key=lambda each: float(getattr(each.price, question.level)))
    shown = _few_of_a_kind(by_rule(list(_each_once(known)), question))
    return by_rule(list(shown), question)  # who precedes whom depends on who else is there


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


def _few_of_a_kind(ordered: Iterable[Priced]) -> Iterator[Priced]:
    kinds: Counter[tuple[type[Sharing], bool, bool, bool]] = Counter()
    for each in ordered:
        plan = each.forecast
        limited = isinstance(plan.sharing, Mps) and bool(plan.sharing.limits)
        capped = plan.prediction.power_cap_w is not None
        kind = type(plan.sharing), limited, bool(plan.batches), capped
        kinds[kind] += 1
        if kinds[kind] <= MOST_OF_A_KIND:
            yield each
