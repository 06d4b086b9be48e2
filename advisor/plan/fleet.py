"""The plan for many jobs, or for several GPUs: what each GPU runs, and how good that is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Annotated

from advisor.documents import Inline, Mark
from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.choice import weighed
from advisor.plan.cluster import FleetTerms, GpuPool
from advisor.plan.fleet_groups import GpuQueue, GroupPool, PlacedGroup, Problem
from advisor.plan.fleet_search import WAYS, FleetSearch, Way
from advisor.plan.forecast import Mixes, cap_choices, forecast, forecast_allowed
from advisor.plan.job_sets import Kinds
from advisor.plan.objectives import OBJECTIVES, joint_ratio, most_gain, rankable_by
from advisor.plan.rules import check_each_fits, refuse_confined, refuse_protected
from advisor.plan.values import Forecast, Question, Standing
from advisor.prediction.prediction import (
    LEVELS,
    Interval,
    Level,
    MixPrediction,
    all_known,
    around,
)
from advisor.prediction.wrappers import CachingPredictor
from advisor.sharing import Group, Hybrid, Serial, Sharing
from advisor.sharing.groups import groups as groups_of
from advisor.sharing.groups import in_turn, relabelled
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """The plan of one GPU, numbered from 0 over all pools and hosts.

    Attributes:
        jobs: Numbers of its jobs among all jobs asked for, from 1, increasing.
        members: These jobs, as profiled on this model of GPU.
        sharing: How they share; its job numbers and limits refer to positions in `jobs`, from 1.
        forecast: From the start of its first job; without waits for other GPUs.
        waits_s: Seconds that each job starts later than that, shape (jobs,): a job that takes
            several GPUs waits for all of them.
        power_cap_w: The cap that the plan chooses; None: it chooses none.
    """

    number: int
    gpu: Annotated[Gpu, Mark.LEFT_OUT]
    jobs: Annotated[tuple[int, ...], Mark.LEFT_OUT]
    members: Annotated[tuple[Job, ...], Mark.LEFT_OUT]
    sharing: Annotated[Sharing, Mark.LEFT_OUT]
    forecast: Annotated[Forecast, Inline()]
    waits_s: tuple[float, ...]
    power_cap_w: Annotated[float | None, Mark.LEFT_OUT] = None

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Seconds until each job ends, in the order of `jobs`; None: a length is not known."""
        if self.forecast.ends_s is None:
            return None
        pairs = zip(self.forecast.ends_s, self.waits_s, strict=True)
        return tuple(end_s.later(wait_s) for end_s, wait_s in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetForecast:
    """All jobs on all GPUs, planned in one way: `on` each GPU that runs a job.

    Attributes:
        way: How the plan was made; of equal plans the simplest way.
        cost: Its cost in the search, by `ranked_by`.
        level: Point of an interval at which deadlines are judged.
    """

    way: Way
    cost: float
    pools: tuple[GpuPool, ...]
    on: tuple[GpuPlan, ...]
    ranked_by: ObjectiveName
    level: Level

    @property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs, with their profiles on the first pool."""
        return self.pools[0].jobs

    @property
    def gpus(self) -> int:
        """Number of all GPUs."""
        return sum(pool.gpus for pool in self.pools)

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Seconds until each job ends, in the order asked for; None where a length is not known."""
        ends_s: dict[int, Interval] = {}
        for on_gpu in self.on:
            if on_gpu.ends_s is None:
                return None
            ends_s.update(zip(on_gpu.jobs, on_gpu.ends_s, strict=True))
        return tuple(ends_s[number] for number in sorted(ends_s))

    @property
    def makespan_s(self) -> Interval | None:
        """Seconds until the last job ends; None where a job's length is not known."""
        return self._of_ends(max)

    @property
    def mean_completion_s(self) -> Interval | None:
        """Mean over the jobs of the seconds until a job ends; None as for `makespan_s`."""
        return self._of_ends(fmean)

    def _of_ends(self, summary: Callable[[list[float]], float]) -> Interval | None:
        if (ends_s := self.ends_s) is None:
            return None
        return around([summary([each.at(level) for each in ends_s]) for level in LEVELS])

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that miss their deadlines, judged at the level asked for."""
        ends_s = self.ends_s
        pairs = enumerate(zip(ends_s or (), self.jobs, strict=ends_s is not None), 1)
        return tuple(
            number
            for number, (end_s, job) in pairs
            if job.deadline_s is not None and end_s.at(self.level) > job.deadline_s
        )

    @property
    def energy_j(self) -> Interval | None:
        """Joules of all GPUs, idle ones too, until the last job ends; None where not measured."""
        last_s, idle_w = self.makespan_s, all_known(pool.idle_power_w for pool in self.pools)
        used_j = all_known(each.forecast.energy_j for each in self.on)
        runs_s = all_known(each.forecast.makespan_interval_s for each in self.on)
        if last_s is None or idle_w is None or used_j is None or runs_s is None:
            return None
        totals = []
        for level in LEVELS:
            total = sum(each.at(level) for each in used_j)
            for pool, watts in zip(self.pools, idle_w, strict=True):
                busy_s = sum(
                    own.at(level)
                    for on, own in zip(self.on, runs_s, strict=True)
                    if on.gpu == pool.gpu
                )
                total += (pool.gpus * last_s.at(level) - busy_s) * watts
            totals.append(total)
        return Interval(*totals)

    @property
    def fullest(self) -> MixPrediction:
        """The prediction of the GPU whose memory is fullest."""
        mixes = [each.forecast.prediction for each in self.on]
        return max(mixes, key=lambda mix: mix.memory_total_mib / mix.memory_capacity_mib)

    @property
    def oom_probability(self) -> float:
        """Probability that the GPU on which that is likeliest runs out of memory."""
        return max(each.forecast.prediction.oom_probability for each in self.on)

    @property
    def confirmed_on_hardware(self) -> bool:
        """Whether real runs confirm how the jobs of each GPU share it."""
        return all(each.forecast.prediction.confirmed_on_hardware for each in self.on)

    @property
    def compared(self) -> Interval:
        """The number that plans are compared by: seconds, joules, or the time for equal work.

        Plans that keep deadlines are compared by their makespans.
        """
        match self.ranked_by:
            case "mean-completion":
                value = self.mean_completion_s
            case "energy":
                value = self.energy_j
            case "throughput":
                steps_s = [job.step_s for on in self.on for job in on.forecast.prediction.jobs]
                errors = [fmean(each.at(level) / each.p50 for each in steps_s) for level in LEVELS]
                value = around(errors).scaled(self.cost)
            case _:
                value = self.makespan_s
        assert value is not None, "plans are ranked by what is known of all of them"
        return value

    @property
    def weighed(self) -> float:
        """`compared` at the level of the question, with the handicap of how GPUs are shared."""
        return max(weighed(self.compared.at(self.level), each.sharing) for each in self.on)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan(FleetForecast):
    """The best plan for many jobs, or for several GPUs.

    Attributes:
        note: Why `ranked_by` is not the objective that was asked for; None: it is.
        exact: Whether every way to group the jobs was compared.
        groups_compared: Groups of jobs that were compared.
        groups_predicted: Those of them that were predicted in full; the others were estimated.
        cut_short: Whether more effort would compare more.
        others: The best plan of every other way, best first.
    """

    terms: FleetTerms
    note: str | None
    exact: bool
    groups_compared: int
    groups_predicted: int
    cut_short: bool
    others: tuple[FleetForecast, ...]
    standing: Annotated[Standing, Mark.AT_TOP] = field(default_factory=Standing)

    @property
    def plans(self) -> tuple[FleetForecast, ...]:
        """The best plan of each way, best first."""
        return (self, *self.others)

    @property
    def serial(self) -> FleetForecast:
        """The plan in which every GPU runs one job at a time: the baseline of every gain."""
        return next(each for each in self.plans if each.way == "serial")

    def gain(self, plan: FleetForecast) -> Interval:
        """Return what `plan` gains over one job at a time; above 1 it is better."""
        serial = self.serial
        ratio = joint_ratio(serial.compared, plan.compared, same_way=plan is serial)
        return ratio.held_in(0.0, max(most_gain(on.forecast, self.ranked_by) for on in plan.on))


def plan_fleet(pools: Sequence[GpuPool], terms: FleetTerms) -> FleetPlan:
    """Search the best plan for the jobs of `pools` on their GPUs.

    Raises:
        InvalidInput: A job is protected.
        NothingFits: A job is too big for every GPU, even alone, or takes more GPUs than a host has.
    """
    jobs = pools[0].jobs
    refuse_protected(jobs)
    refuse_confined(terms.conditions)
    pools = [replace(pool, predictor=CachingPredictor(pool.predictor)) for pool in pools]
    alone = [forecast(Mixes(pool.jobs, pool.predictor), Serial()) for pool in pools]
    ranked_by, note = rankable_by(alone, terms.objective)
    objective, kinds = OBJECTIVES[ranked_by], Kinds(jobs)
    problem = Problem(kinds, objective, pools)
    questions = [
        Question(
            gpu=pool.gpu,
            predictor=pool.predictor,
            level=terms.level,
            conditions=terms.conditions,
            objective=objective.name,
        )
        for pool in pools
    ]
    groups = [GroupPool(at, problem, each) for at, each in enumerate(questions)]
    _check_each_runs_somewhere(kinds, problem, groups, terms)
    search = FleetSearch(problem, groups, terms.effort)
    search.run(questions)
    best_placements = sorted(search.best.items(), key=lambda each: problem.rank(each[1]))
    plans = _different(
        [
            FleetForecast(
                way=way,
                cost=problem.cost(placement),
                pools=tuple(pools),
                on=_gpu_plans(placement, problem),
                ranked_by=objective.name,
                level=terms.level,
            )
            for way, placement in best_placements
        ],
        kinds,
    )
    if terms.conditions.power_caps and plans[0].energy_j is not None:
        plans = [_with_caps(each, questions) for each in plans]
        plans.sort(key=lambda each: (len(each.late), each.compared.at(terms.level)))
    best = min(plans, key=lambda each: (len(each.late), each.weighed))
    others = [each for each in plans if each is not best]
    compared, predicted = map(sum, zip(*(each.sizes for each in groups), strict=True))
    exact = best_placements[0][0] == "exact"
    return FleetPlan(
        way=best.way,
        cost=best.cost,
        pools=best.pools,
        on=best.on,
        ranked_by=best.ranked_by,
        level=best.level,
        terms=terms,
        note=note,
        exact=exact,
        others=tuple(others),
        groups_compared=compared,
        groups_predicted=predicted,
        cut_short=search.cut_short and not exact,
    )


def _different(plans: Sequence[FleetForecast], kinds: Kinds) -> list[FleetForecast]:
    """`plans` without those that do the same as another, which is named after the simplest way."""
    kind_of = {at + 1: kind for kind, positions in enumerate(kinds.positions) for at in positions}

    def runs(on: GpuPlan) -> str:
        groups = [
            (
                repr(each.sharing if isinstance(each, Group) else each.places),
                [kind_of[on.jobs[number - 1]] for number in each.jobs],
            )
            for each in groups_of(on.sharing, len(on.jobs))
        ]
        return f"{on.gpu.key} {groups}"

    same: dict[tuple[str, ...], FleetForecast] = {}
    for plan in plans:
        key = tuple(sorted(map(runs, plan.on)))
        same[key] = min(same.get(key, plan), plan, key=lambda each: WAYS.index(each.way))
    return list(same.values())


def _check_each_runs_somewhere(
    kinds: Kinds, problem: Problem, groups: Sequence[GroupPool], terms: FleetTerms
) -> None:
    widest = max(pool.host_gpus for pool in problem.pools)
    for kind, job in enumerate(kinds.jobs):
        if job.gpus > widest:
            raise NothingFits(
                f"{job.name} takes {job.gpus} GPUs of one host, and a host has {widest}. Leave it "
                f"out, or name larger hosts, as --gpus 1x{job.gpus}."
            )
        if not any(group.holds[kind] for group in groups):
            pool = problem.pools[-1]
            mix = pool.predictor.predict([groups[-1].jobs[kind].profile], Serial())
            check_each_fits(mix, pool.gpu, terms.conditions)
        if not any(group.allows(GpuQueue((kind,), 1)) for group in groups):
            raise NothingFits(
                f"{job.name} holds {job.profile.host_memory_mib or 0:,.0f} MiB of the host, more "
                f"than the equal part of a GPU. Name more --host-memory, or fewer GPUs a host."
            )


def _with_caps(free: FleetForecast, questions: Sequence[Question]) -> FleetForecast:
    """`free` with the power caps that save most joules and make no further job late.

    GPUs that run equal jobs equally have the same cap.
    """

    def joules(plan: FleetForecast) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(plan.level)

    late, best, left = set(free.late), free, list(free.on)
    while left:
        runs = left[0].gpu, left[0].members, left[0].sharing
        same = [on.number for on in left if (on.gpu, on.members, on.sharing) == runs]
        left = [on for on in left if on.number not in same]
        question = next(each for each in questions if each.gpu == runs[0])
        mixes, plans = Mixes(runs[1], question.predictor), [best]
        for cap_w in cap_choices(question.gpu):
            capped = forecast_allowed(mixes, question, runs[2], cap_w)
            assert isinstance(capped, Forecast), "a cap takes no memory"
            plans.append(
                replace(
                    best,
                    on=tuple(
                        replace(on, power_cap_w=cap_w, forecast=capped) if on.number in same else on
                        for on in best.on
                    ),
                )
            )
        best = min((plan for plan in plans if set(plan.late) <= late), key=joules)
    return best


def _gpu_plans(plan: Sequence[PlacedGroup], problem: Problem) -> tuple[GpuPlan, ...]:
    """The plan of each GPU of `plan`, by GPU number."""
    left = [list(positions) for positions in problem.kinds.positions]
    queues: dict[int, list[tuple[PlacedGroup, list[int]]]] = {}
    for placed in sorted(plan, key=lambda each: (each.start_s, each.gpus)):
        numbers = [left[kind].pop(0) + 1 for kind in placed.group.members]
        for gpu in placed.gpus:
            queues.setdefault(gpu, []).append((placed, numbers))
    plans = []
    for gpu, queue in sorted(queues.items()):
        pool = problem.pools[problem.pool_of[gpu]]
        own = sorted(number for _, numbers in queue for number in numbers)
        renamed: list[Group | Hybrid] = []
        waits_s, free_s, before = dict[int, float](), 0.0, None
        for placed, numbers in queue:
            group = placed.group
            renamed += relabelled(group.sharing, [own.index(one) + 1 for one in numbers])
            free_s += problem.pause_s(before, group)
            waits_s |= dict.fromkeys(numbers, placed.start_s - free_s)
            free_s, before = free_s + group.runs_s, group
        members, sharing = tuple(pool.jobs[number - 1] for number in own), in_turn(renamed)
        plans.append(
            GpuPlan(
                number=gpu,
                gpu=pool.gpu,
                jobs=tuple(own),
                members=members,
                sharing=sharing,
                forecast=forecast(Mixes(members, pool.predictor), sharing),
                waits_s=tuple(waits_s[number] for number in own),
            )
        )
    return tuple(plans)
