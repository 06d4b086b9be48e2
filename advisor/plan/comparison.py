"""Two plans for the same jobs: what changes, why, and whether it exceeds the error."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.hardware.catalogue import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.bottlenecks import Binding, Limit, binding
from advisor.plan.objectives import known_cost, rankable_by, tied
from advisor.plan.recommendation import Forecast
from advisor.plan.rules import UNCONDITIONAL, FitsMemory, first_broken, rules
from advisor.prediction.interval import Interval
from advisor.sharing.traversal import one_by_one
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
