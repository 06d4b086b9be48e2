"""Why a plan has its rank, in a line of numbers; and the conclusion of a recommendation."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.bottlenecks import Binding, HostBound, Limit, binding, host_bound
from advisor.plan.objectives import known_cost, rankable_by, tied
from advisor.plan.precedence import CLOSE, COMPARED, STARVED, WORTH
from advisor.plan.rules import UNCONDITIONAL, FitsMemory, first_broken, rules
from advisor.plan.values import Forecast, LeftOut, Plan, Precedence, Recommendation
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing.groups import one_by_one
from advisor.workload.job import Job

_ROUNDED = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """One number under two plans.

    Attributes:
        alike: Whether both err alike but for what one alone has, as a power cap.
    """

    first: Interval
    second: Interval
    alike: bool = False

    @property
    def within_error(self) -> bool:
        """Whether both are equal within our error."""
        if not self.alike or min(self.first.p05, self.second.p05) <= 0:
            return tied(self.first, self.second)
        ratio = self.second.over_alike(self.first)
        either_way = ratio.p05 < 1 - _ROUNDED and ratio.p95 > 1 + _ROUNDED
        return either_way or abs(ratio.p50 - 1) <= _ROUNDED

    @property
    def change(self) -> float:
        """By which share the second number exceeds the first; negative where it is smaller."""
        return self.second.p50 / self.first.p50 - 1

    @property
    def less(self) -> int | None:
        """Index of the smaller number, 0 or 1; None where they are equal within our error."""
        if self.within_error:
            return None
        return int(self.second.p50 < self.first.p50)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One job under two plans; each pair holds the value under the first, then the second.

    Attributes:
        number: From 1, in the order in which the jobs were asked for.
        step_s: Step while all jobs of its group run.
        ends_s: Seconds until the job ends, waiting included; None where a job's length is not
            known.
        energy_step_j: The job's share of the GPU's energy for a step, split as in
            `advisor.prediction.power`; None: power was not measured.
        oom_probability: Chance that it runs out of memory, 0..1.
        limits: The resource that limits the job; None: no resource is full.
    """

    number: int
    job: str
    step_s: Difference
    ends_s: Difference | None
    memory_mib: Difference
    energy_step_j: Difference | None
    slowdown: tuple[float, float]
    oom_probability: tuple[float, float]
    limits: tuple[Limit | None, Limit | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two plans for the same jobs on one GPU; each pair holds the first plan, then the second.

    Attributes:
        objective: The objective compared by; another than asked for where that cannot be computed.
        note: Why `objective` differs from the one asked for; None where it does not.
        alike: Whether both plans share alike, so that one errs where the other does: they differ
            in a power cap alone.
        cost: Value of the objective, the lower the better.
        power_w: Power of the whole GPU; None where it was not measured.
        bindings: Which resources limit the jobs.
        forbidden: Why the plan is not allowed; None where it is.
        serial: All jobs one after another; None where one of the plans is that, or it is not known.
    """

    gpu: Gpu
    objective: ObjectiveName
    note: str | None
    alike: bool
    plans: tuple[Forecast, Forecast]
    cost: Difference
    jobs: tuple[JobChange, ...]
    power_w: Difference | None
    bindings: tuple[Binding, Binding]
    forbidden: tuple[str | None, str | None]
    serial: Forecast | None = None


def compare(
    jobs: Sequence[Job],
    gpu: Gpu,
    plans: tuple[Forecast, Forecast],
    objective: ObjectiveName = "makespan",
    serial: Forecast | None = None,
) -> Comparison:
    """What changes for `jobs` on `gpu` from the first of `plans` to the second.

    `serial` is one after another, which both are compared with too; None: they are not.
    """
    in_turn = any(one_by_one(each.sharing) for each in plans) or len(jobs) == 1
    compared_by, note = rankable_by(plans, objective)
    first, second = (each.prediction for each in plans)
    bindings = (binding(jobs, gpu, first), binding(jobs, gpu, second))
    costs = [known_cost(each, compared_by) for each in plans]
    alike = first.sharing == second.sharing
    return Comparison(
        gpu=gpu,
        objective=compared_by,
        note=note,
        alike=alike,
        plans=plans,
        cost=Difference(costs[0], costs[1], alike),
        jobs=tuple(_change(at, plans, bindings, alike) for at in range(len(jobs))),
        power_w=_difference(first.power_w, second.power_w, alike),
        bindings=bindings,
        forbidden=(_forbidden(jobs, gpu, plans[0]), _forbidden(jobs, gpu, plans[1])),
        serial=None if in_turn else serial,
    )


def _change(
    at: int, plans: tuple[Forecast, Forecast], bindings: tuple[Binding, Binding], alike: bool
) -> JobChange:
    first, second = (each.prediction.jobs[at] for each in plans)
    ends, later = (None if each.ends_s is None else each.ends_s[at] for each in plans)
    return JobChange(
        number=at + 1,
        job=first.job,
        step_s=Difference(first.step_s, second.step_s, alike),
        ends_s=_difference(ends, later, alike),
        memory_mib=Difference(first.memory_interval_mib, second.memory_interval_mib, alike),
        energy_step_j=_difference(first.energy_step_j, second.energy_step_j, alike),
        slowdown=(first.slowdown, second.slowdown),
        oom_probability=(first.oom_probability, second.oom_probability),
        limits=(bindings[0].limit_of(at), bindings[1].limit_of(at)),
    )


def _difference(first: Interval | None, second: Interval | None, alike: bool) -> Difference | None:
    return None if first is None or second is None else Difference(first, second, alike)


def _forbidden(jobs: Sequence[Job], gpu: Gpu, plan: Forecast) -> str | None:
    """The rule that `plan` breaks; machine and user are assumed to allow everything."""
    broken = first_broken(rules(gpu, UNCONDITIONAL), jobs, plan.sharing)
    return broken or FitsMemory(gpu).broken(plan.prediction)


_FULL_MEMORY = 0.9
# Smaller differences would be written as 0 %.
_SEEN = 0.005
# How many of the ways that were ruled out are named, with the rule.
_NAMED = 2


def why(
    mix: MixPrediction,
    bound: Binding,
    gap: str,
    left_out: Sequence[LeftOut] = (),
    late: Sequence[str] = (),
    starved: Sequence[tuple[str, float]] = (),
) -> str:
    """What limits a plan, how it compares, and what was ruled out, in one line."""
    parts = [limit_in_words(mix, bound), gap]
    if starved:
        parts.append(slowed(starved))
    if late:
        parts.append(f"too late for its deadline: {named(late)}")
    if left_out:
        more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        ruled_out = ", ".join(f"{each.sharing} ({each.why})" for each in left_out[:_NAMED])
        parts.append(f"ruled out: {ruled_out}{more}")
    return "; ".join(parts)


def gap_in_words(
    cost: Interval, best: Interval, runner_up: Interval | None, level: Level = "p50"
) -> str:
    """How the cost of a plan compares with that of the best, or of the runner-up.

    Args:
        cost: Cost of the plan, by the objective that plans are ranked by.
        best: Cost of the best plan; `cost` itself where this is the best.
        runner_up: Cost of the next plan, used for the best; None: there is no other.
        level: Which point of a cost's interval counts.
    """
    if cost is not best:
        return compared(cost, best, "the best", level)
    if runner_up is None:
        return "nothing else is possible"
    return compared(cost, runner_up, "the next", level)


_RULES: Mapping[Precedence, str] = {
    "deadlines": "as it makes fewer jobs late",
    "fairness": f"as the best of those nearly as good that slow no job over {STARVED:g}x",
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
        less = (1 - _SEEN) * median(plan)
        later = next((each for each in shown[at + 1 :] if median(each) < less), None)
        between = advised.plans[plan.rank - 1 : later.rank] if later else ()
        for one, following in pairwise(between):
            if median(following) < median(one) and later and one.precedes_by:
                found.setdefault(one.precedes_by, []).append((plan.rank, later.rank))
                break
    return found


def slowed(starved: Sequence[tuple[str, float]]) -> str:
    """Which jobs are slowed, and how much, e.g. ``"bert is slowed 20x"``; of copies the worst."""
    most: Mapping[str, float] = {
        name: max(times for other, times in starved if other == name) for name, _ in starved
    }
    return ", ".join(f"{name} is slowed {times:.3g}x" for name, times in most.items())


def searched(jobs: int, passed_over: int, *, asked: bool | None) -> str | None:
    """How the plans were found, in words; None where there was nothing to search.

    Args:
        jobs: Number of jobs.
        passed_over: Vectors of limits that were estimated and not predicted.
        asked: Whether the predictor itself was asked about every set of jobs, not its surrogate;
            None: no set was looked at.
    """
    found = []
    if asked:
        found.append("every set of jobs was predicted, at once, in phases and on MIG instances")
    elif asked is not None:
        found.append("the surrogate model chose the few phases and MIG layouts that were predicted")
    if passed_over:
        found.append(
            f"{passed_over:,} limits were compared by the surrogate model, and the best of them "
            "predicted"
        )
    return "; ".join(found) or None if jobs > 1 else None


def limit_in_words(mix: MixPrediction, bound: Binding) -> str:
    """The resource that limits the plan, and how full the others are, in words."""
    parts = [_limit(mix, bound)]
    if bound.by_host and bound.limit != "host path":
        parts.append(f"the host holds back {named([mix.jobs[job].job for job in bound.by_host])}")
    if bound.memory > _FULL_MEMORY:
        parts.append(f"memory {bound.memory:.0%} full")
    if mix.wide_because:
        parts.append(mix.wide_because)
    if bound.cut == "own instances":
        parts.append("estimated, not confirmed on hardware")
    if mix.power_cap_w is not None:
        parts.append(f"under a power cap of {mix.power_cap_w:g} W, not measured on this GPU")
    return ", ".join(parts)


def named(jobs: Sequence[str]) -> str:
    """Names of jobs, copies counted, e.g. ``"resnet50 x2, bert"``."""
    return ", ".join(
        name if count == 1 else f"{name} x{count}" for name, count in Counter(jobs).items()
    )


def _limit(mix: MixPrediction, bound: Binding) -> str:
    named: dict[str, str] = {"GPU time": "GPU busy"}
    uses = ", ".join(
        f"{named.get(use.resource, use.resource)} {use.share:.0%}" for use in bound.uses
    )
    measured = uses or "GPU activity not measured"
    match bound.limit:
        case "host path":
            least = min(share or 0.0 for share in bound.host_shares)
            return (
                f"the host is the limit: its path takes {least:.0%} of a step or more ({measured})"
            )
        case "own instances":
            what = "SMs and memory of its own for each job"
            return what if mix.sharing.mode == "mig" else "jobs on instances, some shared"
        case "MPS limits":
            return f"MPS limits hold the jobs back ({measured})"
        case None:
            return f"nothing is full ({measured})" if uses else measured
        case "SMs":
            return f"the SMs are the limit ({measured})"
        case resource:
            return f"{resource} is the limit ({measured})"


def compared(cost: Interval, other: Interval, name: str, level: Level) -> str:
    """By how much the cost exceeds `other`, or `other` exceeds it, in words."""
    own, its = cost.at(level), other.at(level)
    behind = own / its - 1 if own > its else 1 - its / own
    if abs(behind) < _SEEN:
        return f"as good as {name}"
    distance = f"{behind:.0%} behind {name}" if behind > 0 else f"{-behind:.0%} ahead of {name}"
    return f"{distance}, within our error" if tied(cost, other) else distance


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
