"""Groups of jobs placed on several equal GPUs: where and when they run, and what that costs."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapreplace
from itertools import pairwise
from math import floor, fsum, inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from advisor.plan.job_sets import Kinds, Members
from advisor.plan.objectives import Objective
from advisor.prediction.mix_steps import Predicts
from advisor.prediction.power import idle_power_w
from advisor.prediction.trace import Floats
from advisor.sharing import Serial, Sharing
from advisor.sharing.groups import groups
from advisor.simulation.events import Indices, repartition_s


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetGroup:
    """A group of jobs that share one GPU, and how long they take.

    Attributes:
        sharing: How they share; job numbers and limits refer to positions in `members`, from 1.
        ends_s: Seconds from their common start until each job ends, in the order of `members`,
            shape (jobs,); for throughput, in units of each job's time alone.
        in_seconds: Whether `ends_s` are seconds; if not, pauses do not count.
    """

    members: Members
    sharing: Sharing
    ends_s: tuple[float, ...]
    energy_j: float | None
    in_seconds: bool

    @property
    def runs_s(self) -> float:
        """Seconds until the last job ends."""
        return max(self.ends_s)

    def after_s(self, before: "FleetGroup") -> float:
        """Return the seconds between the end of `before` and its own start on the same GPU."""
        if not self.in_seconds:
            return 0.0
        return _between_s(before.sharing, len(before.members), self.sharing, len(self.members))


@cache
def _between_s(before: Sharing, jobs_before: int, after: Sharing, jobs: int) -> float:
    return repartition_s(groups(before, jobs_before)[-1], groups(after, jobs)[0])


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group placed on a GPU, numbered from 0; its jobs start at `start_s`."""

    group: FleetGroup
    gpu: int
    start_s: float


def makespan_s(plan: Sequence[PlacedGroup]) -> float:
    """Return when the last job ends."""
    return max(each.start_s + each.group.runs_s for each in plan)


def job_ends_s(plan: Sequence[PlacedGroup]) -> Iterator[tuple[int, float]]:
    """Yield kind and end of each job of `plan`."""
    for placed in plan:
        for kind, end_s in zip(placed.group.members, placed.group.ends_s, strict=True):
            yield kind, placed.start_s + end_s


Placement = tuple[PlacedGroup, ...]
"""A plan: each group on its GPU."""


def dealt(groups: Sequence[FleetGroup], gpus: int) -> Placement:
    """Place each of `groups`, in this order, on the GPU that is free first."""
    return _placed([(None, group) for group in groups], gpus)


def queued(queues: Sequence[Sequence[FleetGroup]]) -> Placement:
    """Place each of `queues` on a GPU of its own, one group after another."""
    pairs = [(gpu, group) for gpu, queue in enumerate(queues) for group in queue]
    return _placed(pairs, len(queues))


def _placed(pairs: Sequence[tuple[int | None, FleetGroup]], gpus: int) -> Placement:
    """Each group on its GPU, or on the first free one; no pause before the first on a GPU."""
    free_s, plan = [0.0] * gpus, []
    last: dict[int, FleetGroup] = {}
    for fixed, group in pairs:
        gpu = free_s.index(min(free_s)) if fixed is None else fixed
        start_s = free_s[gpu] + (group.after_s(last[gpu]) if gpu in last else 0.0)
        plan.append(PlacedGroup(group, gpu, start_s))
        last[gpu], free_s[gpu] = group, start_s + group.runs_s
    return tuple(plan)


def queues_of(plan: Sequence[PlacedGroup], gpus: int) -> list[list[FleetGroup]]:
    """Return the groups of each GPU in the order in which they run."""
    queues: list[list[FleetGroup]] = [[] for _ in range(gpus)]
    for placed in sorted(plan, key=lambda each: each.start_s):
        queues[placed.gpu].append(placed.group)
    return queues


# Share of a GPU's jobs that wait while a group runs: half, on average.
WAITING = 0.5


class Problem:
    """Jobs to run on equal GPUs, and the objective of their plan.

    Attributes:
        alone_s: Seconds of a job of each kind alone, shape (kinds,); 1 for throughput.
        least_s: The same as predicted: a job takes at least as long, however it runs.
        deadlines_s: Deadline of each kind from the start of all, same shape.
    """

    def __init__(self, kinds: Kinds, objective: Objective, gpus: int, predictor: Predicts) -> None:
        jobs, self.objective, self.gpus = kinds.jobs, objective, gpus
        self.counts = kinds.copies
        self.alone_s = self.least_s = [1.0] * len(jobs)
        if objective.in_seconds:
            steps = [job.work_steps or 0.0 for job in jobs]
            alone = [predictor.predict([job.profile], Serial()).jobs[0] for job in jobs]
            self.alone_s = [n * job.alone_step_s for n, job in zip(steps, jobs, strict=True)]
            self.least_s = [n * job.paced_s.p50 for n, job in zip(steps, alone, strict=True)]
        self.deadlines_s = [job.deadline_s for job in jobs]
        self.idle_power_w = idle_power_w([job.profile for job in jobs])

    def late(self, kind: int, end_s: float) -> bool:
        """Check whether a job of `kind` that ends at `end_s` misses its deadline."""
        deadline_s = self.deadlines_s[kind]
        return deadline_s is not None and end_s > deadline_s

    def of_every_job(self, of_kinds: Sequence[float]) -> list[float]:
        """Repeat each of `of_kinds` for every job of its kind."""
        pairs = zip(of_kinds, self.counts, strict=True)
        return [each for each, count in pairs for _ in range(count)]

    def cost(self, plan: Sequence[PlacedGroup]) -> float:
        """Compute the cost of `plan`, the lower the better; for deadlines it counts late jobs."""
        match self.objective.name:
            case "mean-completion":
                return fsum(end_s for _, end_s in job_ends_s(plan)) / sum(self.counts)
            case "deadlines":
                return float(sum(self.late(kind, end_s) for kind, end_s in job_ends_s(plan)))
            case "energy":
                held_s = self.gpus * makespan_s(plan)
                free_s = held_s - fsum(each.group.runs_s for each in plan)
                used_j = fsum(each.group.energy_j or 0.0 for each in plan)
                return used_j + free_s * (self.idle_power_w or 0.0)
            case _:
                return makespan_s(plan)

    def rank(self, plan: Sequence[PlacedGroup]) -> tuple[float, float]:
        """Return cost and makespan: of plans of equal cost, the one that ends first is better."""
        return self.cost(plan), makespan_s(plan)

    def weight(self, group: FleetGroup, waiting: float = WAITING) -> float:
        """Estimate a group's part in the cost; `waiting`: share of its GPU's jobs behind it."""
        if self.objective.order_matters:
            waits_s = waiting * sum(self.counts) / self.gpus * group.runs_s
            return sum(group.ends_s) + waits_s
        if self.objective.saves_energy and group.energy_j is not None:
            return group.energy_j
        return group.runs_s

    def least_cost(self, places: int) -> float | None:
        """Bound from below the cost of plans with at most `places` jobs at once; None: not known.

        No job is faster than alone, so it occupies one place for at least its time alone.
        """
        each_s = self.of_every_job(self.least_s)
        match self.objective.name:
            case "mean-completion":
                return soonest_s(each_s, places) / len(each_s)
            case "deadlines":
                of_kinds = zip(self.least_s, self.counts, strict=True)
                return float(sum(n for kind, (s, n) in enumerate(of_kinds) if self.late(kind, s)))
            case "energy":
                return None
            case _:
                return max(*each_s, sum(each_s) / places)


# Less than this is rounding, as a share of the time of the GPU that ends last.
_DUST = 1e-9


def arranged(groups: Sequence[FleetGroup], problem: Problem) -> Placement:
    """Arrange `groups` in the best plan that takes little time to find."""
    best = roughly_arranged(groups, problem)
    if problem.objective.order_matters:
        return best
    return min(best, levelled(best, problem), key=problem.rank)


def roughly_arranged(groups: Sequence[FleetGroup], problem: Problem) -> Placement:
    """Deal `groups` out in a few orders, and return the best plan: faster than `arranged`."""

    def due_s(group: FleetGroup) -> float:
        return min(problem.deadlines_s[kind] or inf for kind in group.members)

    def shortest_alone_s(group: FleetGroup) -> float:
        return min(problem.alone_s[kind] for kind in group.members)

    orders = [sorted(groups, key=lambda each: -each.runs_s)]
    if problem.objective.order_matters:
        orders.append(sorted(groups, key=lambda each: each.runs_s / len(each.members)))
        orders.append(sorted(groups, key=shortest_alone_s))
        if problem.objective.uses_deadlines:
            orders.append(sorted(groups, key=lambda each: (due_s(each), each.runs_s)))
    return min((dealt(order, problem.gpus) for order in orders), key=problem.rank)


def replaced(
    plan: Sequence[PlacedGroup], old: Sequence[FleetGroup], new: Sequence[FleetGroup], gpus: int
) -> Placement | None:
    """Replace the `old` groups of `plan` by `new` ones, longest for longest.

    Groups in excess go to the GPU that has least to do. None where `plan` lacks an old group.
    """
    left, places = list(plan), []
    for group in sorted(old, key=lambda each: -each.runs_s):
        place = next((each for each in left if each.group is group), None)
        if place is None:
            return None
        left.remove(place)
        places.append(place)
    coming = sorted(new, key=lambda each: -each.runs_s)
    left += [PlacedGroup(group, each.gpu, each.start_s)
             for group, each in zip(coming, places, strict=False)]  # fmt: skip
    queues = queues_of(left, gpus)
    for group in coming[len(places) :]:
        min(queues, key=lambda queue: sum(each.runs_s for each in queue)).append(group)
    return queued(queues)


def levelled(plan: Sequence[PlacedGroup], problem: Problem) -> Placement:
    """Move or swap groups of `plan` from the GPU that ends last, while that helps."""
    groups = [each.group for each in plan]
    runs_s = np.array([each.runs_s for each in groups])
    where = np.array([each.gpu for each in plan])
    while _less_long(runs_s, where, problem.gpus):
        pass
    longest_first = np.argsort(-runs_s, kind="stable")
    return queued([
        [groups[at] for at in longest_first if where[at] == gpu] for gpu in range(problem.gpus)
    ])  # fmt: skip


def _less_long(runs_s: Floats, where: Indices, gpus: int) -> bool:
    """Improve `where` by the move or swap that helps the longest GPU most; whether one does."""
    takes_s = np.bincount(where, weights=runs_s, minlength=gpus)
    longest = int(takes_s.argmax())
    own, others = np.flatnonzero(where == longest), np.flatnonzero(where != longest)
    targets = np.concatenate([where[others], np.delete(np.arange(gpus), longest)])
    comes_s = np.concatenate([runs_s[others], np.zeros(gpus - 1)])
    if not targets.size:
        return False
    less_s = runs_s[own][:, None] - comes_s
    ends_s = np.maximum(takes_s[longest] - less_s, takes_s[targets] + less_s)
    leaves, comes = np.unravel_index(ends_s.argmin(), ends_s.shape)
    if ends_s[leaves, comes] >= takes_s[longest] * (1 - _DUST):
        return False
    where[own[leaves]] = targets[comes]
    if comes < len(others):
        where[others[comes]] = longest
    return True


def soonest_s(takes_s: Sequence[float], places: int) -> float:
    """Compute the least sum of the ends of jobs, one at a time on each place: shortest first."""
    free_s = [0.0] * places
    ends_s = 0.0
    for each_s in sorted(takes_s):
        ends_s += heapreplace(free_s, free_s[0] + each_s) + each_s
    return ends_s


# CP-SAT takes integers: an upper bound of the end of every job, in units of time, and the parts of
# the joules of an idle GPU in one such unit. All are rounded down, to bound the cost from below.
_LATEST, _IDLE_PARTS, _LEAST_IDLE_W = 2**16, 1_000, 1.0


class _Piece(NamedTuple):
    """A group that a plan may contain; `start` is 0 where it does not."""

    group: FleetGroup
    used: Any
    start: Any


class PackingModel:
    """A CP-SAT model of plans of `groups` for `problem`.

    Every group is an optional interval. If at most as many intervals overlap as there are equal
    GPUs, they can always be dealt out to these, so the model needs no GPU numbers. It has no pauses
    between groups: setting up a GPU takes time, and no plan costs less for it.
    """

    def __init__(self, groups: Sequence[FleetGroup], problem: Problem) -> None:
        from ortools.sat.python import cp_model

        self.model, self._problem = cp_model.CpModel(), problem
        # Seconds of a unit of time, such that `_LATEST` bounds each plan without idle gaps.
        kinds = enumerate(problem.counts)
        latest_s = sum(n * max(each.runs_s for each in groups if kind in each.members)
                       for kind, n in kinds)  # fmt: skip
        self._unit_s = latest_s / _LATEST
        self._idle_w = max(_LEAST_IDLE_W, problem.idle_power_w or 0.0)
        self._part_j = self._idle_w * self._unit_s / _IDLE_PARTS  # joules of a unit of `_joules`
        self._pieces = [piece for group in groups for piece in self._copies(group)]
        for kind, count in enumerate(problem.counts):
            runs = [piece.group.members.count(kind) * piece.used for piece in self._pieces
                    if kind in piece.group.members]  # fmt: skip
            self.model.add(sum(runs) == count)
        interval = self.model.new_optional_fixed_size_interval_var
        intervals = [interval(start, self._units(group.runs_s), used, "")
                     for group, used, start in self._pieces]  # fmt: skip
        self.model.add_cumulative(intervals, [1] * len(intervals), problem.gpus)
        self.cost_of: Callable[[float], float]  # cost of a plan, from a value of what is minimised
        unit_s, jobs, late = self._unit_s, sum(problem.counts), _LATEST + 1
        match problem.objective.name:
            case "mean-completion":
                minimised = sum(
                    len(group.members) * start + sum(map(self._units, group.ends_s)) * used
                    for group, used, start in self._pieces
                )
                self.cost_of = lambda value: value * unit_s / jobs
            case "deadlines":
                minimised = late * self._late_jobs() + self._end()
                self.cost_of = lambda value: value // late
            case "energy":
                minimised = self._joules()
                self.cost_of = lambda value: value * self._part_j
            case _:
                minimised = self._end()
                self.cost_of = lambda value: value * unit_s
        self.model.minimize(minimised)

    def hint(self, plan: Sequence[PlacedGroup]) -> None:
        """Let the solver start from `plan`."""
        left = list(plan)
        for group, used, start in self._pieces:
            placed = next((each for each in left if each.group is group), None)
            if placed is not None:
                left.remove(placed)
            self.model.add_hint(used, placed is not None)
            self.model.add_hint(start, 0 if placed is None else self._units(placed.start_s))

    def taken(self, value: Callable[[Any], int]) -> list[FleetGroup]:
        """Return the groups of the solver's plan, in the order of their starts."""
        pieces = [piece for piece in self._pieces if value(piece.used)]
        return [piece.group for piece in sorted(pieces, key=lambda each: value(each.start))]

    def _units(self, seconds: float) -> int:
        return floor(seconds / self._unit_s)

    def _copies(self, group: FleetGroup) -> list[_Piece]:
        """`group` as often as its jobs allow; each copy starts after the one before."""
        counts, pieces = self._problem.counts, []
        needed = Counter(group.members).items()
        for _ in range(min(counts[kind] // count for kind, count in needed)):
            used = self.model.new_bool_var("")
            start = self.model.new_int_var(0, _LATEST, "")
            self.model.add(start <= _LATEST * used)
            pieces.append(_Piece(group, used, start))
        for one, other in pairwise(pieces):
            self.model.add_implication(other.used, one.used)
            self.model.add(one.start <= other.start).only_enforce_if(other.used)
        return pieces

    def _end(self) -> Any:
        """End of the last job."""
        end = self.model.new_int_var(0, _LATEST, "")
        runs = []
        for group, used, start in self._pieces:
            takes = self._units(group.runs_s)
            self.model.add(start + takes * used <= end)
            runs.append(takes * used)
        self.model.add(sum(runs) <= self._problem.gpus * end)  # follows; the solver sees it late
        return end

    def _late_jobs(self) -> Any:
        """Number of jobs that miss their deadlines."""
        late = []
        for group, used, start in self._pieces:
            for kind, end_s in zip(group.members, group.ends_s, strict=True):
                deadline_s = self._problem.deadlines_s[kind]
                if deadline_s is not None:
                    late.append(missed := self.model.new_bool_var(""))
                    due = min(_LATEST, self._units(deadline_s) + 1)
                    ends = start + self._units(end_s) * used
                    self.model.add(ends <= due + _LATEST * missed)
        return sum(late)

    def _joules(self) -> Any:
        """Energy of all GPUs until the last job ends, in units of `_part_j`."""
        beyond_idle = [
            floor(((group.energy_j or 0.0) - self._idle_w * group.runs_s) / self._part_j) * used
            for group, used, _ in self._pieces
        ]
        return sum(beyond_idle) + _IDLE_PARTS * self._problem.gpus * self._end()


# With more than one worker the plan found would depend on the number of cores.
_WORKERS, _SEED = 1, 1
# Limits of a search for a plan, and for a cover of all jobs, in CP-SAT's deterministic time, which
# does not depend on the machine: about three seconds, and a quarter of a second.
EFFORT, _COVER_EFFORT = 1.0, 0.25


def packed(
    groups: Sequence[FleetGroup], problem: Problem, limit_s: float, hint: Sequence[PlacedGroup]
) -> tuple[Placement, float, bool]:
    """Search the best plan of `groups` that runs each job once, from the plan `hint`.

    A plan may take a group as often as there are jobs for it. The second value is a lower bound of
    the cost of all plans; the third one whether the search ended before its time was up: then the
    plan costs as much as the bound, up to rounding.
    """
    from ortools.sat.python import cp_model

    began_s = monotonic()
    best = min([tuple(hint), *quick_plans(groups, problem, limit_s)], key=problem.rank)
    search = PackingModel(groups, problem)
    search.hint(best)
    solver = _solver(max(0.0, began_s + limit_s - monotonic()), EFFORT)
    status = solver.solve(search.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        plan = dealt(search.taken(solver.value), problem.gpus)
        best = min(plan, best, key=problem.rank)
    bound = min(problem.cost(best), max(0.0, search.cost_of(solver.best_objective_bound)))
    return best, bound, status == cp_model.OPTIMAL


def _solver(limit_s: float, effort: float) -> Any:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.max_deterministic_time = effort
    solver.parameters.num_workers = _WORKERS
    solver.parameters.catch_sigint_signal = False  # or the first Ctrl-C would only end this search
    solver.parameters.random_seed = _SEED
    return solver


# Weights are integer multiples of the largest over this; rounded down, to bound from below.
_PARTS = 10**6
# Shares of a GPU's jobs that wait for a group, with which plans are looked for.
_WAITING = (0.25, 0.5, 1.0)


def cover(
    groups: Sequence[FleetGroup], weights: Sequence[float], problem: Problem, limit_s: float
) -> tuple[list[FleetGroup], float] | None:
    """Choose groups of little weight that make up all jobs, and bound the weight from below.

    Each of `groups`, with its weight in `weights`, may be taken as often as there are jobs for it.
    None where time was too short.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    most = max(problem.counts)
    taken = [model.new_int_var(0, most, "") for _ in groups]
    for kind, count in enumerate(problem.counts):
        model.add(
            sum(each.members.count(kind) * n for each, n in zip(groups, taken, strict=True)
                if kind in each.members) == count
        )  # fmt: skip
    part = max(map(abs, weights)) / _PARTS or 1.0
    model.minimize(sum(floor(w / part) * n for w, n in zip(weights, taken, strict=True)))
    solver = _solver(limit_s, _COVER_EFFORT)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    chosen = [each for each, n in zip(groups, taken, strict=True) for _ in range(solver.value(n))]
    return chosen, part * solver.best_objective_bound


def quick_plans(
    groups: Sequence[FleetGroup], problem: Problem, limit_s: float
) -> Iterator[Placement]:
    """Yield promising plans, of groups of little weight."""
    for share in _WAITING if problem.objective.order_matters else (0.0,):
        weights = [problem.weight(each, share) for each in groups]
        if covered := cover(groups, weights, problem, limit_s):
            yield arranged(covered[0], problem)


def cover_bound(groups: Sequence[FleetGroup], problem: Problem, limit_s: float) -> float:
    """Bound from below the cost of plans of `groups` by the lightest covers; 0: not known."""
    match problem.objective.name:
        case "mean-completion":
            return _mean_completion_bound_s(groups, problem, limit_s)
        case "deadlines":
            return 0.0
        case "energy":
            covered = cover(groups, [each.energy_j or 0.0 for each in groups], problem, limit_s)
            return max(0.0, covered[1]) if covered else 0.0
        case _:
            covered = cover(groups, [each.runs_s for each in groups], problem, limit_s)
            return max(0.0, covered[1]) / problem.gpus if covered else 0.0


def _mean_completion_bound_s(
    groups: Sequence[FleetGroup], problem: Problem, limit_s: float
) -> float:
    """Lower bound of the mean end of a job.

    Each job is given a share of the time that its group holds a GPU, equal in all groups, such that
    the shares of no group exceed its time. Jobs in later groups wait for the shares of those
    before. Two jobs on one GPU wait for at least the smaller share, unless they are in one group.
    Shortest first makes the sum of these waits least.
    """
    from scipy.optimize import linprog

    counts = problem.counts
    members = np.array([[each.members.count(kind) for kind in range(len(counts))]
                        for each in groups])  # fmt: skip
    takes_s = np.array([each.runs_s for each in groups])
    solution = linprog(-np.array(counts), A_ub=members, b_ub=takes_s, bounds=(0, None))
    if not solution.success:
        return 0.0
    shares_s = [float(each) for each in solution.x]
    weights = []
    for group in groups:
        ordered = sorted(shares_s[kind] for kind in group.members)
        within_s = sum(share * (len(ordered) - 1 - at) for at, share in enumerate(ordered))
        weights.append(sum(group.ends_s) - within_s)
    covered = cover(groups, weights, problem, limit_s)
    if covered is None:
        return 0.0
    every_s = problem.of_every_job(shares_s)
    waits_s = soonest_s(every_s, problem.gpus) - sum(every_s)
    return (waits_s + covered[1]) / sum(counts)
