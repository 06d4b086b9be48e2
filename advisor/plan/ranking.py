"""Plans in order: the first by the rule of choice, then by cost, each with its reasons."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise, zip_longest
from typing import Any, Literal, get_args

from advisor.errors import InvalidInput
from advisor.plan import ObjectiveName, reasons
from advisor.plan.fleet import grouped
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.job_sets import Kinds
from advisor.plan.objectives import (
    OBJECTIVES,
    STARVED,
    AnyOutcome,
    cost,
    cost_ratio,
    first_plan,
    known_cost,
    rankable_by,
    starved,
    tied,
)
from advisor.plan.one_gpu import ways_to_share
from advisor.plan.rules import UNCONDITIONAL, Conditions, are_many
from advisor.plan.values import (
    GpuPool,
    LeftOut,
    Plan,
    Precedence,
    Question,
    Recommendation,
    Schedule,
    Way,
)
from advisor.prediction.caching_predictor import in_one_order
from advisor.prediction.prediction import Level
from advisor.sharing import Group, Mode, Serial
from advisor.sharing.groups import groups as groups_of
from advisor.sharing.groups import kind_of
from advisor.workload.job import Job

_WAYS: tuple[Way, ...] = get_args(Way)
_RULES: Mapping[Precedence, str] = {
    "deadlines": "because it makes fewer jobs late",
    "starvation": f"because it slows no job over {STARVED:g}x",
    "cost": "by its median",
    "makespan": "because all jobs end soonest, among plans of about equal cost",
    "simplicity": "because it is simpler",
}


def by_precedence(
    plans: Sequence[AnyOutcome], question: Question
) -> list[tuple[AnyOutcome, Precedence | None]]:
    """Order `plans` that have a cost, each with the rule by which it precedes the next.

    The rule of the last is None.
    """
    objective, level = OBJECTIVES[question.objective], question.level

    def place(each: AnyOutcome) -> tuple[int, float, float]:
        """Late jobs, for objectives in joules; the cost; and what decides between equal costs."""
        late = len(each.late(level)) if objective.saves_energy else 0
        own, then = (
            known_cost(each, name).at(level)
            for name in (objective.name, objective.then or objective.name)
        )
        return late, own, then

    first, rule = first_plan(plans, objective.name, level)
    ordered = [first, *sorted((each for each in plans if each is not first), key=place)]
    places = list(map(place, ordered))
    rules: list[Precedence | None] = [
        "deadlines" if one[0] < other[0] else "cost" for one, other in pairwise(places)
    ]
    if rules and places[0] > places[1]:
        rules[0] = rule
    return list(zip(ordered, [*rules, None], strict=True))


def rule_in_words(rule: Precedence, level: Level) -> str:
    """Describe the rule by which one plan precedes another, e.g. ``"because it is simpler"``."""
    by_end = rule == "cost" and level != "p50"
    return "by the upper end of its range" if by_end else _RULES[rule]


# Most plans shown of a kind: limits or MIG layouts have many.
MOST_OF_A_KIND = 2
# Ways that were ruled out and are named with the best plan.
_NAMED = 2


def plans_to_show(
    schedules: Sequence[Schedule], jobs: Sequence[Job], question: Question
) -> list[tuple[Schedule, Precedence | None]]:
    """Choose the plans to show, the first and the best few of each kind, in order.

    Plans that differ only in the places of instances or in the order of groups count as one: the
    best remains, named after the simplest way to group jobs.
    """
    kind_of_job = {
        number + 1: kind for kind, own in enumerate(Kinds(jobs).positions) for number in own
    }
    prices = [
        (price.at(question.level), at)
        for at, each in enumerate(schedules)
        if (price := cost(each, question.objective)) is not None
    ]
    distinct: dict[object, Schedule] = {}
    for _, at in sorted(prices):
        plan = schedules[at]
        key = _does(plan, kind_of_job)
        best = distinct.setdefault(key, plan)
        if plan.way and best.way and _WAYS.index(plan.way) < _WAYS.index(best.way):
            distinct[key] = replace(best, way=plan.way)
    kinds: Counter[tuple[Way | Mode, bool]] = Counter()
    shown = []
    for plan, _ in by_precedence(list(distinct.values()), question):
        kind = plan.way or kind_of(plan.sharing), bool(plan.power_caps_w)
        kinds[kind] += 1
        if kinds[kind] <= MOST_OF_A_KIND or plan is schedules[0]:
            shown.append(plan)
    return by_precedence(shown, question)  # the rules depend on which other plans are shown


def _does(schedule: Schedule, kind_of_job: Mapping[int, int]) -> object:
    """A key that is equal where GPUs run equal jobs in the same groups, in any order."""
    gpus = []
    for on in schedule.gpus:
        kinds = [kind_of_job[number] for number in on.job_numbers]
        groups = [
            (
                re.sub(r"@\d+", "", str(each.sharing if isinstance(each, Group) else each)),
                [kinds[job - 1] for job in each.jobs],
            )
            for each in groups_of(on.sharing, len(kinds))
        ]
        gpus.append((on.gpu.key, on.prediction.power_cap_w, sorted(groups)))
    return str(sorted(gpus, key=str))


def recommended(
    pools: Sequence[GpuPool],
    objective: ObjectiveName,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
    effort: float = 1.0,
) -> Recommendation:
    """Rank the plans for the jobs of `pools` on their GPUs that the jobs and `conditions` allow.

    Raises:
        InvalidInput: `conditions` or `effort` do not apply to so many jobs or GPUs.
        NothingFits: A job is too big for every GPU.
    """
    jobs, hosts = pools[0].jobs, tuple(pool.count for pool in pools)
    pools = [replace(pool, predictor=in_one_order(pool.predictor)) for pool in pools]
    alone = [forecast(Mixes(pool.jobs, pool.predictor), Serial()) for pool in pools]
    ranked_by, note = rankable_by(alone, objective)
    questions = [
        Question(
            gpu=pool.gpu,
            predictor=pool.predictor,
            objective=ranked_by,
            level=level,
            conditions=conditions,
        )
        for pool in pools
    ]
    saves_energy = OBJECTIVES[objective].saves_energy
    many = are_many(len(jobs), sum(each.gpus for each in hosts))
    if many and conditions.power_caps and not (saves_energy and conditions.root):
        raise InvalidInput(
            "a power cap saves energy, makes no job faster, and needs root. Pass --objective "
            "energy and no --no-root for plans of many jobs with caps."
        )
    left_out, searched, longer = list[LeftOut](), None, None
    if many:
        schedules, considered, searched, longer = grouped(pools, questions, effort)
        first = next(each for each in schedules if each.way == "serial")
        schedules = [first, *(each for each in schedules if each is not first)]
    else:
        schedules, left_out, considered, searched = ways_to_share(pools[0], questions[0])
    shown = plans_to_show(schedules, jobs, questions[0])
    first = schedules[0]  # of jobs one at a time, the best order on each GPU remains
    serial = next(
        each
        for each, _ in shown
        if each.gpus == first.gpus
        or (each.way == "serial" and each.power_caps_w == first.power_caps_w)
    )
    plans = _plans(jobs, shown, serial, questions[0], left_out)
    return Recommendation(
        gpu=pools[0].gpu,
        hosts=hosts,
        jobs=jobs,
        objective=objective,
        ranked_by=ranked_by,
        note=note,
        level=level,
        serial=plans[[each for each, _ in shown].index(serial)],
        plans=plans,
        left_out=tuple(left_out),
        considered=considered,
        searched=searched,
        longer_effort=longer,
    )


def _plans(
    jobs: Sequence[Job],
    shown: Sequence[tuple[Schedule, Precedence | None]],
    serial: Schedule,
    question: Question,
    left_out: Sequence[LeftOut],
) -> tuple[Plan, ...]:
    """The plans `shown`, each with its reasons; the best also with what was ruled out."""
    best, level, objective = shown[0][0], question.level, question.objective
    plans = []
    for rank, ((plan, rule), after) in enumerate(zip_longest(shown, shown[1:]), start=1):
        late, slow = sorted(plan.late(level)), starved(plan, level)
        if rank > 1:
            gap = reasons.compared(plan, best, "plan 1", objective, level)
        elif after:
            gap = reasons.compared(plan, after[0], "plan 2", objective, level)
        else:
            gap = "no other plan is possible"
        doubtful = after and rank == 1 and tied(plan, after[0], objective, level)
        if rule and (doubtful or rule != "cost"):
            gap += f"; first {rule_in_words(rule, level)}"
        parts = [gap]
        if len(plan.gpus) == 1:
            bound = reasons.binding(jobs, question.gpu, plan.prediction)
            parts.insert(0, reasons.limit_in_words(plan.prediction, bound))
        if slow:
            parts.append(reasons.slowed([(jobs[at].name, times) for at, times in slow.items()]))
        if late:
            parts.append(f"misses its deadline: {reasons.named([jobs[at].name for at in late])}")
        if rank == 1 and left_out:
            few = ", ".join(f"{each.sharing} ({each.why})" for each in left_out[:_NAMED])
            more = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
            parts.append(f"ruled out: {few}{more}")
        own: dict[str, Any] = {field.name: getattr(plan, field.name) for field in fields(plan)}
        before_s, done_s = serial.makespan_s, plan.makespan_s
        plans.append(
            Plan(
                **own,
                rank=rank,
                ties_best=tied(plan, best, objective, level),
                why="; ".join(parts),
                late_jobs=tuple(at + 1 for at in late),
                precedes_by=rule,
                gain=cost_ratio(serial, plan, objective),
                speedup_vs_serial=before_s / done_s if before_s and done_s else None,
            )
        )
    return tuple(plans)


Answer = Literal["nothing-to-share", "share", "dont-share", "fix-host-first", "equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The conclusion of a recommendation.

    Attributes:
        answers: All conclusions that hold, the one to act on first. ``"fix-host-first"``: the hosts
            hold back every job of the best plan, some of them far.
        binding: What limits the best plan; None: it has several GPUs.
        next_behind: Share by which the next plan costs more than the best, if there is one.
    """

    answers: tuple[Answer, ...]
    binding: reasons.Binding | None
    next_behind: float | None
    host_bound: tuple[reasons.HostBound, ...]


def verdict(advised: Recommendation) -> Verdict:
    """Draw the conclusion of the recommendation `advised`."""
    best, bound, slow = advised.best, None, tuple[reasons.HostBound, ...]()
    if len(best.gpus) == 1:
        bound = reasons.binding(advised.jobs, advised.gpu, best.prediction)
        slow = reasons.host_bound(advised.jobs, bound, advised.variants)
    hosts_limit = bound is not None and bound.limit in ("host path", "data loader")
    answers: list[Answer] = ["fix-host-first"] if slow and hosts_limit else []
    if len(advised.jobs) == 1:
        answers.append("nothing-to-share")
    else:
        answers.append("dont-share" if best.one_by_one else "share")
    if any(plan.ties_best for plan in advised.plans[1:]):
        answers.append("equal")
    first, *others = (
        known_cost(plan, advised.ranked_by).at(advised.level) for plan in advised.plans[:2]
    )
    return Verdict(
        answers=tuple(answers),
        binding=bound,
        host_bound=slow,
        next_behind=others[0] / first - 1 if others else None,
    )
