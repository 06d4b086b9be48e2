"""The preemptive policies, which share GPUs over time: who runs is decided again in each round.

* ``max-min``: jobs get equal GPU time from their arrival on; one that takes fewer GPUs than its
  share leaves the rest to the others. The job that is furthest behind its share runs first.
* ``finish-time``: the job runs first whose completion, if it ran on from now on, would be worst
  against that with an equal part of the cluster for each active job, 1/n of it.
* ``least-attained``: the job that has had least GPU time runs first.

GPU time is counted by the work that is done in it, in seconds of the job alone. Jobs with equal
claims run in the order of their arrival. A place that becomes free within a round is given at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from advisor.prediction.trace import Floats
from advisor.simulation import RoundPolicy
from advisor.simulation.events import JobStart, Loop, PlacedJob, PlacedJobs, Task
from advisor.simulation.queues import GpuCapacity
from advisor.simulation.turns import Indices


def even_shares(widths: Floats, gpus: float) -> Floats:
    """Divide `gpus` equally among jobs, none of which can use more than its width."""
    ordered = np.sort(widths)
    rest = gpus - np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    levels = rest / np.arange(len(ordered), 0, -1)
    capped = np.flatnonzero(levels <= ordered)
    return np.minimum(widths, levels[capped[0]]) if len(capped) else widths


class InRounds:
    """A queue that gives all places again at the end of each round, by the claims of a policy.

    Attributes:
        round_s: Length of a round.
        lost_steps: Steps that each job does again when it was stopped and starts again.
        lost_cores_s: Seconds that starting again takes of all cores of its host.
    """

    def __init__(
        self,
        policy: RoundPolicy,
        room: GpuCapacity,
        tasks: Sequence[Task],
        alone_s: Sequence[float],
        round_s: float,
        lost_s: float,
        lost_cores_s: float = 0.0,
    ) -> None:
        self._policy, self._room, self.round_s = policy, room, round_s
        self.lost_cores_s = lost_cores_s
        self._gpus = sum(map(len, room.hosts))
        self._work, self._alone_s = [task.work_steps for task in tasks], np.array(alone_s)
        self._arrival_s = np.array([task.arrival_s for task in tasks])
        self.lost_steps = (np.array(self._work) / self._alone_s * lost_s).tolist()
        self._widths = np.array([room.width(job) for job in range(len(tasks))], dtype=float)
        self._done = np.zeros(len(tasks))  # share of each job's work
        self._owed = np.zeros(len(tasks))  # by the policy's shares, in seconds
        self._waiting: dict[int, None] = {}  # in the order in which they may start
        self._active = np.zeros(0, dtype=np.intp)  # by arrival, at the last end of a round
        self._came: list[int] = []  # since then
        self._shares = np.zeros(0)  # of the active jobs
        self._planned: list[JobStart] = []
        self._last_s = 0.0

    def add(self, job: int) -> None:
        self._waiting[job] = None
        self._came.append(job)

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if self._planned:
            planned = self._planned.pop()
            del self._waiting[planned.job]
            return planned
        if not self._waiting or min(map(len, gpus)) == self._room.most:
            return None
        for job in self._waiting:
            if start := self._room.start(job, gpus):
                del self._waiting[job]
                return start
        return None

    def stops(self, loop: Loop) -> Iterable[tuple[int, int]]:
        """Give all places again; a job that runs and still has a claim stays in its place."""
        running = {
            seat.job: at
            for at, seats in enumerate(loop.seats)
            if not loop.gpus[at].follows
            for seat in seats
        }
        for job, at in running.items():
            self._done[job] = 1 - loop.left_steps(job, at) / self._work[job]
        self._count_shares(running, loop.now_s)
        if not self._waiting:
            return []
        claims = self._claims(self._active, loop.now_s)
        waits = np.fromiter((job in self._waiting for job in self._active.tolist()), dtype=bool)
        order = self._active[np.lexsort((waits, claims))].tolist()
        stopped = self._place(self._chosen(order), running, loop)
        waiting = self._waiting.keys() | stopped
        self._waiting = {job: None for job in order if job in waiting}
        return [(job, running[job]) for job in stopped]

    def _count_shares(self, running: Collection[int], now_s: float) -> None:
        """Add the shares of the round that ends, and divide the GPUs for the next one."""
        self._owed[self._active] += self._shares * (now_s - self._last_s)
        last_s, self._last_s = self._last_s, now_s
        if not self._came and len(running) + len(self._waiting) == len(self._active):
            return  # the same jobs as before
        active = [*self._active.tolist(), *self._came]
        self._active = np.array(
            [job for job in active if job in running or job in self._waiting], dtype=np.intp
        )
        self._came.clear()
        widths = self._widths[self._active]
        if self._policy == "max-min":
            self._shares = even_shares(widths, self._gpus)
        else:
            self._shares = np.minimum(1.0, self._gpus / (len(widths) * widths))
        came_s = np.maximum(self._arrival_s[self._active], last_s)
        new = self._arrival_s[self._active] > last_s
        self._owed[self._active] += np.where(new, self._shares * (now_s - came_s), 0.0)

    def _claims(self, active: Indices, now_s: float) -> Floats:
        """The claim of each active job; the lowest runs first.

        Claims in seconds are rounded to rounds, so that no job is stopped for less.
        """
        alone_s, done = self._alone_s[active], self._done[active]
        if self._policy == "finish-time":
            waited_s, owed_s = now_s - self._arrival_s[active], self._owed[active]
            fair_s = waited_s + (alone_s - owed_s) / self._shares
            return np.asarray(-(waited_s + alone_s * (1 - done)) / np.maximum(fair_s, alone_s))
        seconds = self._widths[active] * alone_s * done
        if self._policy == "max-min":
            seconds = seconds - self._owed[active]
        return np.asarray(np.floor(seconds / self.round_s + 0.5))

    def _chosen(self, order: Sequence[int]) -> list[int]:
        """The first jobs of `order` for which there are places enough, if all fit."""
        free, chosen = self._gpus * self._room.most, list[int]()
        for job in order:
            width = self._room.width(job)
            taken = 1 if width == 1 else width * self._room.most
            if taken <= free:
                chosen.append(job)
                free -= taken
                if not free:
                    break
        return chosen

    def _place(
        self, chosen: Sequence[int], running: Mapping[int, int], loop: Loop
    ) -> dict[int, None]:
        """Plan the starts of the `chosen` jobs, and return those that run and stop.

        A job displaces those with smaller claims if it fits nowhere else.
        """
        ranks = {job: rank for rank, job in enumerate(chosen)}
        stopped = {job: None for job in running if job not in ranks}
        planned, gpus = dict[int, JobStart](), list(loop.seats)

        def leave(job: int, at: int, others: Iterable[int]) -> None:
            for one in (at, *others):
                own = gpus[one]
                gpus[one] = (
                    () if len(own) == 1 else tuple([seat for seat in own if seat.job != job])
                )

        for job in stopped:
            leave(job, running[job], loop.gpus[running[job]].others)
        for rank, job in enumerate(chosen):
            if job in running and job not in stopped:
                continue
            start = self._room.start(job, gpus)
            if start is None:
                before = [tuple([seat for seat in own if ranks[seat.job] < rank]) for own in gpus]
                start = self._room.start(job, before)
                if start is None:
                    continue
                for seat in [
                    seat
                    for at in (start.gpu, *start.others)
                    for seat in gpus[at]
                    if ranks[seat.job] > rank
                ]:
                    if seat.job in planned:
                        other = planned.pop(seat.job)
                        leave(seat.job, other.gpu, other.others)
                    else:
                        stopped[seat.job] = None
                        leave(seat.job, at := running[seat.job], loop.gpus[at].others)
            planned[job] = start
            for at in (start.gpu, *start.others):
                seat = PlacedJob(job, start.place)
                gpus[at] = tuple(sorted((*gpus[at], seat))) if gpus[at] else (seat,)
        self._planned = list(planned.values())[::-1]
        return stopped


def fair_ends_s(
    arrivals_s: Sequence[float],
    ends_s: Sequence[float],
    alone_s: Sequence[float],
    widths: Sequence[int],
    gpus: int,
) -> Floats:
    """Return when each job would end with an equal part of `gpus` for each active job.

    With n jobs between arrival and end, a job that takes w GPUs runs at min(1, gpus / (n w)) of its
    speed alone.
    """
    came_s = np.array(arrivals_s)
    events = np.concatenate([came_s, ends_s])
    order = np.argsort(events, kind="stable")
    times_s = events[order]
    active = np.maximum(1, np.cumsum(np.where(order < len(came_s), 1, -1)))
    fair_s = np.zeros(len(came_s))
    for width in set(widths):
        own = np.flatnonzero(np.array(widths) == width)
        rates = np.minimum(1.0, gpus / (active[:-1] * width))
        done_s = np.concatenate([[0.0], np.cumsum(np.diff(times_s) * rates)])
        target_s = np.interp(came_s[own], times_s, done_s) + np.array(alone_s)[own]
        later_s = np.maximum(0.0, target_s - done_s[-1]) / min(1.0, gpus / width)
        fair_s[own] = np.interp(target_s, done_s, times_s) + later_s
    return fair_s
