"""The answer before any ranking: share or don't, what to mend first, and what makes no odds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.plan.bottlenecks import Binding, binding
from advisor.plan.objectives.table import known_cost, tied
from advisor.plan.recommendation import Plan, Recommendation
from advisor.plan.shorter_host_path import HostBound, host_bound

Answer = Literal["nothing-to-share", "share", "dont-share", "fix-host-first", "equal"]


@dataclass(frozen=True, slots=True)
class Rival:
    """Another plan beside the best.

    Attributes:
        behind: How much more it costs than the best, as a share; below 0: it costs less, and the
            best comes first by another rule.
        within_error: Whether it equals the best within our error.
    """

    plan: Plan
    behind: float
    within_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a recommendation comes down to.

    Attributes:
        answers: All that hold, the first the one to act on: ``"fix-host-first"`` where the host
            holds back every job of the best plan and some far; ``"equal"`` where another plan
            equals the best within our error.
        binding: What holds the jobs back under the best plan.
        runner_up: The next plan; None: there is no other.
        host_bound: Jobs whose host path is worth mending, whatever else binds.
    """

    answers: tuple[Answer, ...]
    binding: Binding
    runner_up: Rival | None
    host_bound: tuple[HostBound, ...]


def verdict(advised: Recommendation) -> Verdict:
    """What `advised` comes down to."""
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
    elif advised.best.sharing.mode == "serial":
        found.append("dont-share")
    else:
        found.append("share")
    return (*found, "equal") if any(each.within_error for each in others) else tuple(found)


def _rival(advised: Recommendation, plan: Plan) -> Rival:
    best, own = (known_cost(each, advised.ranked_by) for each in (advised.best, plan))
    level = advised.level
    return Rival(plan, own.at(level) / best.at(level) - 1, tied(own, best))
