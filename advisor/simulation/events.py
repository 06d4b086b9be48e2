"""The event loop of jobs that share GPUs: at an end, the rest change pace and a waiting job starts.

Time jumps from one arrival or end to the next. Between two events no pace changes, so the result is
exact. How fast jobs run together is given by a `Pace`, which job starts next by a `JobQueue`.
"""

from array import array
from bisect import bisect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from math import inf
from operator import truediv
from typing import NamedTuple, Protocol, overload, runtime_checkable

from advisor.errors import NothingFits, counted

# A job with at most this share of its work left has ended: the rest is rounding.
DONE = 1e-9


@dataclass(frozen=True, slots=True)
class Task:
    """Work of a job: `work_steps` steps, above 0, from `arrival_s` on.

    Its first `start_steps` are the start of its process, which takes `start_cores_s` of all cores
    of its host; starts share them.
    """

    work_steps: float
    arrival_s: float = 0.0
    start_steps: float = 0.0
    start_cores_s: float = 0.0


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


@runtime_checkable
class PreemptiveQueue(JobQueue, Protocol):
    """A queue that stops jobs at the ends of rounds, which begin at second 0.

    Attributes:
        lost_steps: Steps that each job does again when it starts again, shape (jobs,).
        lost_cores_s: Seconds that starting again takes of all cores of its host.
    """

    round_s: float
    lost_steps: Sequence[float]
    lost_cores_s: float

    def stops(self, loop: "Loop") -> Iterable[tuple[int, int]]:
        """Return the jobs that stop now, with their first GPUs; they wait for the next `take`."""
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


class Stretches(Sequence[Stretch]):
    """Stretches in columns, which take a quarter of the memory; `speeds` are computed again."""

    def __init__(self, paces: Callable[[int], Pace]) -> None:
        self._paces = paces
        self._gpus, self._mixes, self._busy = array("i"), array("i"), array("i")
        self._starts_s, self._ends_s = array("d"), array("d")
        self._seats: list[PlacedJobs] = []  # of each mix
        self._last: dict[int, int] = {}  # number of the last mix, by GPU

    def add(
        self, gpu: int, start_s: float, end_s: float, seats: PlacedJobs, busy_gpus: int
    ) -> None:
        last = self._last.get(gpu, -1)
        if last < 0 or self._seats[last] is not seats:
            self._last[gpu] = last = len(self._seats)
            self._seats.append(seats)
        self._gpus.append(gpu)
        self._starts_s.append(start_s)
        self._ends_s.append(end_s)
        self._mixes.append(last)
        self._busy.append(busy_gpus)

    def __len__(self) -> int:
        return len(self._gpus)

    @overload
    def __getitem__(self, at: int) -> Stretch: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Stretch, ...]: ...
    def __getitem__(self, at: int | slice) -> Stretch | tuple[Stretch, ...]:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        seats, busy = self._seats[self._mixes[at]], self._busy[at]
        speeds = tuple(self._paces(busy)(seats))
        return Stretch(self._gpus[at], self._starts_s[at], self._ends_s[at], seats, speeds, busy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class History:
    """The result of a simulation.

    Attributes:
        stretches: Of all GPUs, in the order of their ends; times when a GPU has no job are left
            out.
        starts_s: When each job first started, shape (jobs,).
        ends_s: When each job ended, shape (jobs,).
        preemptions: How often a job was stopped and started again.
        layout_changes: How often an idle GPU changed its layout.
    """

    stretches: Sequence[Stretch]
    starts_s: tuple[float, ...]
    ends_s: tuple[float, ...]
    preemptions: int = 0
    layout_changes: int = 0

    @property
    def makespan_s(self) -> float:
        """Seconds until the last job ends; 0 without jobs."""
        return max(self.ends_s, default=0.0)


@dataclass(slots=True)
class _Host:
    """The GPUs of one host that run jobs, and the number of them that the paces are for.

    Its cores have done all starts of processes so far at `started_s`.
    """

    busy: set[int] = field(default_factory=set)
    paced_for: int = 1
    started_s: float = 0.0


@dataclass(slots=True)
class _Gpu:
    """State of one GPU, whose jobs run at `speeds` since `since_s`, or from then on.

    Attributes:
        place: Where the last job started; -1: none has.
        others: The other GPUs that its job takes, which have its seats and nothing else.
        left: Steps that each job has left at `since_s`, shape (seats,).
        pause_s: Seconds from `since_s` until the next job ends, if no other starts.
        by_busy: Speeds of the jobs, by the number of GPUs of the host that run jobs.
    """

    host: _Host
    others: tuple[int, ...] = ()
    follows: bool = False
    place: int = -1
    since_s: float = 0.0
    left: list[float] = field(default_factory=list)
    speeds: tuple[float, ...] = ()
    pause_s: float = inf
    by_busy: dict[int, tuple[float, ...]] = field(default_factory=dict)


class Loop:
    """The state of a simulation between two events."""

    def __init__(
        self,
        tasks: Sequence[Task],
        paces: Callable[[int], Pace],
        hosts: Sequence[int],
        change_s: Callable[[int, int], float] | None = None,
    ) -> None:
        self.tasks, self.paces, self.change_s = tasks, paces, change_s
        self.stretches = Stretches(paces)
        self.hosts = [_Host() for _ in hosts]
        counts = zip(self.hosts, hosts, strict=True)
        self.gpus = [_Gpu(host) for host, count in counts for _ in range(count)]
        self.seats: list[PlacedJobs] = [()] * len(self.gpus)
        self.due_s = [inf] * len(self.gpus)  # when the next job of each GPU ends
        self.now_s, self.preemptions, self.layout_changes = 0.0, 0, 0
        self.stopped: dict[int, float] = {}  # steps that stopped jobs have left
        self.starting: dict[int, float] = {}  # steps of the starts that begin now
        self.starts_s: dict[int, float] = {}
        self.ends_s: dict[int, float] = {}

    def advance(self, at: int, seconds: float) -> None:
        """Advance a GPU's jobs by `seconds`, and record them."""
        gpu, seats = self.gpus[at], self.seats[at]
        if seats:  # of no length where a job is shorter than the clock can tell
            self.stretches.add(at, gpu.since_s, self.now_s, seats, gpu.host.paced_for)
            for other in gpu.others:
                self.stretches.add(other, gpu.since_s, self.now_s, seats, gpu.host.paced_for)
            if len(seats) == 1:
                gpu.left[0] -= gpu.speeds[0] * seconds
            else:
                gpu.left = [
                    left - speed * seconds for left, speed in zip(gpu.left, gpu.speeds, strict=True)
                ]
        gpu.since_s = self.now_s

    def end_due(self) -> set[int]:
        """End the jobs that are due, and return the GPUs that they leave."""
        changed = set()
        while (due_s := min(self.due_s)) <= self.now_s:
            at = self.due_s.index(due_s)
            gpu, seats, pause_s = self.gpus[at], self.seats[at], self.gpus[at].pause_s
            # The same quotient predicted this end, so at least one job ends despite rounding.
            due = [
                left / speed <= pause_s for left, speed in zip(gpu.left, gpu.speeds, strict=True)
            ]
            self.advance(at, pause_s)
            goes_on = [
                not ends and left > DONE * self.tasks[job].work_steps
                for ends, left, (job, _) in zip(due, gpu.left, seats, strict=True)
            ]
            for on, seat in zip(goes_on, seats, strict=True):
                if not on:
                    self.ends_s[seat.job] = self.now_s
            gpu.left = list(compress(gpu.left, goes_on))
            self.seat(at, tuple(compress(seats, goes_on)), gpu.others)
            self.due_s[at] = inf
            changed.add(at)
        return changed

    def seat(self, at: int, seats: PlacedJobs, others: tuple[int, ...] = ()) -> None:
        """Let these jobs run on a GPU, and no others; a job that takes `others` runs there, too."""
        gpu = self.gpus[at]
        gpu.by_busy, gpu.others = {}, others if seats else ()
        change = gpu.host.busy.add if seats else gpu.host.busy.discard
        self.seats[at] = seats
        change(at)
        for other in others:
            self.seats[other], self.gpus[other].follows = seats, bool(seats)
            change(other)

    def stop(self, job: int, at: int) -> None:
        """Stop a job that runs on a GPU; what is left of it waits."""
        gpu, seats = self.gpus[at], self.seats[at]
        if gpu.since_s < self.now_s:
            self.advance(at, self.now_s - gpu.since_s)
        row = 0 if len(seats) == 1 else [seat.job for seat in seats].index(job)
        self.stopped[job] = gpu.left.pop(row)
        self.seat(at, (*seats[:row], *seats[row + 1 :]), gpu.others)
        self.due_s[at] = inf

    def start(self, start: JobStart, lost_steps: float, lost_cores_s: float) -> None:
        """Start a job; one that was stopped does `lost_steps` again, and needs `lost_cores_s`."""
        job, at, place, others = start
        gpu, seats = self.gpus[at], self.seats[at]
        if gpu.since_s < self.now_s:
            self.advance(at, self.now_s - gpu.since_s)
        if self.change_s and not seats and gpu.place >= 0:
            pause_s = self.change_s(gpu.place, place)
            gpu.since_s += pause_s
            self.layout_changes += pause_s > 0
        gpu.place = place
        if (left := self.stopped.pop(job, None)) is not None:
            self.preemptions += 1
            left += lost_steps
            start_steps, cores_s = lost_steps, lost_cores_s
        else:
            task = self.tasks[job]
            left, start_steps, cores_s = task.work_steps, task.start_steps, task.start_cores_s
            self.starts_s[job] = gpu.since_s
        if cores_s:
            self.starting[job] = start_steps
            gpu.host.started_s = max(gpu.host.started_s, gpu.since_s) + cores_s
        seat = PlacedJob(job, place)
        if seats:
            row = bisect(seats, seat)
            gpu.left.insert(row, left)
            self.seat(at, (*seats[:row], seat, *seats[row:]))
        else:
            gpu.left = [left]
            self.seat(at, (seat,), others)

    def go_on(self, changed: set[int], shared: bool) -> None:
        """Set the paces where jobs have changed, or the number of GPUs that share a host."""
        slowed = set[int]()
        for host in self.hosts if shared else ():
            if host.paced_for != (busy := max(1, len(host.busy))):
                for at in host.busy - changed:
                    gpu = self.gpus[at]
                    if gpu.follows or self.speeds(at, busy) == gpu.speeds:
                        continue
                    if gpu.since_s < self.now_s:
                        self.advance(at, self.now_s - gpu.since_s)
                    slowed.add(at)
                host.paced_for = busy
        for at in changed | slowed if slowed else changed:
            gpu = self.gpus[at]
            if gpu.follows or not self.seats[at]:
                self.due_s[at] = inf
                continue
            gpu.speeds = speeds = self.speeds(at, gpu.host.paced_for)
            for row, (job, _) in enumerate(self.seats[at] if self.starting else ()):
                if (start_steps := self.starting.get(job)) is not None:
                    # The cores may take longer for all starts than each would take by itself.
                    cores_steps = (gpu.host.started_s - gpu.since_s) * speeds[row]
                    gpu.left[row] += max(0.0, cores_steps - start_steps)
            if len(speeds) == 1:
                gpu.pause_s = gpu.left[0] / speeds[0]
            else:
                gpu.pause_s = min(map(truediv, gpu.left, speeds))
            self.due_s[at] = gpu.since_s + gpu.pause_s
        self.starting.clear()

    def speeds(self, at: int, busy_gpus: int) -> tuple[float, ...]:
        """Return steps a second of the jobs on a GPU while so many GPUs of its host run jobs."""
        by_busy = self.gpus[at].by_busy
        if (speeds := by_busy.get(busy_gpus)) is None:
            speeds = by_busy[busy_gpus] = tuple(self.paces(busy_gpus)(self.seats[at]))
        return speeds

    def left_steps(self, job: int, at: int) -> float:
        """Return the steps that a job on a GPU has left now."""
        gpu = self.gpus[at]
        seats = self.seats[at]
        row = 0 if len(seats) == 1 else [seat.job for seat in seats].index(job)
        return gpu.left[row] - gpu.speeds[row] * (self.now_s - gpu.since_s)


def run(
    tasks: Sequence[Task],
    pace: Pace,
    queue: JobQueue,
    hosts: Sequence[int] = (1,),
    on_shared_host: Callable[[int], Pace] | None = None,
    change_s: Callable[[int, int], float] | None = None,
) -> History:
    """Simulate `tasks` from second 0 until the last has ended.

    `hosts` are the numbers of GPUs of all hosts. `queue` is empty at first. `pace` is called when
    the jobs on a GPU change, and is above 0. `on_shared_host` returns the pace while so many GPUs
    of a host run jobs; None: always `pace`. `change_s` returns the seconds without jobs that an
    idle GPU takes to change from the layout of one place to that of another; None: no time.

    Raises:
        NothingFits: A job waits while every GPU is empty.
    """
    paces = on_shared_host or (lambda _busy: pace)
    loop = Loop(tasks, paces, hosts, change_s)
    coming = deque(sorted(range(len(tasks)), key=lambda job: tasks[job].arrival_s))
    rounds = queue if isinstance(queue, PreemptiveQueue) else None
    round_end_s = 0.0 if rounds else inf
    while True:
        arrival_s = tasks[coming[0]].arrival_s if coming else inf
        due_s = min(loop.due_s)
        loop.now_s = min(arrival_s, due_s, round_end_s if due_s < inf else inf)
        if loop.now_s == inf:
            break
        if rounds and due_s == inf:  # no job runs: a round begins when one does
            round_end_s = min(round_end_s, loop.now_s)
        changed = loop.end_due()
        while coming and tasks[coming[0]].arrival_s <= loop.now_s:
            queue.add(coming.popleft())
        if rounds and loop.now_s >= round_end_s:
            for job, at in rounds.stops(loop):
                loop.stop(job, at)
                changed.add(at)
            round_end_s = (loop.now_s // rounds.round_s + 1) * rounds.round_s
        while start := queue.take(loop.seats):
            lost = (rounds.lost_steps[start.job], rounds.lost_cores_s) if rounds else (0.0, 0.0)
            loop.start(start, *lost)
            changed.add(start.gpu)
        loop.go_on(changed, on_shared_host is not None)
    if len(loop.ends_s) < len(tasks):
        left = counted(len(tasks) - len(loop.ends_s), "job")
        raise NothingFits(f"{left} would wait forever: no GPU has room")
    return History(
        loop.stretches,
        tuple(loop.starts_s[job] for job in range(len(tasks))),
        tuple(loop.ends_s[job] for job in range(len(tasks))),
        loop.preemptions,
        loop.layout_changes,
    )
