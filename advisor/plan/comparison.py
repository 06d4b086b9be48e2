"""Two plans for the same jobs: how every number changes from the first to the second."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.objectives import cost_ratio, holds_one, joint_ratio, known_cost, rankable_by
from advisor.plan.reasons import Binding, Limit, binding
from advisor.plan.rules import broken_rule, memory_problem
from advisor.plan.values import Forecast
from advisor.prediction.prediction import Interval
from advisor.sharing.groups import one_by_one
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class Difference:
    """One number under two plans.

    Attributes:
        ratio: The joint interval of the second over the first.
    """

    first: Interval
    second: Interval
    ratio: Interval

    @property
    def within_error(self) -> bool:
        """True if both are equal within our error."""
        return holds_one(self.ratio)

    @property
    def change(self) -> float:
        """The share by which the second number exceeds the first; negative where it is smaller."""
        return self.second.p50 / self.first.p50 - 1

    @property
    def less(self) -> int | None:
        """Index of the smaller number, 0 or 1; None where they are equal within our error."""
        if self.within_error:
            return None
        return int(self.second.p50 < self.first.p50)


def difference(first: Interval, second: Interval, *, same_way: bool) -> Difference:
    """Compare a number under two plans; see `joint_ratio`."""
    return Difference(first, second, joint_ratio(second, first, same_way=same_way))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One job under two plans; each pair holds the value under the first, then the second.

    Attributes:
        ends_s: Seconds until the job ends, waiting included; None: a length is unknown.
        energy_step_j: The job's share of the GPU's energy for a step; None: not measured.
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
        objective: The objective compared by; if another than asked for, `note` gives the reason.
        forbidden: Why the plan is not allowed; None where it is.
        serial: All jobs one after another; None where one of the plans is that, or not known.
    """

    gpu: Gpu
    objective: ObjectiveName
    note: str | None
    plans: tuple[Forecast, Forecast]
    cost: Difference
    jobs: tuple[JobChange, ...]
    power_w: Difference | None
    bindings: tuple[Binding, Binding]
    forbidden: tuple[str | None, str | None]
    serial: Forecast | None = None

    @property
    def same_way(self) -> bool:
        """True if the plans differ by the power cap of one, at most."""
        return self.plans[0].sharing == self.plans[1].sharing


def compare(
    jobs: Sequence[Job],
    gpu: Gpu,
    plans: tuple[Forecast, Forecast],
    objective: ObjectiveName = "makespan",
    serial: Forecast | None = None,
) -> Comparison:
    """Compare the second of `plans` for `jobs` on `gpu` with the first, and both with `serial`."""
    in_turn = any(one_by_one(each.sharing) for each in plans) or len(jobs) == 1
    compared_by, note = rankable_by(plans, objective)
    first, second = (each.prediction for each in plans)
    bindings = (binding(jobs, gpu, first), binding(jobs, gpu, second))
    changed = partial(difference, same_way=first.sharing == second.sharing)

    def if_known(one: Interval | None, other: Interval | None) -> Difference | None:
        return None if one is None or other is None else changed(one, other)

    def forbidden(plan: Forecast) -> str | None:
        return broken_rule(jobs, plan.sharing, gpu) or memory_problem(plan.prediction, gpu)

    changes = []
    for at, (one, other) in enumerate(zip(first.jobs, second.jobs, strict=True)):
        ends, later = (None if each.ends_s is None else each.ends_s[at] for each in plans)
        changes.append(JobChange(
            number=at + 1, job=one.job, ends_s=if_known(ends, later),
            step_s=changed(one.step_s, other.step_s),
            memory_mib=changed(one.memory_interval_mib, other.memory_interval_mib),
            energy_step_j=if_known(one.energy_step_j, other.energy_step_j),
            slowdown=(one.slowdown, other.slowdown),
            oom_probability=(one.oom_probability, other.oom_probability),
            limits=(bindings[0].limit_of(at), bindings[1].limit_of(at)),
        ))  # fmt: skip
    costs = [known_cost(each, compared_by) for each in plans]
    ratio = cost_ratio(plans[1], plans[0], compared_by)
    return Comparison(
        gpu=gpu, objective=compared_by, note=note, plans=plans,
        cost=Difference(costs[0], costs[1], ratio), jobs=tuple(changes),
        power_w=if_known(first.power_w, second.power_w), bindings=bindings,
        forbidden=(forbidden(plans[0]), forbidden(plans[1])), serial=None if in_turn else serial,
    )  # fmt: skip
