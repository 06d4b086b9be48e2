"""The order of plans: first the simplest whose lead over simpler ones is real, then by cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import get_args

from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.values import Forecast, Precedence, Question
from advisor.prediction.prediction import Interval, Level
from advisor.sharing import Mode
from advisor.sharing.groups import kind_of

COMPARED = 0.037
"""Error of the ratio of two plans' costs, as a share: the median of 270 pairs of ways to share that
ran with the same jobs on an H100."""

LEADS: Mapping[Mode, float] = {
    "naive": 0.01, "mps": 0.0025, "queue": 0.02, "mps-limits": 0.02, "phases": 0.02,
    "mig": COMPARED, "hybrid": COMPARED,
}  # fmt: skip
"""Share of the cost that a way to share must save over all simpler ones to come before them.

Of 204 pairs of MPS limits and plain MPS with the same jobs on an H200, each predicted without the
jobs' families, a choice by the lower cost is right for 162, and 22 % of the limits that it chooses
are slower; with a lead of 2 % it is right for 162 too, and 19 % are. Of 106 pairs of MPS and time
slicing it is right for 101, with 0.25 % for 102, with 1 % for 101. The others are choices."""

UNLIKE = 0.01
"""The same for limits that differ over equal ones, and for a power cap over none: of six pairs of
limits with a lead below 2 %, three were slower."""

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


_Price = Callable[[Priced], float]


def by_precedence(plans: Sequence[Priced], question: Question) -> list[Priced]:
    """Order `plans`, and note for each the rule by which it precedes the next."""
    first, rule = _first(plans, question)
    others = sorted(
        (each for each in plans if each is not first), key=lambda each: _place(each, question)
    )
    rules: list[Precedence | None] = [
        "deadlines" if _late(one, question) < _late(other, question) else "cost"
        for one, other in pairwise(others)
    ]
    if others and _place(first, question) <= _place(others[0], question):
        rule = "deadlines" if _late(first, question) < _late(others[0], question) else "cost"
    rules = [rule, *rules, None] if others else [None]
    return [
        replace(each, precedes_by=own) for each, own in zip((first, *others), rules, strict=True)
    ]


def simplicity(forecast: Forecast) -> tuple[int, bool, bool]:
    """Rank a plan by what it takes to set up, the simplest first.

    The mode counts first (phases with MIG as hybrid), then whether limits differ, then a power cap.
    """
    sharing = forecast.sharing
    mode = get_args(Mode).index(_mode(forecast))
    return mode, len(set(sharing.limits)) > 1, forecast.prediction.power_cap_w is not None


def starved(forecast: Forecast, level: Level) -> dict[int, float]:
    """Return the positions and slowdowns of the jobs that are slowed more than `STARVED` times."""
    slowdowns = enumerate(job.slowdown_at(level) for job in forecast.prediction.jobs)
    return {at: times for at, times in slowdowns if times > STARVED}


def lead(simpler: Forecast, other: Forecast) -> float:
    """Return the share of the cost that `other` must save over the `simpler` plan."""
    mode = _mode(other)
    if mode == _mode(simpler):
        return UNLIKE
    ran = other.prediction.confirmed_on_hardware or other.prediction.ran_elsewhere
    return LEADS[mode] if ran else max(LEADS[mode], COMPARED)


def _mode(forecast: Forecast) -> Mode:
    sharing = forecast.sharing
    mixed = sharing.mode == "phases" and sharing.instances
    return "hybrid" if mixed else kind_of(sharing)


def _first(plans: Sequence[Priced], question: Question) -> tuple[Priced, Precedence]:
    """The plan to recommend, and the last rule that chose it."""
    objective, level = OBJECTIVES[question.objective], question.level
    price: _Price = partial(_cost, question=question)
    fewest = min(_late(each, question) for each in plans)
    pool = [each for each in plans if _late(each, question) == fewest]
    rule: Precedence = "deadlines"

    spared = [each for each in pool if not starved(each.forecast, level)]
    may_cost = SPARING if objective.unit == "ratio" else COMPARED
    if len(spared) < len(pool) and _within(may_cost, spared, pool, price):
        pool, rule = spared, "starvation"

    if objective.then is not None:
        near = _within(COMPARED, pool, pool, price)
        fewest = min(len(each.forecast.late(level)) for each in near)
        pool = [each for each in near if len(each.forecast.late(level)) == fewest]
        price, rule = partial(_deciding_cost, question=question), "makespan"

    best: Priced | None = None
    cheapest = min(pool, key=price)
    for way in sorted({simplicity(each.forecast) for each in pool}):
        own = min((each for each in pool if simplicity(each.forecast) == way), key=price)
        if best is None or price(own) < (1 - lead(best.forecast, own.forecast)) * price(best):
            best = own
    assert best is not None, "a question has a plan"
    return best, rule if price(best) <= price(cheapest) else "simplicity"


def _place(each: Priced, question: Question) -> tuple[int, float, float]:
    return _late(each, question), _cost(each, question), _deciding_cost(each, question)


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


_RULES: Mapping[Precedence, str] = {
    "deadlines": "as it makes fewer jobs late",
    "starvation": f"as the best of those nearly as good that slow no job over {STARVED:g}x",
    "cost": "by its median",
    "makespan": f"as all are done soonest under it, of those within {COMPARED:.1%}",
    "simplicity": "as the simplest: no other is so far ahead that real runs would show it",
}


def rule_in_words(rule: Precedence, level: Level) -> str:
    """Describe the rule by which one plan precedes another, e.g. ``"by its median"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]
