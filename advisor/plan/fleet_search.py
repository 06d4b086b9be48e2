"""The search for a plan of many jobs on several GPUs: obvious plans, and queues made better.

The search is bounded by work and not by time, so a question always has the same answer:

1. Obvious plans: one job at a time, batches and first fit in several orders and sizes, and queues.
   The best of each way by estimates is predicted, and all that are nearly as good as the best.
2. The best queues are improved by small changes, thousands of which are estimated at once.

The best of all predicted plans is the answer.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from random import Random
from typing import Literal, get_args

from advisor.plan.fleet_exact import exact_plans
from advisor.plan.fleet_groups import MOST_TOGETHER, GpuQueue, GroupPool
from advisor.plan.job_sets import Kinds, Members
from advisor.plan.placement import FleetGroup, PlacedGroup, Placement, Problem, arranged, queues_of
from advisor.plan.values import Question
from advisor.simulation.events import JobStart, PlacedJobs, Task, run

# Numbers of jobs in a batch, and at once in a queue; sums of busy shares of a GPU in first fit.
_SIZES, _AT_ONCE, _BUSY = (2, 3, 4, 6, 8), (2, 3, 4, 6), (1.2, 1.8, 2.5)
# Plans that are estimated to cost more than this times the best are not predicted.
_TOO_COSTLY = 1.05
# Up to so many jobs, two starts are improved; how often each is predicted, as predictions correct
# the estimates; and rounds of changes each time.
_FEW, _CORRECTED, _LEAST_ROUNDS, _ROUNDS_A_JOB = 64, 8, 8, 0.05


_Deal = Callable[..., list[GpuQueue]]


Way = Literal["serial", "batches", "first-fit", "queue", "exact"]
WAYS: tuple[Way, ...] = get_args(Way)
"""How plans are made, the simplest first."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, and how it was made."""

    way: Way
    plan: Placement


class FleetSearch:
    """Searches the plan of least cost for jobs on the GPUs of `problem`.

    Attributes:
        cut_short: Whether more effort would compare more.
    """

    def __init__(self, kinds: Kinds, problem: Problem, pools: Sequence[GroupPool]) -> None:
        self._kinds, self._problem, self._pools = kinds, problem, pools
        self._jobs = problem.of_every_job(range(len(problem.counts)))
        self._best: dict[Way, Placement] = {}
        self._paces = [[_Paces(pool, predict) for pool in pools] for predict in (False, True)]
        self.cut_short = False

    def candidates(self, questions: Sequence[Question], effort: float) -> list[Candidate]:
        """Return the best plan of each way to plan, best first.

        `questions` are those of one GPU of each pool. `effort` multiplies the work that is usual
        for so many jobs.
        """
        for plan in exact_plans(self._problem, self._pools, questions):
            self._offer("exact", plan)
        self._offer("serial", self._grouped([(kind,) for kind in self._jobs], predict=True))
        batched = [(way, member_sets, self._grouped(member_sets))
                   for way, member_sets in self._greedy()]  # fmt: skip
        queued = [(deal, queues, self._placed(queues)) for deal, queues in self._queues()]
        cost = self._problem.cost
        most = self._most_costs([*((way, plan) for way, _, plan in batched),
                                 *(("queue", plan) for *_, plan in queued if plan)])  # fmt: skip
        for way, member_sets, plan in batched:
            if cost(plan) <= most[way]:
                self._offer(way, self._grouped(member_sets, predict=True))
        starts = [queues for _, queues, _ in queued]
        for deal, _, plan in queued:
            if plan and cost(plan) <= most["queue"]:
                starts.append(deal(predict=True))
                self._offer("queue", self._placed(starts[-1], predict=True))
        if queued:
            self._improve([*starts, *(self._queues_of(plan) for *_, plan in batched)], effort)
        best = [Candidate(way, plan) for way, plan in self._best.items()]
        return sorted(best, key=lambda each: self._problem.rank(each.plan))

    def _most_costs(self, plans: Sequence[tuple[Way, Placement]]) -> dict[Way, float]:
        """Costs up to which plans of each way are predicted: of its best, or near that of all."""
        least: dict[Way, float] = {}
        for way, plan in plans:
            least[way] = min(self._problem.cost(plan), least.get(way, inf))
        near = min(least.values(), default=inf) * _TOO_COSTLY
        return {way: max(cost, near) for way, cost in least.items()}

    def _offer(self, way: Way, plan: Placement) -> None:
        """Keep `plan` if it is the best of its way; an empty plan was not possible."""
        rank, best = self._problem.rank, self._best.get(way)
        if plan and (best is None or rank(plan) < rank(best)):
            self._best[way] = plan

    def _improve(self, starts: Sequence[list[GpuQueue]], effort: float) -> None:
        """Improve queues by estimates, predict them, and so on: predictions correct estimates."""
        improve = QueueImprover(self._problem, self._pools)
        rounds = int(effort * (_LEAST_ROUNDS + _ROUNDS_A_JOB * len(self._jobs)))
        possible = [(self._problem.rank(plan), queues) for queues in starts
                    if (plan := self._placed(queues))]  # fmt: skip
        few = len(self._jobs) <= _FEW
        for _, start in sorted(possible, key=lambda pair: pair[0])[: 2 if few else 1]:
            best, plan = start, self._placed(start, predict=True)
            for _ in range(_CORRECTED):
                better = improve(best, rounds)
                self._offer("queue", now := self._placed(better, predict=True))
                if now and (not plan or self._problem.rank(now) < self._problem.rank(plan)):
                    best, plan = better, now
        self.cut_short = improve.cut_short

    def _queues_of(self, plan: Placement) -> list[GpuQueue]:
        """Queues that start the jobs of each GPU of `plan` in the order of its groups."""
        return [
            GpuQueue(
                tuple(kind for group in queue for kind in group.members),
                max((len(group.members) for group in queue), default=1),
            )
            for queue in queues_of(plan, self._problem)
        ]

    def _grouped(self, member_sets: Sequence[Members], *, predict: bool = False) -> Placement:
        """Arrange batches of jobs; the jobs of those that no GPU holds run alone."""
        queues = [GpuQueue(members, len(members)) for members in member_sets]
        singles = [GpuQueue((kind,), 1) for kind in self._jobs]
        ways: dict[GpuQueue, list[FleetGroup]] = {each: [] for each in [*queues, *singles]}
        for pool in self._pools:
            wanted = list(ways)
            groups = pool.predicted(wanted) if predict else pool.estimated(wanted)
            for queue, group in zip(wanted, groups, strict=True):
                ways[queue] += [] if group is None else [group]
        items = []
        for queue in queues:
            alone = [ways[GpuQueue((kind,), 1)] for kind in queue.order]
            items += [ways[queue]] if ways[queue] else alone
        return arranged(items, self._problem)

    def _placed(self, queues: Sequence[GpuQueue], *, predict: bool = False) -> Placement:
        """Place a queue on each GPU; empty where one does not fit."""
        plan = []
        for gpu, queue in enumerate(queues):
            pool = self._pools[self._problem.pool_of[gpu]]
            if queue.order:
                (group,) = pool.predicted([queue]) if predict else pool.estimated([queue])
                if group is None:
                    return ()
                plan.append(PlacedGroup(group, (gpu,), 0.0))
        return tuple(plan)

    def _orders(self) -> list[list[int]]:
        """Orders of the jobs: longest first; shortest first and earliest due where that counts."""
        alone_s, deadlines_s = self._problem.alone_s, self._problem.deadlines_s
        longest_first = sorted(self._jobs, key=lambda kind: -alone_s[kind])
        orders = [longest_first]
        if self._problem.objective.order_matters:
            orders.append(longest_first[::-1])
        if any(deadlines_s):
            orders.append(sorted(longest_first, key=lambda kind: deadlines_s[kind] or inf))
        return orders

    def _greedy(self) -> Iterator[tuple[Way, list[Members]]]:
        """Batches of several sizes, and first fit, each in several orders."""
        alone_s = self._problem.alone_s
        busy = [job.profile.busy_share or 1.0 for job in self._kinds.jobs]
        busiest_first = sorted(self._jobs, key=lambda kind: -busy[kind] * alone_s[kind])

        def may(members: Members) -> bool:
            queue = GpuQueue(members, len(members))
            return any(pool.allows(queue) for pool in self._pools)

        for order in [*self._orders(), busiest_first]:
            for size in _SIZES:
                yield "batches", first_fit(order, size, [1] * len(busy), may)
        for order in self._orders():
            for most_busy in _BUSY:
                yield "first-fit", first_fit(order, most_busy, busy, may)

    def _queues(self) -> Iterator[tuple[_Deal, list[GpuQueue]]]:
        """Queues of several widths in several orders, dealt to GPUs as these become free."""
        if max(self._problem.widths) > 1 or not self._problem.objective.in_seconds:
            return
        for order in self._orders():
            for at_once in _AT_ONCE:
                deal = partial(self._dealt, order, at_once)
                yield deal, deal()

    def _dealt(
        self, order: Sequence[int], at_once: int, *, predict: bool = False
    ) -> list[GpuQueue]:
        """Deal jobs out in order, each to the GPU that runs fewest once a place is free."""
        paces = self._paces[predict]

        def fits(gpu: int, seats: PlacedJobs, job: int) -> bool:
            members = tuple(sorted([order[job], *(order[seat.job] for seat in seats)]))
            return self._pools[self._problem.pool_of[gpu]].allows(GpuQueue(members, at_once))

        def pace(seats: PlacedJobs) -> list[float]:
            own = paces[self._problem.pool_of[seats[0].place]]
            return own([order[seat.job] for seat in seats])

        tasks = [Task(self._pools[0].jobs[kind].work_steps or 1.0) for kind in order]
        history = run(tasks, pace, _Line(len(order), at_once, fits), self._problem.gpus)
        starts: list[list[int]] = [[] for _ in self._problem.pool_of]
        gpu_of = {seat.job: each.gpu for each in history.stretches for seat in each.seats}
        for job in sorted(gpu_of, key=lambda job: (history.starts_s[job], job)):
            starts[gpu_of[job]].append(order[job])
        return [GpuQueue(tuple(each), at_once) for each in starts]


def first_fit(
    order: Sequence[int], most: float, shares: Sequence[float], may: Callable[[Members], bool]
) -> list[Members]:
    """Let each job join the first group whose shares stay below `most` and that `may` take it."""
    groups: list[Members] = []
    loads: list[float] = []
    open_from = 0
    least = min(shares)
    for kind in order:
        for at in range(open_from, len(groups)):
            if len(groups[at]) < MOST_TOGETHER and loads[at] + shares[kind] <= most:
                larger = tuple(sorted((*groups[at], kind)))
                if may(larger):
                    groups[at], loads[at] = larger, loads[at] + shares[kind]
                    break
        else:
            groups.append((kind,))
            loads.append(shares[kind])
        while open_from < len(groups) and loads[open_from] + least > most:
            open_from += 1
    return groups


@dataclass(slots=True)
class _Line:
    """Jobs in order; the next goes to the GPU that runs fewest, of those where it fits.

    The place of a job is the number of its GPU.
    """

    jobs: int
    at_once: int
    fits: Callable[[int, PlacedJobs, int], bool]
    _next: int = 0

    def add(self, job: int) -> None:
        """All jobs wait from the start."""

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        job = self._next
        if job == self.jobs:
            return None
        free = [at for at, seats in enumerate(gpus) if len(seats) < self.at_once]
        for at in sorted(free, key=lambda at: len(gpus[at])):
            if self.fits(at, gpus[at], job):
                self._next += 1
                return JobStart(job, at, at)
        return None


class _Paces:
    """Steps a second of sets of jobs under MPS on one pool, each estimated or predicted once."""

    def __init__(self, pool: GroupPool, predict: bool) -> None:
        self._pool, self._predict = pool, predict
        self._paced_s: dict[Members, dict[int, float]] = {}

    def __call__(self, kinds: Sequence[int]) -> list[float]:
        members = tuple(sorted(kinds))
        if members not in self._paced_s:
            steps_s = self._pool.paced_s(members, predict=self._predict)
            self._paced_s[members] = dict(zip(members, steps_s, strict=True))
        return [1 / self._paced_s[members][kind] for kind in kinds]


# Changes looked at in a round, at most and at least, with so many jobs in the longest queue as a
# round of most changes takes; and rounds without gain that end the search.
_LOOKED_AT, _LEAST_LOOKED_AT, _LONG, _STALE = 64, 16, 12, 6
# Shares of changes that are swaps, and that begin on any GPU and not on the one that ends last.
_SWAPS, _ANYWHERE = 0.6, 0.2
_SEED = 1

_Change = tuple[tuple[int, GpuQueue], ...]


class QueueImprover:
    """Improves a queue on each GPU by small changes, in a sequence that is always the same.

    Attributes:
        cut_short: Whether changes still helped when the rounds were over.
    """

    def __init__(self, problem: Problem, pools: Sequence[GroupPool]) -> None:
        self._problem, self._pools = problem, pools
        self._draw, self.cut_short = Random(_SEED), False

    def __call__(self, queues: Sequence[GpuQueue], rounds: int) -> list[GpuQueue]:
        """Return better queues than `queues`, where changes lower the cost."""
        now, draw, stale = list(queues), self._draw, 0
        groups = dict(enumerate(self._outcomes(list(enumerate(queues)))))
        rank = self._rank(groups)
        for _ in range(rounds):
            changes = list(dict.fromkeys(self._changes(now, groups, draw)))
            outcomes = iter(self._outcomes([pair for change in changes for pair in change]))
            best: tuple[_Change, dict[int, FleetGroup | None]] | None = None
            for change in changes:
                new = groups | {gpu: next(outcomes) for gpu, _ in change}
                possible = all(new[gpu] is not None or not queue.order for gpu, queue in change)
                if possible and (own := self._rank(new)) < rank:
                    rank, best = own, (change, new)
            if best is None:
                stale += 1
                if stale > _STALE:
                    break
                continue
            stale, groups = 0, best[1]
            for gpu, queue in best[0]:
                now[gpu] = queue
        else:
            self.cut_short = True
        return now

    def _outcomes(self, queues: Sequence[tuple[int, GpuQueue]]) -> list[FleetGroup | None]:
        """Estimate queues on their GPUs; None: empty, or not allowed."""
        groups: dict[tuple[int, GpuQueue], FleetGroup | None] = {}
        for at, pool in enumerate(self._pools):
            own = [
                pair for pair in queues if self._problem.pool_of[pair[0]] == at and pair[1].order
            ]
            groups |= zip(own, pool.estimated([queue for _, queue in own]), strict=True)
        return [groups.get(pair) for pair in queues]

    def _rank(self, groups: dict[int, FleetGroup | None]) -> tuple[float, ...]:
        """Late jobs and cost, and what decides between equal costs: the ends of all GPUs."""
        plan = [PlacedGroup(group, (gpu,), 0.0) for gpu, group in groups.items() if group]
        late, cost, _ = self._problem.rank(plan)
        return late, round(cost, 6), sum(each.end_s**2 for each in plan)

    def _changes(
        self, queues: Sequence[GpuQueue], groups: dict[int, FleetGroup | None], draw: Random
    ) -> Iterator[_Change]:
        """Changes of the GPU that ends last, or of any: move, swap, another order or width."""
        ends_s = {gpu: group.runs_s for gpu, group in groups.items() if group is not None}
        last = max(ends_s, key=ends_s.__getitem__)
        for at_once in (1, *_AT_ONCE):
            yield ((last, replace(queues[last], at_once=at_once)),)
        longest = max(len(queue.order) for queue in queues)
        for _ in range(min(_LOOKED_AT, max(_LEAST_LOOKED_AT, _LOOKED_AT * _LONG // longest))):
            anywhere = self._problem.objective.order_matters or draw.random() < _ANYWHERE
            one = draw.randrange(len(queues)) if anywhere else last
            other = draw.randrange(len(queues))
            own, its = list(queues[one].order), list(queues[other].order)
            if not own:
                continue
            job = own.pop(draw.randrange(len(own)))
            if other == one:
                own.insert(draw.randint(0, len(own)), job)
                yield ((one, replace(queues[one], order=tuple(own))),)
                continue
            if its and draw.random() < _SWAPS:
                own.insert(draw.randint(0, len(own)), its.pop(draw.randrange(len(its))))
            its.insert(draw.randint(0, len(its)), job)
            yield (
                (one, replace(queues[one], order=tuple(own))),
                (other, replace(queues[other], order=tuple(its))),
            )
