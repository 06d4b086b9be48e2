"""The order of plans: first the simplest whose lead over simpler ones is real, then by cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

from advisor.plan import ObjectiveName
from advisor.plan.joint import cost_ratio, lead_is_real
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.values import Forecast, Precedence, Question
from advisor.prediction.prediction import Interval, Level
from advisor.sharing import Mode
from advisor.sharing.groups import kind_of

STARVED = 10.0
"""A job that is slowed more than this many times starves: a choice."""

SPARING = 0.1
"""Share that it may cost that no job starves, if the objective is pace alone: a choice. Under other
objectives, which count the ends of all jobs, it may cost what is no real lead."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A plan with its cost by the objective that plans are ranked by.

    Attributes:
        precedes_by: The rule by which it precedes the next plan; None: it is the last or unranked.
    """

    forecast: Forecast
    price: Interval
    precedes_by: Precedence | None = None


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


def ahead(other: Forecast, simpler: Forecast, objective: ObjectiveName, level: Level) -> bool:
    """Check whether the lead of `other` over the `simpler` plan is real."""
    return lead_is_real(cost_ratio(simpler, other, objective, level))


def _mode(forecast: Forecast) -> Mode:
    sharing = forecast.sharing
    mixed = sharing.mode == "phases" and sharing.instances
    return "hybrid" if mixed else kind_of(sharing)


def _first(plans: Sequence[Priced], question: Question) -> tuple[Priced, Precedence]:
    """The plan to recommend, and the last rule that chose it."""
    objective, level = OBJECTIVES[question.objective], question.level
    fewest = min(_late(each, question) for each in plans)
    pool = [each for each in plans if _late(each, question) == fewest]
    rule: Precedence = "deadlines"

    def nearly_best(deciding: ObjectiveName) -> list[Priced]:
        least = min(pool, key=lambda each: known_cost(each.forecast, deciding).at(level)).forecast
        return [each for each in pool if not ahead(least, each.forecast, deciding, level)]

    spared = [each for each in pool if not starved(each.forecast, level)]
    if len(spared) < len(pool):
        near = nearly_best(objective.name)
        if objective.unit == "ratio":
            most = (1 + SPARING) * min(_cost(each, question) for each in pool)
            near = [each for each in pool if _cost(each, question) <= most]
        if any(each in near for each in spared):
            pool, rule = spared, "starvation"

    decides = objective.name
    if objective.then is not None:
        near = nearly_best(decides)
        fewest = min(len(each.forecast.late(level)) for each in near)
        pool = [each for each in near if len(each.forecast.late(level)) == fewest]
        decides, rule = objective.then, "makespan"

    def price(each: Priced) -> float:
        return known_cost(each.forecast, decides).at(level)

    best: Priced | None = None
    cheapest = min(pool, key=price)
    for way in sorted({simplicity(each.forecast) for each in pool}):
        own = min((each for each in pool if simplicity(each.forecast) == way), key=price)
        if best is None or ahead(own.forecast, best.forecast, decides, level):
            best = own
    assert best is not None, "a question has a plan"
    return best, rule if price(best) <= price(cheapest) else "simplicity"


def _place(each: Priced, question: Question) -> tuple[int, float, float]:
    return _late(each, question), _cost(each, question), _deciding_cost(each, question)


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
    "makespan": "as all are done soonest under it, of those about as good",
    "simplicity": "as the simplest: no other is so far ahead that real runs would show it",
}


def rule_in_words(rule: Precedence, level: Level) -> str:
    """Describe the rule by which one plan precedes another, e.g. ``"by its median"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]
