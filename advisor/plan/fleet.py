"""The best plan for many jobs on equal GPUs that can be found in a given time.

It begins with greedy plans and takes steps from the best of them: some of its groups are formed
anew, jobs swap places, CP-SAT recombines all groups that are known, the one-GPU solver looks for
better ways to share within groups. Thousands of groups are estimated, and every group of a plan is
predicted before the plan counts, so that what is optimised is what is reported. Time only ends the
steps, which are the same whatever time there is: more of it never makes a plan worse.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from statistics import fmean
from time import monotonic

from advisor.errors import NothingFits
from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.candidates import Candidate, Forecaster, as_asked, cap_choices
from advisor.plan.fleet_groups import Improver, Incumbent, greedy_groups, soonest_first
from advisor.plan.forecast import CachingPredictor, Mixes, forecast
from advisor.plan.group_pool import MOST_TOGETHER, GroupPool
from advisor.plan.job_sets import Kinds, Members, kinds
from advisor.plan.objectives import OBJECTIVES, FleetTerms, Objective, rankable_by
from advisor.plan.placement import (
    CoverBounds,
    FleetGroup,
    PlacedGroup,
    Problem,
    arranged,
    packed,
    quick_plans,
    roughly_arranged,
)
from advisor.plan.rules import check_each_fits, refuse_protected
from advisor.plan.values import Forecast, Question, Standing
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import LEVELS, Interval, all_known, around
from advisor.sharing import Serial
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


@dataclass(frozen=True, slots=True)
class FleetSearchResult:
    """The plan found, all of its groups predicted, and a bound on better ones.

    Attributes:
        cost: Cost of the plan, as of `Problem.cost`.
        bound: Lower bound of plans that run at most `MOST_TOGETHER` jobs at once on a GPU; None:
            not known.
        complete: Whether every group was looked at; then `bound` is of plans whose groups are
            time-sliced or under MPS without limits.
        groups: Number of groups looked at.
        predicted: Number of groups predicted.
        seconds: Seconds that the search took.
        in_time: Whether the search ended before its time was up.
    """

    plan: tuple[PlacedGroup, ...]
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
    """Improves a plan step by step while there is time.

    Raises:
        NothingFits: A job fits on no GPU, not even alone.
    """

    def __init__(
        self, kinds: Kinds, problem: Problem, question: Question, limit_s: float,
        clock: Clock = monotonic,
    ) -> None:  # fmt: skip
        self._kinds, self._problem = kinds, problem
        self._clock, self._began_s, self._limit_s = clock, clock(), limit_s
        self._pool = GroupPool(kinds, problem, question, self._in_time)
        self._incumbent = Incumbent(problem, self._one_by_one())
        self._improver = Improver(self._pool, problem, self._incumbent)
        self._known_bound: float | None = None

    def best(self) -> FleetSearchResult:
        """The best plan found."""
        ended = all(self._in_time() for _ in self._steps())
        problem = self._problem
        plan = soonest_first(self._incumbent.plan, problem, self._known())
        cost = problem.cost(plan)
        least = problem.objective.least_cost(problem, problem.gpus * MOST_TOGETHER)
        bounds = [each for each in (self._known_bound, least) if each is not None]
        return FleetSearchResult(
            plan=plan, cost=cost, bound=min(cost, max(bounds)) if bounds else None,
            complete=self._known_bound is not None, groups=len(self._pool.member_sets),
            predicted=len(self._pool.predicted), seconds=self._clock() - self._began_s, in_time=ended,
        )  # fmt: skip

    def _in_time(self) -> bool:
        return self._left_s() > 0

    def _left_s(self) -> float:
        return self._began_s + self._limit_s - self._clock()

    def _one_by_one(self) -> tuple[PlacedGroup, ...]:
        """A group of each job alone."""
        groups = []
        for kind, job in enumerate(self._kinds.jobs):
            group = self._pool.alone(kind)
            if group is None:
                raise NothingFits(
                    f"{job.name} does not fit on a GPU even alone. Use a smaller batch, or a GPU "
                    f"with more memory."
                )
            groups += [group] * self._problem.counts[kind]
        return arranged(groups, self._problem)

    def _steps(self) -> Iterator[None]:
        """The steps of the search in order; the time is checked between them."""
        yield
        first, others = self._greedy_plans()
        for member_sets in first:
            self._improver.offer(member_sets)
            yield
        yield from self._improved()
        if not (yield from self._share_better()):
            return
        for member_sets in others:
            most = self._problem.cost(self._incumbent.plan) * _TOO_COSTLY
            if self._estimated_cost(member_sets) <= most:
                self._improver.offer(member_sets)
                yield
        yield from self._improved()
        if self._looked_at_all():
            yield
            yield from self._share_better(self._most_promising())
        self._pack()
        yield
        yield from self._share_better()

    def _greedy_plans(self) -> tuple[list[list[Members]], list[list[Members]]]:
        """Greedy plans: those to predict at once, and those to predict later.

        Where groups can be estimated, the plan that is estimated best comes first; else all come
        first.
        """
        found = list(greedy_groups(self._kinds, self._problem, self._pool.may))
        if not self._pool.has_estimates:
            return found, []
        found.sort(key=self._estimated_cost)
        return found[:1], found[1:]

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
                gained = self._recombined() or gained
                yield
            stale = 0 if gained else stale + 1

    def _recombined(self) -> bool:
        """Offer a cover of light predicted groups; whether it improves the plan."""
        plans = quick_plans(self._known(), self._problem, self._left_s())
        return any([self._incumbent.offer(plan) for plan in plans])

    def _pack(self) -> None:
        """Offer the best plan of all predicted groups, order and time included."""
        groups = self._known()
        self._incumbent.offer(
            packed(groups, self._problem, self._left_s(), self._incumbent.plan).plan
        )

    def _known(self) -> list[FleetGroup]:
        groups = [*self._pool.groups, *(each.group for each in self._incumbent.plan)]
        return list({id(each): each for each in groups}.values())

    def _looked_at_all(self) -> bool:
        """Predict every group where there are few, so that a bound on all plans is known."""
        if not self._pool.predict_all(_EVERY_MEMBER_SET):
            return False
        groups = self._pool.groups
        packing = packed(groups, self._problem, self._left_s(), self._incumbent.plan)
        self._incumbent.offer(packing.plan)
        self._known_bound = packing.bound
        if not packing.in_time and self._in_time():
            covers = CoverBounds(groups, self._problem, self._left_s())
            self._known_bound = max(packing.bound, self._problem.objective.bound(covers))
        return True

    def _most_promising(self) -> list[Members]:
        """The sets of jobs that save most by sharing a GPU, compared with each job alone."""

        def kept(group: FleetGroup) -> float:
            alone = [self._pool.best((kind,)) for kind in group.members]
            return self._problem.weight(group) / sum(map(self._problem.weight, filter(None, alone)))

        shared = [each for each in self._pool.groups if len(each.members) > 1]
        ordered = dict.fromkeys(each.members for each in sorted(shared, key=kept))
        return list(ordered)[:_SHARED_BETTER]

    def _share_better(self, asked: Sequence[Members] | None = None) -> Generator[None, None, bool]:
        """Solve the groups `asked` for, else those of the plan, longest first.

        The one-GPU solver may find better ways to share within a group.

        Returns:
            Whether there was time for all; if not, nothing else is tried, or a little more time
            might find less.
        """
        longest_s = self._limit_s * _THOROUGH
        for members in _longest_first(self._incumbent.plan) if asked is None else asked:
            began_s = self._clock()
            if self._left_s() <= longest_s:
                return False
            if better := self._pool.thorough.group(members):
                self._pool.offer(better)
                groups = [each.group for each in self._incumbent.plan]
                self._incumbent.offer_groups([
                    better if each.members == members else each for each in groups
                ])  # fmt: skip
            longest_s = max(longest_s, self._clock() - began_s)
            yield
        return True


def _longest_first(plan: Sequence[PlacedGroup]) -> list[Members]:
    """The groups of `plan` in which jobs share a GPU, longest first."""
    runs_s = {each.group.members: each.group.runs_s for each in plan}
    shared = [members for members in runs_s if len(members) > 1]
    return sorted(shared, key=lambda members: -runs_s[members])


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """What one GPU runs.

    Attributes:
        number: Number of the GPU, from 0.
        forecast: Forecast for the jobs of `candidate`, from the first step to the last.
    """

    number: int
    candidate: Candidate
    forecast: Forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A plan for many jobs on equal GPUs, and how good it is.

    Attributes:
        on: The plan of each GPU that runs a job.
        ranked_by: The objective of the search; another than asked for where that cannot be
            computed, and then `note` says why.
        search: What the search looked at, and how much better a plan could be.
        serial_s: Seconds if every GPU ran one job at a time, longest jobs first; None: the length
            of a job is not known.
        idle_power_w: Power of a GPU on which nothing runs; None: not measured.
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
        for each in self.on:
            if each.forecast.ends_s is None:
                return None
            ends_s.update(zip(each.candidate.jobs, each.forecast.ends_s, strict=True))
        return tuple(ends_s[number] for number in sorted(ends_s))

    @property
    def mean_completion_s(self) -> float | None:
        return None if self.ends_s is None else fmean(each.p50 for each in self.ends_s)

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that miss their deadlines, judged at the level asked for."""
        found = [
            each.candidate.jobs[at]
            for each in self.on
            for at in each.forecast.late(self.terms.level)
        ]
        return tuple(sorted(found)) if self.ends_s is not None else ()

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
    """The best plan for `jobs` on equal GPUs of the model `gpu` that is found in time.

    Raises:
        InvalidInput: A job is protected.
        NothingFits: A job is too big for a GPU, even alone.
    """
    refuse_protected(jobs)
    ends_s = clock() + terms.limit_s
    asked = CachingPredictor(predictor)
    serial = forecast(Mixes(jobs, asked), Serial())
    check_each_fits(serial.prediction, gpu, terms.conditions)
    ranked_by, note = rankable_by([serial], terms.objective)
    objective = OBJECTIVES[ranked_by]
    distinct = kinds(jobs)
    problem = _problem(distinct, objective, terms.gpus, asked)
    question = Question(
        gpu=gpu, predictor=asked, objective=objective.within_group or objective.name,
        conditions=terms.conditions, level=terms.level,
    )  # fmt: skip
    found = FleetSolver(distinct, problem, question, ends_s - clock(), clock).best()
    plan = FleetPlan(
        gpu=gpu, jobs=tuple(jobs), terms=terms, ranked_by=objective.name, note=note, search=found,
        on=_gpu_plans(jobs, _candidates(found.plan, distinct), asked),
        serial_s=_one_by_one_s(jobs, terms.gpus), idle_power_w=problem.idle_power_w,
    )  # fmt: skip
    may_cap = terms.conditions.power_caps and plan.energy_j is not None
    return _with_caps(plan, question) if may_cap else plan


def _with_caps(found: FleetPlan, question: Question) -> FleetPlan:
    """`found` with power caps that save most joules in all, chosen for one GPU after another.

    A job that keeps its deadline without caps must keep it under them. The predictor of `question`
    is one without a cap.
    """

    def joules(plan: FleetPlan) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(question.level)

    late = set(found.late)
    for at, each in enumerate(found.on):
        own = each.candidate.chosen(found.jobs)
        forecaster, free = Forecaster(own, question), as_asked(len(own), each.candidate.sharing)
        tried = [found]
        for cap_w in cap_choices(found.gpu):
            under_cap = forecaster.forecast(replace(free, power_cap_w=cap_w))
            assert isinstance(under_cap, Forecast), "a cap takes no memory"
            candidate = replace(each.candidate, power_cap_w=cap_w)
            here = replace(each, candidate=candidate, forecast=under_cap)
            tried.append(replace(found, on=(*found.on[:at], here, *found.on[at + 1 :])))
        found = min((each for each in tried if set(each.late) <= late), key=joules)
    return found


def _gpu_plans(
    jobs: Sequence[Job], candidates: Mapping[int, Candidate], predictor: Predicts
) -> tuple[GpuPlan, ...]:
    """The forecast of each of `candidates`, by GPU number."""
    return tuple(
        GpuPlan(number, each, forecast(Mixes(each.chosen(jobs), predictor), each.sharing))
        for number, each in candidates.items()
    )


def _problem(distinct: Kinds, objective: Objective, gpus: int, predictor: Predicts) -> Problem:
    jobs = distinct.jobs
    ones = (1.0,) * len(jobs)
    alone_s = tuple((job.work_steps or 0.0) * job.profile.step_s for job in jobs)
    least_s = tuple(_least_s(job, predictor) for job in jobs)
    return Problem(
        objective=objective, gpus=gpus, counts=distinct.counts,
        alone_s=alone_s if objective.in_seconds else ones,
        least_s=least_s if objective.in_seconds else ones,
        deadlines_s=tuple(job.deadline_s for job in jobs),
        idle_power_w=idle_power_w([job.profile for job in jobs]),
    )  # fmt: skip


def _least_s(job: Job, predictor: Predicts) -> float:
    """Seconds that `job` takes alone, as predicted."""
    alone = predictor.predict([job.profile], Serial()).jobs[0]
    return (job.work_steps or 0.0) * alone.step_s.p50


def _candidates(plan: Sequence[PlacedGroup], distinct: Kinds) -> dict[int, Candidate]:
    """The candidate that each GPU of `plan` runs, by GPU number."""
    left = [list(positions) for positions in distinct.positions]
    named: dict[int, list[tuple[PlacedGroup, list[int]]]] = {}
    for each in sorted(plan, key=lambda placed: (placed.gpu, placed.start_s)):
        numbers = [left[kind].pop(0) + 1 for kind in each.group.members]
        named.setdefault(each.gpu, []).append((each, numbers))
    return {gpu: _candidate(groups) for gpu, groups in named.items()}


def _candidate(groups: Sequence[tuple[PlacedGroup, list[int]]]) -> Candidate:
    own = sorted(number for _, numbers in groups for number in numbers)
    renamed = [
        group
        for placed, numbers in groups
        for group in relabelled(placed.group.sharing, [own.index(n) + 1 for n in numbers])
    ]
    return Candidate(jobs=tuple(own), sharing=in_turn(renamed))


def _one_by_one_s(jobs: Sequence[Job], gpus: int) -> float | None:
    steps = all_known(job.work_steps for job in jobs)
    if steps is None:
        return None
    free_s = [0.0] * gpus
    alone = (work * job.profile.step_s for work, job in zip(steps, jobs, strict=True))
    for alone_s in sorted(alone, reverse=True):
        heapreplace(free_s, free_s[0] + alone_s)
    return max(free_s)
