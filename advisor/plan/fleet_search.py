"""The search for a plan of many jobs on several GPUs: obvious plans, and queues made better.

The search is bounded by work and not by time, so a question always has the same answer:

1. Obvious plans: one job at a time, batches and first fit in several orders and sizes, and queues.
   The best of each way by estimates is predicted, and all that are nearly as good as the best.
   On GPUs with MIG also lines: each instance is a small GPU, whose jobs run one after another.
2. The best queues and batches are improved by small changes, thousands of which are estimated at
   once.
3. Of few jobs, every way to divide them among the GPUs is compared.

The best of all predicted plans is the answer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappush, heapreplace
from itertools import count
from math import ceil, inf
from random import Random

from advisor.plan import step
from advisor.plan.batch_search import BatchSearch
from advisor.plan.fleet_groups import (
    FleetGroup,
    GpuQueue,
    PlacedGroup,
    Placement,
    Problem,
    arranged,
)
from advisor.plan.group_pool import GroupPool
from advisor.plan.job_sets import Cut, Members
from advisor.plan.objectives import HANDICAPS
from advisor.plan.values import Way
from advisor.sharing.groups import most_at_once
from advisor.simulation.events import JobStart, PlacedJobs, Task, run

# Numbers of jobs in a batch, and at once in a queue; sums of busy shares of a GPU in first fit.
_SIZES, _AT_ONCE, _BUSY = (2, 3, 4, 6, 8), (2, 3, 4, 6), (1.2, 1.8, 2.5)
# Plans that are estimated to cost more than this times the best are not predicted.
_TOO_COSTLY = 1.05
# Up to so many jobs, two starts are improved; how often each is predicted, as predictions correct
# the estimates; and rounds of changes the first time: ever fewer, so that estimates stay right.
_FEW, _CORRECTED, _LEAST_ROUNDS, _ROUNDS_A_JOB = 64, 6, 17, 0.1
# Changes looked at in a round, at most and at least, with so many jobs in the longest queue as a
# round of most changes takes; and rounds without gain that end the search.
_LOOKED_AT, _LEAST_LOOKED_AT, _LONG, _STALE = 64, 16, 12, 6
# Shares of changes that are swaps, and that begin on any GPU and not on the one that ends last.
_SWAPS, _ANYWHERE = 0.4, 0.2
# Jobs by which the cut of a GPU is judged.
_JUDGED = 100
_SEED = 2

_OnGpu = tuple[int, GpuQueue]  # number of the GPU, and the queue that it runs
_Change = tuple[_OnGpu, ...]
_OF_BATCHES: tuple[Way, ...] = ("serial", "batches", "first-fit")


class FleetSearch:
    """Searches the plan of least cost for jobs on the GPUs of `problem`.

    Attributes:
        best: The best predicted plan of each way.
        cut_short: Whether more effort would compare more.
    """

    def __init__(self, problem: Problem, pools: Sequence[GroupPool], effort: float) -> None:
        self._problem, self._pools, self._draw = problem, pools, Random(_SEED)
        self._effort = effort
        self._batches = BatchSearch(problem, pools, Random(_SEED))
        wide = [GpuQueue((kind,), 1) for kind in problem.jobs if problem.widths[kind] > 1]
        some = len(wide) < len(problem.jobs)
        self._wide = self._batches.items(wide, predict=True) if some else []
        self._wide_first = arranged(self._wide, problem) if self._wide else ()
        self._cuts = [self._best_cut(pool) for pool in pools]
        self.best: dict[Way, Placement] = {}
        self.cut_short = False

    def run(self, exact: Iterable[Placement]) -> None:
        """Search, and compare with the `exact` plans of few jobs."""
        for plan in exact:
            self._offer("exact", plan)
        least: dict[Way, float] = {}
        estimates = []
        for way, queues in self._obvious():
            step()
            if plan := self._plan(way, queues):
                cost = self._problem.cost(plan)
                estimates.append((cost, way, queues, plan))
                least[way] = min(cost, least.get(way, inf))
        near = min(least.values()) * _TOO_COSTLY
        plans = [plan for *_, plan in estimates]
        for cost, way, queues, _ in estimates:
            shown = way != "mig" or len(self._problem.jobs) <= _FEW  # their forecasts take longest
            if cost <= near or (shown and cost <= least[way]):
                plans.append(self._plan(way, queues, predict=True))
                self._offer(way, plans[-1])
        self._improve_batches()
        self._improve([self._as_queues(plan) for plan in plans if plan])

    def _best_cut(self, pool: GroupPool) -> Cut | None:
        """The cut of a GPU on whose instances it would run jobs best; None: it has none.

        With very many jobs, a sample of them decides.
        """
        every = [kind for kind in self._problem.jobs if self._problem.widths[kind] == 1]
        line = tuple(every[:: 1 + len(every) // _JUDGED])
        groups = {
            cut: pool.lined(GpuQueue(line, len(cut.instances), cut))
            for cut in (pool.instances.cuts if line else ())
        }
        weights = {cut: self._problem.weight(each) for cut, each in groups.items() if each}
        return min(weights, key=weights.__getitem__, default=None)

    def _offer(self, way: Way, plan: Placement) -> None:
        """Keep `plan` if it is the best of its way; an empty plan was not possible."""
        rank, best = self._problem.rank, self.best.get(way)
        if plan and (best is None or rank(plan) < rank(best)):
            self.best[way] = plan

    def _obvious(self) -> Iterator[tuple[Way, list[GpuQueue]]]:
        """Plans that need no search: batches to arrange, or one queue to deal to all GPUs."""
        problem = self._problem
        alone_s, deadlines_s = problem.alone_s, problem.deadlines_s
        busy = [job.profile.busy_share or 1.0 for job in problem.kinds.jobs]
        yield "serial", [GpuQueue((kind,), 1) for kind in problem.jobs]
        longest = sorted(problem.jobs, key=lambda kind: -alone_s[kind])
        orders = [longest]
        if problem.objective.order_matters:
            orders.append(longest[::-1])
        if any(deadlines_s):
            orders.append(sorted(longest, key=lambda kind: deadlines_s[kind] or inf))
        busiest = sorted(problem.jobs, key=lambda kind: -busy[kind] * alone_s[kind])
        for order in [*orders, busiest]:
            for size in _SIZES:
                yield "batches", self._batches.first_fit(order, size, [1] * len(busy))
        for order in orders:
            for most_busy in _BUSY:
                yield "first-fit", self._batches.first_fit(order, most_busy, busy)
            line = tuple(kind for kind in order if problem.widths[kind] == 1)
            for at_once in _AT_ONCE if line else ():
                yield "queue", [GpuQueue(line, at_once)]
            if line and any(self._cuts):
                yield "mig", [GpuQueue(line, 1)]

    def _dealt(self, line: GpuQueue) -> list[GpuQueue]:
        """Deal jobs out to queues, each to the GPU with least work that may run it.

        The work of a job is its time alone, for its busy share of the GPU or its place in a queue.
        None is possible where no queue may take a job.
        """
        at_once = line.at_once
        pool_of = self._problem.pool_of
        work_s = [
            [
                self._problem.work_s(job) * max(job.profile.busy_share or 1.0, 1 / at_once)
                for job in pool.jobs
            ]
            for pool in self._pools
        ]
        queues, loads_s = [GpuQueue((), at_once)] * len(pool_of), [0.0] * len(pool_of)
        for kind in line.order:
            after_s = [load + work_s[at][kind] for load, at in zip(loads_s, pool_of, strict=True)]
            for gpu in sorted(range(len(queues)), key=after_s.__getitem__):
                longer = GpuQueue((*queues[gpu].order, kind), at_once)
                if self._pools[pool_of[gpu]].allows(longer):
                    queues[gpu], loads_s[gpu] = longer, after_s[gpu]
                    break
            else:
                return []
        return queues

    def _dealt_as_free(self, line: GpuQueue) -> list[GpuQueue]:
        """Deal jobs out in order, each to a GPU where a place is predicted to be free."""
        pools = [self._pools[number] for number in self._problem.pool_of]

        def pace(seats: PlacedJobs) -> list[float]:
            return pools[seats[0].place].speeds([line.order[seat.job] for seat in seats])

        def fits(job: int, gpu: int, seats: PlacedJobs) -> bool:
            together = sorted(line.order[each] for each in (job, *(seat.job for seat in seats)))
            return pools[gpu].allows(GpuQueue(tuple(together), line.at_once))

        jobs = [pools[0].jobs[kind] for kind in line.order]
        tasks = [Task(self._problem.work_s(job) / job.alone_step_s) for job in jobs]
        history = run(tasks, pace, _Line(len(tasks), line.at_once, fits), (len(pools),))
        gpu_of = dict(seat for stretch in history.stretches for seat in stretch.seats)
        queues = [GpuQueue((), line.at_once)] * len(pools)
        for job in sorted(gpu_of, key=lambda job: (history.starts_s[job], job)):
            before = queues[gpu_of[job]]
            queues[gpu_of[job]] = replace(before, order=(*before.order, line.order[job]))
        return queues

    def _dealt_to_instances(self, line: Members) -> list[GpuQueue]:
        """Deal jobs out in order, each to the instance where it ends soonest, first to idle GPUs.

        A GPU without a cut is one place. None is possible where a job fits nowhere.
        """
        queues = list[GpuQueue]()
        free_s: dict[tuple[int, str], list[tuple[float, int, int]]] = {}  # by pool and MIG profile
        for gpu, at in enumerate(self._problem.pool_of):
            cut = self._cuts[at]
            queues.append(GpuQueue((), len(cut.instances) if cut else 1, cut))
            for number, each in enumerate(cut.instances if cut else [None]):
                heap = free_s.setdefault((at, each.profile if each else ""), [])
                heappush(heap, (0.0, number, gpu))
        for kind in line:
            ends = [
                (heap[0][0] + own.takes_s, heap[0][1], place)
                for place, heap in free_s.items()
                if (own := self._pools[place[0]].instances.alone(kind, place[1])) is not None
            ]
            if not ends:
                return []
            end_s, number, place = min(ends)
            gpu = free_s[place][0][2]
            heapreplace(free_s[place], (end_s, number, gpu))
            queues[gpu] = replace(queues[gpu], order=(*queues[gpu].order, kind))
        return queues

    def _plan(self, way: Way, queues: Sequence[GpuQueue], *, predict: bool = False) -> Placement:
        """Deal out a queue, or arrange batches; empty where that is not possible.

        The jobs of a batch that no GPU holds run alone.
        """
        if way == "mig":
            return self._on_gpus(self._dealt_to_instances(queues[0].order), predict=predict)
        if way == "queue":
            deal = self._dealt_as_free if predict else self._dealt
            return self._on_gpus(deal(queues[0]), predict=predict)
        return arranged(self._batches.items(queues, predict=predict), self._problem)

    def _on_gpus(self, queues: Sequence[GpuQueue], *, predict: bool = False) -> Placement:
        """Run one of `queues` on each GPU; empty where that is not possible."""
        groups = self._groups(list(enumerate(queues)), predict=predict)
        pairs = zip(groups, queues, strict=True)
        possible = all(group or not queue.order for group, queue in pairs)
        return self._placed(groups) if queues and possible else ()

    def _placed(self, groups: Sequence[FleetGroup | None]) -> Placement:
        """Place each of `groups` on the GPU of its number, and jobs that take several GPUs.

        These start before all others or after them, whichever costs less.
        """
        if not self._wide:
            return _in_place(groups, {}, self._problem)
        first, alone = self._wide_first, _in_place(groups, {}, self._problem)
        before = {gpu: each for each in sorted(first, key=_start_s) for gpu in each.gpus}
        return min(
            (*first, *_in_place(groups, before, self._problem)),
            (*alone, *arranged(self._wide, self._problem, alone)),
            key=self._problem.rank,
        )

    def _groups(self, pairs: Sequence[_OnGpu], *, predict: bool = False) -> list[FleetGroup | None]:
        """Estimate or predict queues on their GPUs; None: empty, or not allowed."""
        groups: dict[_OnGpu, FleetGroup | None] = {}
        for at, pool in enumerate(self._pools):
            own = [each for each in pairs if self._problem.pool_of[each[0]] == at and each[1].order]
            queues = [queue for _, queue in own]
            answers = pool.predicted(queues) if predict else pool.estimated(queues)
            groups |= zip(own, answers, strict=True)
        return [groups.get(pair) for pair in pairs]

    def _as_queues(self, plan: Placement) -> list[GpuQueue]:
        """Queues that start the jobs of each GPU of `plan` in the order of its groups."""
        queues = [GpuQueue((), 1)] * len(self._problem.pool_of)
        single = (each for each in plan if each.group.gpus == 1)
        for placed in sorted(single, key=_start_s):
            (gpu,), members, sharing = placed.gpus, placed.group.members, placed.group.sharing
            cut = self._cuts[placed.group.pool] if sharing.instances else None
            at_once = len(cut.instances) if cut else most_at_once(sharing, len(members))
            order = (*queues[gpu].order, *members)
            queues[gpu] = GpuQueue(order, max(queues[gpu].at_once, at_once), cut)
        return queues

    def _improve(self, starts: Sequence[list[GpuQueue]]) -> None:
        """Improve queues by estimates, predict them, and so on: predictions correct estimates.

        More effort goes on where less would end, so its plan is never worse.
        """
        rank, jobs = self._problem.rank, len(self._problem.jobs)
        possible = [
            (self._rank_of_start(plan), queues)
            for queues in starts
            if (plan := self._on_gpus(queues))
        ]
        chosen = [start for _, start in sorted(possible, key=lambda pair: pair[0])]
        best = [
            (start, self._on_gpus(start, predict=True))
            for start in chosen[: 2 if jobs <= _FEW else 1]
        ]
        all_rounds = _LEAST_ROUNDS + _ROUNDS_A_JOB * jobs
        left = self._effort * len(best) * all_rounds * sum(1 / n for n in range(1, 1 + _CORRECTED))
        goes_on = [False] * len(best)
        for turn in count() if best else ():
            at, part = turn % len(best), 1 + turn // len(best) % _CORRECTED
            if left <= 0:
                break
            left -= (rounds := ceil(all_rounds / part))
            start, plan = best[at]
            better, goes_on[at] = self._improved(start, rounds)
            way: Way = "mig" if any(each.cut for each in better) else "queue"
            self._offer(way, now := self._on_gpus(better, predict=True))
            if now and (not plan or rank(now) < rank(plan)):
                best[at], goes_on[at] = (better, now), True
        self.cut_short = any(goes_on)

    def _improve_batches(self) -> None:
        """Improve the best batches, unless queues are much better or the jobs are too many.

        It takes the same work at any effort, so that what follows is the same, too.
        """
        rank, jobs = self._problem.rank, len(self._problem.jobs)
        least, way = min((rank(self.best[way]), way) for way in _OF_BATCHES if way in self.best)
        others = [rank(plan)[1] for plan in self.best.values()]
        if jobs > _FEW or least[1] > _TOO_COSTLY * min(others):
            return
        batches = [GpuQueue(e.group.members, len(e.group.members)) for e in self.best[way]]
        for part in range(1, 1 + _CORRECTED):
            rounds = ceil((_LEAST_ROUNDS + _ROUNDS_A_JOB * jobs) / part)
            batches = self._batches.improved(batches, rounds)
            plan = self._plan("batches", batches, predict=True)
            self._offer("batches" if way == "serial" else way, plan)
            if rank(plan) >= least:
                return
            least = rank(plan)

    def _rank_of_start(self, plan: Placement) -> tuple[float, float, float]:
        """The rank of `plan`, which has to lead by more if it takes MIG."""
        late, cost, last_s = self._problem.rank(plan)
        on_mig = any(each.group.sharing.instances for each in plan)
        return late, cost * (1 + HANDICAPS["mig"] * on_mig), last_s

    def _improved(self, queues: Sequence[GpuQueue], rounds: int) -> tuple[list[GpuQueue], bool]:
        """Return queues that cost less by estimates, and whether more rounds would go on."""
        now, groups, stale = list(queues), self._groups(list(enumerate(queues))), 0
        least = self._close_rank(groups)
        for _ in range(rounds):
            step()
            changes = list(dict.fromkeys(self._changes(now, groups)))
            outcomes = iter(self._groups([pair for change in changes for pair in change]))
            before, best = groups, _Change()
            for change in changes:
                new = list(before)
                for gpu, _ in change:
                    new[gpu] = next(outcomes)
                possible = all(new[gpu] or not queue.order for gpu, queue in change)
                if possible and (rank := self._close_rank(new)) < least:
                    least, groups, best = rank, new, change
            for gpu, queue in best:
                now[gpu] = queue
            stale = 0 if best else stale + 1
            if stale > _STALE:
                return now, False
        return now, True

    def _close_rank(self, groups: Sequence[FleetGroup | None]) -> tuple[float, ...]:
        return self._problem.close_rank(self._placed(groups))

    def _changes(
        self, queues: Sequence[GpuQueue], groups: Sequence[FleetGroup | None]
    ) -> Iterator[_Change]:
        """Changes of the GPU that ends last, or of any: move, swap, another order or width."""
        draw = self._draw
        queued = [each for each in self._placed(groups) if each.group.gpus == 1]
        (last,) = max(queued, key=lambda each: each.end_s).gpus
        for at_once in (1, *_AT_ONCE):
            yield ((last, replace(queues[last], at_once=at_once, cut=None)),)
        cut = self._cuts[self._problem.pool_of[last]]
        if cut and any(each.cut for each in queues):
            yield ((last, replace(queues[last], at_once=len(cut.instances), cut=cut)),)
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


@dataclass(slots=True)
class _Line:
    """Jobs in order, the next to the GPU that runs fewest of those where it fits; none overtakes.

    The place of a job is the number of its GPU.
    """

    jobs: int
    at_once: int
    fits: Callable[[int, int, PlacedJobs], bool]
    _next: int = 0

    def add(self, job: int) -> None:
        """All jobs wait from the start."""

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        free = [at for at, seats in enumerate(gpus) if len(seats) < self.at_once]
        for at in sorted(free, key=lambda at: len(gpus[at])):
            if self._next < self.jobs and self.fits(self._next, at, gpus[at]):
                self._next += 1
                return JobStart(self._next - 1, at, at)
        return None


def _start_s(placed: PlacedGroup) -> float:
    return placed.start_s


def _in_place(
    groups: Sequence[FleetGroup | None], before: Mapping[int, PlacedGroup], problem: Problem
) -> Placement:
    """Place each of `groups` on the GPU of its number, after what runs there `before`."""
    plan = []
    for gpu, group in enumerate(groups):
        if group:
            first = before.get(gpu)
            pause_s = problem.pause_s(first.group, group) if first else 0.0
            plan.append(PlacedGroup(group, (gpu,), (first.end_s if first else 0.0) + pause_s))
    return tuple(plan)
