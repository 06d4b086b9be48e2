"""The best plan for many jobs on equal GPUs that can be found in a given time.

The search begins with greedy plans and takes steps from the best of them: it regroups some jobs,
swaps jobs, recombines all predicted groups with CP-SAT, and looks for better ways to share within
groups. Every group of a plan is predicted before the plan counts. The steps are the same whatever
time there is, and time only ends them: more of it never makes a plan worse.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from itertools import islice
from math import inf
from statistics import fmean
from time import monotonic

from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidates import Forecaster, cap_choices
from advisor.plan.fleet_groups import MOST_TOGETHER, GroupPool, Improver, Incumbent
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.job_sets import Kinds, Members, with_one
from advisor.plan.objectives import OBJECTIVES, FleetTerms, rankable_by
from advisor.plan.placement import (
    FleetGroup,
    PlacedGroup,
    Placement,
    Problem,
    arranged,
    cover_bound,
    job_ends_s,
    makespan_s,
    packed,
    queued,
    queues_of,
    quick_plans,
    roughly_arranged,
)
from advisor.plan.rules import check_each_fits, refuse_confined, refuse_protected
from advisor.plan.values import Forecast, Question, Standing
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.prediction import LEVELS, Interval, all_known, around
from advisor.sharing import Group, Hybrid, Serial, Sharing
from advisor.sharing.groups import in_turn, relabelled
from advisor.workload.job import Job

# Rounds of small changes between two recombinations; rounds without gain that end the search.
_RECOMBINED, _STALE = 4, 5
# Greedy plans whose estimated cost is more than this times the best are not predicted.
_TOO_COSTLY = 1.1
# Up to this number of sets of jobs, every one is predicted, which gives a bound on all plans.
_EVERY_MEMBER_SET = 80
# How many of these sets the one-GPU solver then looks at: with limits, other groups may be best.
_SHARED_BETTER = 16
# Share of the time limit that the one-GPU solver is assumed to need for its first group.
_THOROUGH = 0.25

Clock = Callable[[], float]
"""Seconds from any moment on."""

# Numbers of jobs in a batch.
SIZES = (2, 3, 4, 5, 6, 8)
# Largest sum of the jobs' busy shares of a GPU, each measured alone, in best fit.
_BUSY = (1.0, 1.5, 2.0)

MayShare = Callable[[Members], bool]
"""Checks that the jobs of a group may share a GPU, and fit on it."""


def greedy_groups(kinds: Kinds, problem: Problem, may: MayShare) -> list[list[Members]]:
    """Group all jobs, in batches of several sizes and by best fit, each in several orders."""
    jobs = [kind for kind, count in enumerate(problem.counts) for _ in range(count)]
    longest_first = sorted(jobs, key=lambda kind: -problem.alone_s[kind])
    orders = [longest_first]
    if problem.objective.order_matters:
        orders.append(longest_first[::-1])
    if problem.objective.uses_deadlines:
        due_s = [inf if each is None else each for each in problem.deadlines_s]
        orders.append(sorted(jobs, key=lambda kind: due_s[kind]))
    distinct: dict[tuple[Members, ...], list[Members]] = {}
    for order in orders:
        filled = [batches(order, size, may) for size in SIZES]
        filled += [best_fit(order, busy, kinds, may) for busy in _BUSY]
        for member_sets in filled:
            distinct.setdefault(tuple(sorted(member_sets)), member_sets)
    return list(distinct.values())


def batches(order: Sequence[int], size: int, may: MayShare) -> list[Members]:
    """Fill batches of `size` jobs: each job joins the first with a place and memory for it."""
    filled: list[Members] = []
    open_from = 0
    for kind in order:
        for at in range(open_from, len(filled)):
            larger = with_one(filled[at], kind)
            if len(larger) <= size and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
        while open_from < len(filled) and len(filled[open_from]) == size:
            open_from += 1
    return filled


def best_fit(order: Sequence[int], most_busy: float, kinds: Kinds, may: MayShare) -> list[Members]:
    """Let each job join the group that it fills best without exceeding `most_busy` of a GPU."""
    busy = [job.profile.busy_share or 1.0 for job in kinds.jobs]
    filled: list[Members] = []
    for kind in order:
        totals = [(sum(busy[other] for other in members) + busy[kind], at)
                  for at, members in enumerate(filled) if len(members) < max(SIZES)]  # fmt: skip
        for total, at in sorted(totals, reverse=True):
            larger = with_one(filled[at], kind)
            if total <= most_busy and may(larger):
                filled[at] = larger
                break
        else:
            filled.append((kind,))
    return filled


@dataclass(frozen=True, slots=True)
class FleetSearchResult:
    """The plan of a search, its cost by `Problem.cost`, and a bound on better ones.

    All groups of the plan are predicted; `groups` counts all that were looked at.

    Attributes:
        bound: Lower bound of plans that run at most `MOST_TOGETHER` jobs at once on a GPU; None:
            not known.
        complete: Whether every group was looked at; then `bound` is of plans whose groups are
            time-sliced or under MPS without limits.
    """

    plan: Placement
    cost: float
    bound: float | None
    complete: bool
    groups: int
    predicted: int
    seconds: float
    in_time: bool

    @property
    def gap(self) -> float | None:
        """Share of the cost that a better plan might save, 0..1; None: not known."""
        if self.bound is None:
            return None
        return max(0.0, 1 - self.bound / self.cost) if self.cost > 0 else 0.0


class FleetSolver:
    """Improves a plan step by step while there is time; every job fits on a GPU alone."""

    def __init__(
        self, kinds: Kinds, problem: Problem, question: Question, limit_s: float, clock: Clock
    ) -> None:
        self._kinds, self._problem = kinds, problem
        self._clock, self._began_s, self._limit_s = clock, clock(), limit_s
        self._pool = GroupPool(kinds, problem, question, self._in_time)
        alone = [group for kind, count in enumerate(problem.counts)
                 for group in [self._pool.alone(kind)] * count]  # fmt: skip
        self._incumbent = Incumbent(problem, arranged(alone, problem))
        self._improver = Improver(self._pool, problem, self._incumbent)
        self._bound: float | None = None

    def best(self) -> FleetSearchResult:
        """Search until the steps or the time end."""
        ended = all(self._in_time() for _ in self._steps())
        problem = self._problem
        plan = soonest_first(self._incumbent.plan, problem, self._usable())
        cost = problem.cost(plan)
        least = problem.least_cost(problem.gpus * MOST_TOGETHER)
        bounds = [each for each in (self._bound, least) if each is not None]
        groups, predicted = self._pool.sizes()
        return FleetSearchResult(
            plan=plan, cost=cost, bound=min(cost, max(bounds)) if bounds else None,
            complete=self._bound is not None, groups=groups, predicted=predicted,
            seconds=self._clock() - self._began_s, in_time=ended,
        )  # fmt: skip

    def _in_time(self) -> bool:
        return self._left_s() > 0

    def _left_s(self) -> float:
        return self._began_s + self._limit_s - self._clock()

    def _steps(self) -> Iterator[None]:
        """The steps of the search in order; the time is checked between them."""
        yield
        greedy = greedy_groups(self._kinds, self._problem, self._pool.may)
        later: list[list[Members]] = []
        if self._pool.has_estimates:  # the plan that is estimated best comes first
            greedy = sorted(greedy, key=self._estimated_cost)
            greedy, later = greedy[:1], greedy[1:]
        for member_sets in greedy:
            self._improver.offer(member_sets)
            yield
        yield from self._improved()
        if not (yield from self._share_better()):
            return
        for member_sets in later:
            most = self._problem.cost(self._incumbent.plan) * _TOO_COSTLY
            if self._estimated_cost(member_sets) <= most:
                self._improver.offer(member_sets)
                yield
        yield from self._improved()
        if self._looked_at_all():
            yield
            yield from self._share_better(self._most_promising())
        plan, _, _ = packed(self._usable(), self._problem, self._left_s(), self._incumbent.plan)
        self._incumbent.offer(plan)
        yield
        yield from self._share_better()

    def _estimated_cost(self, member_sets: Sequence[Members]) -> float:
        groups = self._pool.estimated(member_sets)
        return self._problem.cost(roughly_arranged(groups, self._problem))

    def _improved(self) -> Iterator[None]:
        """Alternate small changes and recombination until neither has helped for long."""
        stale = number = 0
        while stale < _STALE:
            gained, number = self._improver.round(), number + 1
            yield
            if number % _RECOMBINED == 0:
                plans = quick_plans(self._usable(), self._problem, self._left_s())
                gained = any([self._incumbent.offer(plan) for plan in plans]) or gained
                yield
            stale = 0 if gained else stale + 1

    def _usable(self) -> list[FleetGroup]:
        groups = [*self._pool.groups, *(each.group for each in self._incumbent.plan)]
        return list({id(each): each for each in groups}.values())

    def _looked_at_all(self) -> bool:
        """Predict every group where there are few, so that a bound on all plans is known."""
        if not self._pool.predict_all(_EVERY_MEMBER_SET):
            return False
        groups = self._pool.groups
        plan, bound, in_time = packed(groups, self._problem, self._left_s(), self._incumbent.plan)
        self._incumbent.offer(plan)
        if not in_time and self._in_time():
            bound = max(bound, cover_bound(groups, self._problem, self._left_s()))
        self._bound = bound
        return True

    def _most_promising(self) -> list[Members]:
        """The sets of jobs that save most by sharing a GPU, compared with each job alone."""

        def kept(group: FleetGroup) -> float:
            alone = [self._pool.best((kind,)) for kind in group.members]
            return self._problem.weight(group) / sum(map(self._problem.weight, filter(None, alone)))

        shared = [each for each in self._pool.groups if len(each.members) > 1]
        ordered = dict.fromkeys(each.members for each in sorted(shared, key=kept))
        return list(ordered)[:_SHARED_BETTER]

    def _share_better(self, wanted: Sequence[Members] | None = None) -> Generator[None, None, bool]:
        """Look for better ways to share within the groups `wanted`, else those of the plan.

        Returns whether there was time for all; if not, nothing else is tried, or a little more time
        might find less.
        """
        if wanted is None:  # longest first
            runs_s = {each.group.members: each.group.runs_s for each in self._incumbent.plan}
            shared = [members for members in runs_s if len(members) > 1]
            wanted = sorted(shared, key=lambda members: -runs_s[members])
        longest_s = self._limit_s * _THOROUGH
        for members in wanted:
            began_s = self._clock()
            if self._left_s() <= longest_s:
                return False
            if better := self._pool.solve(members):
                self._pool.offer(better)
                groups = [each.group for each in self._incumbent.plan]
                self._incumbent.offer_groups([
                    better if each.members == members else each for each in groups
                ])  # fmt: skip
            longest_s = max(longest_s, self._clock() - began_s)
            yield
        return True


# Less is rounding, as a share of the time of a GPU.
_DUST = 1e-9
# Other groups are formed where that spares so much of the jobs' ends, as a share: a choice.
_WORTH = 0.01
# How many ways to group the jobs of a GPU are looked at.
_GROUPINGS = 200


def soonest_first(
    plan: Sequence[PlacedGroup], problem: Problem, usable: Sequence[FleetGroup] = ()
) -> Placement:
    """Regroup and order the jobs of each GPU of `plan` so that one ends soonest on average.

    No GPU ends later, and all of it costs no more: where it would, groups and order stay, as they
    do where the order counts for the cost, or times are no seconds. Groups `usable` may be formed.
    """
    if problem.objective.order_matters or not problem.objective.in_seconds:
        return tuple(plan)
    queues = [_soonest_first(queue) for queue in queues_of(plan, problem.gpus)]
    for gpu, queue in enumerate(queues):
        other = [*queues[:gpu], _regrouped(queue, usable), *queues[gpu + 1 :]]
        if problem.cost(queued(other)) <= (1 + _DUST) * problem.cost(queued(queues)):
            queues = other
    return queued(queues)


def _soonest_first(queue: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The queue by Smith's rule: first what takes least time for each job that waits for it."""
    sooner = sorted(queue, key=lambda each: each.runs_s / len(each.members))
    return sooner if _end_s(sooner) <= (1 + _DUST) * _end_s(queue) else list(queue)


def _regrouped(queue: list[FleetGroup], usable: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The jobs of `queue` in those of the groups `usable` in which they end soonest on average."""
    jobs = Counter(kind for group in queue for kind in group.members)
    groupings = islice(_groupings(jobs, usable), _GROUPINGS)
    latest_s = (1 + _DUST) * _end_s(queue)
    punctual = [each for each in map(_soonest_first, groupings) if _end_s(each) <= latest_s]
    best = min(punctual, key=_sum_of_ends_s, default=queue)
    return best if _sum_of_ends_s(best) < (1 - _WORTH) * _sum_of_ends_s(queue) else queue


def _groupings(jobs: Counter[int], offered: Sequence[FleetGroup]) -> Iterator[list[FleetGroup]]:
    """Every way to group `jobs`, counted by kind, into groups of `offered`."""
    usable = [each for each in offered if Counter(each.members) <= jobs]
    if not jobs:
        yield []
        return
    first = min(jobs)
    for group in usable:
        if first in group.members:
            left = jobs - Counter(group.members)
            yield from ([group, *others] for others in _groupings(left, usable))


def _sum_of_ends_s(queue: Sequence[FleetGroup]) -> float:
    return sum(end_s for _, end_s in job_ends_s(queued([queue])))


def _end_s(queue: Sequence[FleetGroup]) -> float:
    return makespan_s(queued([queue])) if queue else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlan:
    """The plan of one GPU, numbered from 0, with the power cap that it chooses.

    Attributes:
        jobs: Numbers of its jobs among all jobs asked for, from 1, increasing.
        sharing: How they share; its job numbers and limits refer to positions in `jobs`, from 1.
    """

    number: int
    jobs: tuple[int, ...]
    sharing: Sharing
    forecast: Forecast
    power_cap_w: float | None = None

    def chosen(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs of this GPU among all `jobs`."""
        return [jobs[number - 1] for number in self.jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A plan for many jobs on equal GPUs, `on` each that runs a job, and how good it is.

    Attributes:
        ranked_by: The objective of the search; if another than asked for, `note` gives the reason.
        serial_s: Seconds if every GPU ran one job at a time, longest jobs first; None: the length
            of a job is not known.
    """

    gpu: Gpu
    jobs: tuple[Job, ...]
    terms: FleetTerms
    ranked_by: ObjectiveName
    note: str | None
    on: tuple[GpuPlan, ...]
    search: FleetSearchResult
    serial_s: float | None
    idle_power_w: float | None
    standing: Standing = field(default_factory=Standing)

    @property
    def _gpu_ends_s(self) -> list[Interval] | None:
        """Seconds until the last job of each used GPU ends; None where a length is not known."""
        return all_known(each.forecast.makespan_interval_s for each in self.on)

    @property
    def makespan_s(self) -> Interval | None:
        """Seconds until the last job ends; None where a job's length is not known."""
        if (ends_s := self._gpu_ends_s) is None:
            return None
        return around([max(each.at(level) for each in ends_s) for level in LEVELS])

    @property
    def ends_s(self) -> tuple[Interval, ...] | None:
        """Seconds until each job ends, in the order asked for; None where a length is not known."""
        ends_s: dict[int, Interval] = {}
        for on_gpu in self.on:
            if on_gpu.forecast.ends_s is None:
                return None
            ends_s.update(zip(on_gpu.jobs, on_gpu.forecast.ends_s, strict=True))
        return tuple(ends_s[number] for number in sorted(ends_s))

    @property
    def mean_completion_s(self) -> float | None:
        return None if self.ends_s is None else fmean(each.p50 for each in self.ends_s)

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that miss their deadlines, judged at the level asked for."""
        late = [each.jobs[at] for each in self.on
                for at in each.forecast.late(self.terms.level)]  # fmt: skip
        return tuple(sorted(late)) if self.ends_s is not None else ()

    @property
    def energy_j(self) -> Interval | None:
        """Joules of all GPUs, idle ones too, until the last job ends; None where not measured."""
        ends_s, idle_w = self._gpu_ends_s, self.idle_power_w
        used_j = all_known(each.forecast.energy_j for each in self.on)
        if ends_s is None or idle_w is None or used_j is None:
            return None
        totals = []
        for level in LEVELS:
            held_s = [each.at(level) for each in ends_s]
            idle_s = self.terms.gpus * max(held_s) - sum(held_s)
            totals.append(sum(each.at(level) for each in used_j) + idle_s * idle_w)
        return Interval(*totals)


def plan_fleet(
    jobs: Sequence[Job], gpu: Gpu, predictor: Predicts, terms: FleetTerms, clock: Clock = monotonic
) -> FleetPlan:
    """Search the best plan for `jobs` on equal GPUs of the model `gpu` in the time of `terms`.

    Raises:
        InvalidInput: A job is protected.
        NothingFits: A job is too big for a GPU, even alone.
    """
    refuse_protected(jobs)
    refuse_confined(terms.conditions)
    ends_s = clock() + terms.limit_s
    caching = CachingPredictor(predictor)
    serial = forecast(Mixes(jobs, caching), Serial())
    check_each_fits(serial.prediction, gpu, terms.conditions)
    ranked_by, note = rankable_by([serial], terms.objective)
    objective = OBJECTIVES[ranked_by]
    distinct = Kinds(jobs)
    problem = Problem(distinct, objective, terms.gpus, caching)
    question = Question(
        gpu=gpu, predictor=caching, objective=objective.within_group or objective.name,
        conditions=terms.conditions, level=terms.level,
    )  # fmt: skip
    result = FleetSolver(distinct, problem, question, ends_s - clock(), clock).best()
    serial_s, paced = None, zip(jobs, serial.prediction.jobs, strict=True)
    alone_s = all_known(job.work_steps and job.work_steps * one.paced_s.p50 for job, one in paced)
    if alone_s is not None:
        free_s = [0.0] * terms.gpus
        for each_s in sorted(alone_s, reverse=True):
            heapreplace(free_s, free_s[0] + each_s)
        serial_s = max(free_s)
    plan = FleetPlan(
        gpu=gpu, jobs=tuple(jobs), terms=terms, ranked_by=objective.name, note=note, search=result,
        on=_gpu_plans(jobs, result.plan, distinct, caching), serial_s=serial_s,
        idle_power_w=problem.idle_power_w,
    )  # fmt: skip
    may_cap = terms.conditions.power_caps and plan.energy_j is not None
    return _with_caps(plan, question) if may_cap else plan


def _with_caps(free: FleetPlan, question: Question) -> FleetPlan:
    """`free` with the power caps that save most joules and make no further job late, GPU by GPU."""

    def joules(plan: FleetPlan) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(question.level)

    late, best = set(free.late), free
    for at, on_gpu in enumerate(free.on):
        forecaster = Forecaster(on_gpu.chosen(free.jobs), question)
        plans = [best]
        for cap_w in cap_choices(free.gpu):
            capped = forecaster.forecast(on_gpu.sharing, cap_w)
            assert isinstance(capped, Forecast), "a cap takes no memory"
            here = replace(on_gpu, power_cap_w=cap_w, forecast=capped)
            plans.append(replace(best, on=(*best.on[:at], here, *best.on[at + 1 :])))
        best = min((plan for plan in plans if set(plan.late) <= late), key=joules)
    return best


def _gpu_plans(
    jobs: Sequence[Job], plan: Sequence[PlacedGroup], distinct: Kinds, predictor: Predicts
) -> tuple[GpuPlan, ...]:
    """The plan of each GPU of `plan`, by GPU number."""
    left = [list(positions) for positions in distinct.positions]
    groups: dict[int, list[tuple[Sharing, list[int]]]] = {}
    for placed in sorted(plan, key=lambda each: (each.gpu, each.start_s)):
        numbers = [left[kind].pop(0) + 1 for kind in placed.group.members]
        groups.setdefault(placed.gpu, []).append((placed.group.sharing, numbers))
    plans = []
    for gpu, queue in groups.items():
        own = sorted(number for _, numbers in queue for number in numbers)
        renamed: list[Group | Hybrid] = []
        for sharing, numbers in queue:
            renamed += relabelled(sharing, [own.index(number) + 1 for number in numbers])
        mixes, sharing = Mixes([jobs[number - 1] for number in own], predictor), in_turn(renamed)
        plans.append(GpuPlan(
            number=gpu, jobs=tuple(own), sharing=sharing, forecast=forecast(mixes, sharing)
        ))  # fmt: skip
    return tuple(plans)
