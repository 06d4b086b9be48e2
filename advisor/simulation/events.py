"""The event loop of jobs that share GPUs: at an end, the rest change pace and a waiting job starts.

Time jumps from one arrival or end to the next. Between two events no pace changes, so the result is
exact. How fast jobs run together is given by a `Pace`, which job starts next by a `JobQueue`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import pairwise
from math import fsum, inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.errors import NothingFits, counted
from advisor.prediction.prediction import LEVELS, Interval, all_known, around
from advisor.prediction.trace import Floats
from advisor.sharing import Group, Hybrid, Sharing
from advisor.sharing.groups import groups, sets_in_turn

# A job with at most this share of its work left has ended: the rest is rounding.
DONE = 1e-9


@dataclass(frozen=True, slots=True)
class Task:
    """Work of a job: `work_steps` steps, above 0, from `arrival_s` on."""

    work_steps: float
    arrival_s: float = 0.0


class PlacedJob(NamedTuple):
    """Numbers of a running job and of its place on its GPU."""

    job: int
    place: int


class JobStart(NamedTuple):
    """A job that starts now, with its GPU and place; and `others`, further GPUs that it takes."""

    job: int
    gpu: int
    place: int
    others: tuple[int, ...] = ()


PlacedJobs = tuple[PlacedJob, ...]
"""All that runs on a GPU, in the jobs' order."""

Pace = Callable[[PlacedJobs], Sequence[float]]
"""The jobs that run on a GPU -> steps a second of each, in that order."""


class JobQueue(Protocol):
    """Jobs that wait; decides which starts next, and where."""

    def add(self, job: int) -> None: ...

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        """Remove and return one job that can start now; None until a job arrives or ends."""
        ...


class Stretch(NamedTuple):
    """A stretch of time in which the same jobs run on one GPU.

    Attributes:
        speeds: Steps a second of each, shape (seats,).
        busy_gpus: GPUs that run jobs and share the host's cores, this one included.
    """

    gpu: int
    start_s: float
    end_s: float
    seats: PlacedJobs
    speeds: tuple[float, ...]
    busy_gpus: int = 1

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class History:
    """The result of a simulation.

    Attributes:
        stretches: Of all GPUs, in the order of their ends; times when a GPU has no job are left
            out.
        starts_s: When each job started, shape (jobs,).
        ends_s: When each job ended, shape (jobs,).
    """

    stretches: tuple[Stretch, ...]
    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]

    @property
    def makespan_s(self) -> float:
        """Seconds until the last job ends; 0 without jobs."""
        return max(self.ends_s, default=0.0)


@dataclass(slots=True)
class _Host:
    """The GPUs of one host that run jobs, and the number of them that the paces are for."""

    busy: set[int] = field(default_factory=set)
    paced_for: int = 1


@dataclass(slots=True)
class _Gpu:
    """State of one GPU: if no job comes, the next one ends `pause_s` after `since_s`.

    Attributes:
        others: The other GPUs that its job takes, which have its seats.
        follows: Whether it is one of these others, which have no end of their own.
    """

    host: _Host
    others: tuple[int, ...] = ()
    follows: bool = False
    speeds: tuple[float, ...] = ()
    since_s: float = 0.0
    pause_s: float = 0.0
    changes: int = 0  # an end foreseen before the last change is void
    # Speeds of the jobs that run, by the number of GPUs that share the host.
    by_busy: dict[int, tuple[float, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _LoopState:
    tasks: Sequence[Task]
    paces: Callable[[int], Pace]
    gpus: list[_Gpu]
    seats: list[PlacedJobs]
    hosts: list[_Host]
    now_s: float = 0.0
    left: dict[int, float] = field(default_factory=dict)
    ends: list[tuple[float, int, int]] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    starts_s: dict[int, float] = field(default_factory=dict)
    ends_s: dict[int, float] = field(default_factory=dict)

    def next_end_s(self) -> float:
        """Second in which the next job ends if none arrives; infinite if no job runs."""
        while self.ends and self.ends[0][2] != self.gpus[self.ends[0][1]].changes:
            heappop(self.ends)
        return self.ends[0][0] if self.ends else inf

    def end_due(self) -> set[int]:
        """End the jobs that are due, and return the GPUs that they leave."""
        left = set()
        while self.next_end_s() <= self.now_s:
            _, at, _ = heappop(self.ends)
            self.advance(at, self.gpus[at].pause_s)
            left.add(at)
        return left

    def advance(self, at: int, seconds: float) -> None:
        """Advance a GPU's jobs by `seconds`; jobs without work left have ended."""
        gpu, seats = self.gpus[at], self.seats[at]
        if seats:  # of no length where a job is shorter than the clock can tell
            busy = gpu.host.paced_for
            self.stretches.extend(
                Stretch(one, gpu.since_s, self.now_s, seats, gpu.speeds, busy)
                for one in (at, *gpu.others)
            )
        gpu.since_s = self.now_s
        ended = False
        for (job, _), speed in zip(seats, gpu.speeds, strict=True):
            left = self.left[job]
            # The same quotient predicted this end, so at least one job ends despite rounding.
            after = self.left[job] = left - speed * seconds
            if left / speed <= seconds or after <= DONE * self.tasks[job].work_steps:
                self.ends_s[job], ended = self.now_s, True
                del self.left[job]
        if ended:
            self.seat(at, tuple(seat for seat in seats if seat.job in self.left), gpu.others)

    def seat(self, at: int, seats: PlacedJobs, others: tuple[int, ...] = ()) -> None:
        """Let these jobs run on a GPU, and no others; a job that takes `others` runs there, too."""
        gpu = self.gpus[at]
        gpu.by_busy, gpu.others = {}, others if seats else ()
        for one in (at, *others):
            self.seats[one], self.gpus[one].follows = seats, bool(seats) and one != at
            (gpu.host.busy.add if seats else gpu.host.busy.discard)(one)

    def begin(self, queue: JobQueue) -> set[int]:
        """Let jobs start from `queue`, and return the GPUs that they start on."""
        joined = set()
        while start := queue.take(self.seats):
            job, at, place, others = start
            since_s = self.gpus[at].since_s
            if since_s < self.now_s:
                self.advance(at, self.now_s - since_s)
            self.left[job] = self.tasks[job].work_steps
            self.starts_s[job] = self.now_s
            self.seat(at, tuple(sorted((*self.seats[at], PlacedJob(job, place)))), others)
            joined.add(at)
        return joined

    def speeds(self, at: int, busy_gpus: int) -> tuple[float, ...]:
        """Steps a second of the jobs on a GPU while so many GPUs of its host run jobs."""
        by_busy = self.gpus[at].by_busy
        if busy_gpus not in by_busy:
            by_busy[busy_gpus] = tuple(self.paces(busy_gpus)(self.seats[at]))
        return by_busy[busy_gpus]

    def share_hosts(self) -> set[int]:
        """Change the paces where another number of GPUs runs jobs; return the GPUs that change."""
        changed = set()
        for host in self.hosts:
            busy = max(1, len(host.busy))
            if busy == host.paced_for:
                continue
            slowed = {at for at in host.busy if not self.gpus[at].follows
                      and self.speeds(at, busy) != self.gpus[at].speeds}  # fmt: skip
            for at in sorted(slowed):
                since_s = self.gpus[at].since_s
                if since_s < self.now_s:
                    self.advance(at, self.now_s - since_s)
            host.paced_for = busy
            changed |= slowed
        return changed

    def go_on(self, at: int) -> None:
        """Compute the next end on a GPU whose jobs have changed."""
        gpu = self.gpus[at]
        seats = () if gpu.follows else self.seats[at]
        gpu.changes += 1
        gpu.speeds = self.speeds(at, gpu.host.paced_for) if seats else ()
        if seats:
            pairs = zip(seats, gpu.speeds, strict=True)
            gpu.pause_s = min([self.left[job] / speed for (job, _), speed in pairs])
            heappush(self.ends, (self.now_s + gpu.pause_s, at, gpu.changes))


def run(
    tasks: Sequence[Task], pace: Pace, queue: JobQueue, hosts: Sequence[int] = (1,),
    on_shared_host: Callable[[int], Pace] | None = None,
) -> History:  # fmt: skip
    """Simulate `tasks` from second 0 until the last has ended.

    `hosts` are the numbers of GPUs of all hosts. `queue` is empty at first. `pace` is called when
    the jobs on a GPU change, and is above 0. `on_shared_host` returns the pace while so many GPUs
    of a host run jobs; None: always `pace`.

    Raises:
        NothingFits: A job waits while every GPU is empty.
    """
    paces, own = on_shared_host or (lambda _busy: pace), [_Host() for _ in hosts]
    gpus = [_Gpu(host) for host, count in zip(own, hosts, strict=True) for _ in range(count)]
    world = _LoopState(tasks, paces, gpus, [()] * len(gpus), own)
    coming = deque(sorted(range(len(tasks)), key=lambda job: tasks[job].arrival_s))
    while True:
        arrival_s = tasks[coming[0]].arrival_s if coming else inf
        world.now_s = min(arrival_s, world.next_end_s())
        if world.now_s == inf:
            break
        changed = world.end_due()
        while coming and tasks[coming[0]].arrival_s <= world.now_s:
            queue.add(coming.popleft())
        changed |= world.begin(queue)
        while on_shared_host and (slowed := world.share_hosts()):
            changed |= slowed | world.begin(queue)
        for at in sorted(changed):
            world.go_on(at)
    if len(world.ends_s) < len(tasks):
        left = counted(len(tasks) - len(world.ends_s), "job")
        raise NothingFits(f"{left} would wait forever: no GPU has room")
    return History(
        tuple(world.stretches),
        tuple(world.starts_s[job] for job in range(len(tasks))),
        tuple(world.ends_s[job] for job in range(len(tasks))),
    )


# Gaps without jobs below this share of all time are rounding.
_DUST = 1e-9


def energy_j(
    histories: Sequence[History],
    power_w: Callable[[Stretch], Interval | None],
    idle_w: Sequence[float | None],
) -> Interval | None:
    """Compute joules of all GPUs until the last job ends; None if a power is not known.

    `histories` are the simulation at each of `LEVELS`; `power_w` is the power while jobs run;
    `idle_w` that of each GPU without jobs.
    """
    totals = []
    for level, history in zip(LEVELS, histories, strict=True):
        powers = all_known(map(power_w, history.stretches))
        busy_s = [0.0] * len(idle_w)
        for each in history.stretches:
            busy_s[each.gpu] += each.seconds
        free_s = [history.makespan_s - seconds for seconds in busy_s]
        idle_j = all_known(
            0.0 if seconds < _DUST * history.makespan_s
            else None if watts is None else seconds * watts
            for seconds, watts in zip(free_s, idle_w, strict=True)
        )  # fmt: skip
        if powers is None or idle_j is None:
            return None
        pairs = zip(powers, history.stretches, strict=True)
        busy_j = (power.at(level) * each.seconds for power, each in pairs)
        totals.append(fsum(busy_j) + fsum(idle_j))
    return around(totals)


def from_the_start(sharing: Sharing, work_steps: Sequence[float], pace: Pace) -> History:
    """Simulate one GPU, whose memory holds all jobs that run at once.

    Each group starts when the one before has ended and the GPU is set up for it; during that pause
    no job runs.
    """
    in_order = groups(sharing, len(work_steps))
    stretches = _of_group(in_order[0], work_steps, pace, 0.0)
    for before, group in pairwise(in_order):
        begins_s = stretches[-1].end_s + repartition_s(before, group)
        stretches += _of_group(group, work_steps, pace, begins_s)
    starts_s = {seat.job: each.start_s for each in reversed(stretches) for seat in each.seats}
    ends_s = {seat.job: each.end_s for each in stretches for seat in each.seats}
    jobs = range(len(work_steps))
    return History(
        tuple(stretches), tuple(starts_s[job] for job in jobs), tuple(ends_s[job] for job in jobs)
    )


def _of_group(
    group: Group | Hybrid, work_steps: Sequence[float], pace: Pace, begins_s: float
) -> list[Stretch]:
    positions = [number - 1 for number in sorted(group.jobs)]

    def of_all(seats: PlacedJobs) -> PlacedJobs:
        return tuple(PlacedJob(positions[seat.job], positions[seat.job]) for seat in seats)

    tasks = [Task(work_steps[job]) for job in positions]
    queue = _InLine(group.at_once, [positions.index(number - 1) for number in group.jobs])
    history = run(tasks, lambda seats: pace(of_all(seats)), queue)
    return [
        Stretch(0, begins_s + each.start_s, begins_s + each.end_s, of_all(each.seats), each.speeds)
        for each in history.stretches
    ]


def line_s(seconds: Iterable[float], at_once: int) -> float:
    """Return when the last of jobs ends that take so long, start in order and run so many at once.

    Each of them takes as long whatever runs with it.
    """
    ends_s = [0.0] * at_once
    for each in seconds:
        heapreplace(ends_s, ends_s[0] + each)
    return max(ends_s)


def set_spans(sharing: Sharing, slowdowns: Sequence[float]) -> list[float]:
    """Return how long each of `sets_in_turn` takes, by `slowdowns`, if all jobs take 1 alone."""
    spans = []
    for run, at_once in sets_in_turn(sharing, len(slowdowns)):
        own = [slowdowns[job] for job in run]
        whole = at_once == len(run)
        spans.append(len(own) / sum(1 / each for each in own) if whole else line_s(own, at_once))
    return spans


@dataclass(slots=True)
class _InLine:
    """Jobs in `order`, at most `places` at once; memory holds all that run at once."""

    places: int
    order: Sequence[int]
    _waiting: list[int] = field(default_factory=list)

    def add(self, job: int) -> None:
        heappush(self._waiting, self.order.index(job))

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if not self._waiting or len(gpus[0]) == self.places:
            return None
        job = self.order[heappop(self._waiting)]
        return JobStart(job, gpu=0, place=job)


# Seconds to make and to destroy a MIG instance: an A30 took 0.13 to 0.16 and 0.10 to 0.11 (FAR's
# README).
_MAKE_S, _DESTROY_S = 0.16, 0.11
# Assumed: MIG mode on or off, without a reset, as Hopper does it.
MIG_MODE_S = 5.0
# An MPS daemon up or down: the median of 11 times on an H200 (profiles/REPORT.md, whole jobs).
_MPS_DAEMON_S = 0.16


def repartition_s(before: Group | Hybrid, after: Group | Hybrid) -> float:
    """Compute the seconds without jobs that setting up the GPU takes between two groups.

    Instances and MPS daemons that both groups need stay. Starting jobs is not counted: it takes
    equally long in every plan.
    """
    old, new = Counter(before.instances), Counter(after.instances)
    seconds = (new - old).total() * _MAKE_S + (old - new).total() * _DESTROY_S
    seconds += MIG_MODE_S * (bool(old) != bool(new))
    up, down = _daemons(after) - _daemons(before), _daemons(before) - _daemons(after)
    return seconds + _MPS_DAEMON_S * (up + down).total()


def _daemons(group: Group | Hybrid) -> Counter[str]:
    """The places with an MPS daemon."""
    return Counter(
        f"{part.instance} {number}"
        for memory in group.memories
        for number, part in enumerate(memory)
        if part.sharing.under_mps
    )


Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

StepsOfRunning = Callable[[Indices, Bools], Floats]
"""Some of the sets, and which jobs of each run, shape (sets, jobs) -> seconds of a step of each
that runs, of the same shape."""


class ArrayStretch(NamedTuple):
    """A stretch of time in which no job of a set ends or starts, for many sets at once.

    Attributes:
        sets: Indices of the sets in which a job still runs, shape (sets,).
        running: Whether each job of these sets runs, shape (sets, jobs).
        seconds: Seconds until the next job of each set ends, shape (sets,).
    """

    sets: Indices
    running: Bools
    seconds: Floats


def array_stretches(work_steps: Floats, steps_s: StepsOfRunning) -> Iterator[ArrayStretch]:
    """Simulate all sets; at the end of each stretch, at least one job of every set in it ends.

    The jobs of each set start at once on a GPU of their own.

    Args:
        work_steps: Steps that each job has to do, shape (sets, jobs); 0 where there is no job.
        steps_s: Predicts the steps of the jobs that run; called once for each stretch.
    """
    left = work_steps.copy()
    while (at := np.flatnonzero((left > 0).any(axis=1))).size:
        running = left[at] > 0
        steps = steps_s(at, running)
        seconds = np.where(running, left[at] * steps, np.inf).min(axis=1)
        yield ArrayStretch(at, running, seconds)
        remains = left[at] - seconds[:, None] / steps
        left[at] = np.where(running & (remains > DONE * work_steps[at]), remains, 0.0)


def array_ends_s(work_steps: Floats, steps_s: StepsOfRunning) -> Floats:
    """Compute seconds until each job ends, shape (sets, jobs); 0 where there is no job."""
    ends_s = np.zeros(work_steps.shape)
    for each in array_stretches(work_steps, steps_s):
        ends_s[each.sets] += np.where(each.running, each.seconds[:, None], 0.0)
    return ends_s
