"""The queue policies, which decide which job starts next, and where.

* ``first-come``: jobs in the order of arrival. No job overtakes, so one that does not fit delays
  all behind it. It goes to the GPU with the fewest jobs, to the first place that holds it.
  A job that takes several GPUs goes to the host with the fewest free ones that suffice.
* ``shortest-first``: as first-come, but in the order of the time alone.
* ``best-fit``: the job and GPU with the largest predicted gain in work done a second, of equal
  gains the job that came first; a job that would reduce it does not start. A job may wait for long
  while others fit better.

A GPU that offers several layouts chooses one when it has no job, for its part of those that wait:
the layout that holds most of the next jobs in line, under best-fit the one in which jobs do most
work. Ties go to the layout that is offered first.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nsmallest
from math import ceil
from typing import NamedTuple

from advisor.simulation import StartPolicy
from advisor.simulation.events import JobQueue, JobStart, PlacedJob, PlacedJobs

# Least gain in work done a second, relative to the job alone, with which a job joins others.
_LEAST_GAIN = 1e-6
# Gains that are equal to so many digits are a tie: the rest is rounding.
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class GpuCapacity:
    """The places and the memory of GPUs.

    Attributes:
        places: A number for each place; those of equal numbers are interchangeable.
        fits: Whether a GPU's memory holds all of these jobs, each in its place.
        worth: Work done a second by all of these jobs, each counted as 1 when alone.
        mix: Key of what runs; jobs with equal keys have equal results.
        offers: For each GPU, the places of each of its layouts; empty: all places, in one layout.
        widths: GPUs of one host that each job takes, alone; empty: one each, shared.
        hosts: The GPUs of each host.
        most: Most jobs at once on a GPU.
    """

    places: tuple[int, ...]
    fits: Callable[[PlacedJobs], bool] = lambda _seats: True
    worth: Callable[[PlacedJobs], float] = lambda _seats: 0.0
    mix: Callable[[PlacedJobs], Hashable] = lambda seats: seats
    offers: Sequence[Sequence[range]] = ()
    widths: Sequence[int] = ()
    hosts: Sequence[range] = ()
    most: int = field(init=False)

    def __post_init__(self) -> None:
        layouts = [places for own in set(map(tuple, self.offers)) for places in own]
        object.__setattr__(self, "most", max(map(len, layouts), default=len(self.places)))

    def options(
        self, job: int, seats: PlacedJobs, at: int, layout: range | None = None
    ) -> Iterator[tuple[int, PlacedJobs]]:
        """Return each place that `job` can take next to `seats`, and all jobs that run then.

        They run on the GPU `at`. Jobs on one GPU are in one layout of it: `layout`, or any.
        """
        layouts = self.offers[at] if self.offers else (range(len(self.places)),)
        if layout is not None:
            layouts = (layout,)
        taken = {seat.place for seat in seats}
        tried = set()
        for own in layouts:
            if seats and seats[0].place not in own:
                continue
            for place in own:
                kind = self.places[place]
                if place not in taken and kind not in tried:
                    tried.add(kind)
                    seat = PlacedJob(job, place)
                    together = tuple(sorted((*seats, seat))) if seats else (seat,)
                    if self.fits(together):
                        yield place, together

    def chooses_layout(self, at: int, seats: PlacedJobs) -> bool:
        """Return whether a GPU with these jobs may take one of several layouts."""
        return not seats and bool(self.offers) and len(self.offers[at]) > 1

    def part_of_idle_gpu(self, waiting: int, gpus: Sequence[PlacedJobs]) -> int:
        """Return how many of `waiting` jobs an idle GPU gets if others fill their free places."""
        idle = 0
        for at, seats in enumerate(gpus):
            if seats:
                own = next(each for each in self.offers[at] if seats[0].place in each)
                waiting -= len(own) - len(seats)
            else:
                idle += 1
        return min(self.most, max(1, ceil(waiting / idle)))

    def layout_for_most(self, line: Sequence[int], at: int) -> range:
        """Return the layout that holds the most of the first jobs in `line`, none overtaking."""
        best, most = self.offers[at][0], 0
        for layout in self.offers[at]:
            free = list(layout)
            for job in line:
                fitting = (place for place in free if self.fits((PlacedJob(job, place),)))
                if (place := next(fitting, None)) is None:
                    break
                free.remove(place)
            if (held := len(layout) - len(free)) > most:
                best, most = layout, held
            if most == len(line):
                break
        return best

    def width(self, job: int) -> int:
        """Return the number of GPUs that `job` takes."""
        return self.widths[job] if self.widths else 1

    def start(self, job: int, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        """Start a job on the GPU with the fewest jobs that holds it; None: there is none."""
        if self.width(job) > 1:
            return self.start_on_several(job, gpus)
        for at in self.emptiest(gpus):
            if option := next(self.options(job, gpus[at], at), None):
                return JobStart(job, at, option[0])
        return None

    def emptiest(self, gpus: Sequence[PlacedJobs]) -> Iterator[int]:
        """Yield the GPUs with a free place, those with the fewest jobs first."""
        counts = list(map(len, gpus))
        if (fewest := min(counts)) == self.most:
            return
        yield counts.index(fewest)  # mostly enough, and found sooner than the order of all
        for at in sorted(range(len(gpus)), key=counts.__getitem__)[1:]:
            if counts[at] == self.most:
                return
            yield at

    def start_on_several(self, job: int, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        """Start a job on the host with the fewest free GPUs that suffice; None: there is none."""
        width = self.width(job)
        free = ([at for at in host if not gpus[at]] for host in self.hosts)
        for first, *others in sorted((each for each in free if len(each) >= width), key=len):
            if option := next(self.options(job, (), first), None):
                return JobStart(job, first, option[0], tuple(others[: width - 1]))
        return None


@dataclass(slots=True)
class InOrder:
    """Jobs in the order of their `ranks`, those of one rank by arrival; no job overtakes.

    Attributes:
        ranks: Lowest first, shape (jobs,); None: by arrival.
    """

    room: GpuCapacity
    ranks: Sequence[float] | None = None
    _waiting: list[tuple[float, int, int]] = field(default_factory=list)
    _came: int = 0
    # By GPU: its jobs when there was no room for the first job in line.
    _refused: dict[int, PlacedJobs] = field(default_factory=dict)

    def add(self, job: int) -> None:
        rank = 0.0 if self.ranks is None else self.ranks[job]
        self._came += 1
        heappush(self._waiting, (rank, self._came, job))
        if self._waiting[0][2] == job:
            self._refused.clear()

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if not self._waiting:
            return None
        job = self._waiting[0][2]
        if self.room.width(job) > 1:
            if start := self.room.start_on_several(job, gpus):
                heappop(self._waiting)
                self._refused.clear()
            return start
        for at in self.room.emptiest(gpus):
            if self._refused.get(at) is gpus[at]:
                continue
            layout = None
            if self.room.chooses_layout(at, gpus[at]):
                part = self.room.part_of_idle_gpu(len(self._waiting), gpus)
                line = [each for *_, each in nsmallest(part, self._waiting)]
                layout = self.room.layout_for_most(line, at)
            if option := next(self.room.options(job, gpus[at], at, layout), None):
                heappop(self._waiting)
                self._refused.clear()
                return JobStart(job, at, option[0])
            self._refused[at] = gpus[at]
        return None


class _Gain(NamedTuple):
    """The best start next to some jobs. The largest is best: most work, then who came first."""

    added_work: float
    minus_came: int
    kind: int
    place_kind: int


@dataclass(slots=True)
class BestFit:
    """The policy ``best-fit``: the job that adds most work where it starts; ties by arrival.

    Attributes:
        kinds: Jobs of one kind are equal and start by arrival; shape (jobs,).
    """

    room: GpuCapacity
    kinds: Sequence[int]
    _came: int = 0
    # By kind: when its jobs came, and the jobs.
    _waiting: dict[int, deque[tuple[int, int]]] = field(default_factory=dict)
    # By mix and kind of job: the work that the job adds, and its kind of place; None: it adds none.
    _gains: dict[tuple[Hashable, int], tuple[float, int] | None] = field(default_factory=dict)
    # By GPU: the jobs that run there, and their mix. By mix: the best start of those that wait.
    _mixes: dict[int, tuple[PlacedJobs, Hashable]] = field(default_factory=dict)
    _best: dict[Hashable, _Gain | None] = field(default_factory=dict)
    # By the layouts that idle GPUs offer: the one for those that wait now.
    _chosen: dict[Sequence[range], range] = field(default_factory=dict)

    def add(self, job: int) -> None:
        kind = self.kinds[job]
        if kind not in self._waiting:
            self._waiting[kind] = deque()
            self._best.clear()
        self._came += 1
        self._waiting[kind].append((self._came, job))

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if not self._waiting:
            return None
        self._chosen.clear()
        offers = (
            (gain[:2], -len(seats), -at, gain)
            for at, seats in enumerate(gpus)
            if (gain := self._best_next_to(at, gpus))
        )
        best = max(offers, default=None)
        wide = max(self._gains_of_several(gpus), key=lambda each: each[0], default=None)
        if wide is not None and (best is None or wide[0] > best[0]):
            _, kind, start = wide
        elif best is not None:
            *_, minus_at, gain = best
            kind, at = gain.kind, -minus_at
            taken = {seat.place for seat in gpus[at]}
            free = (
                place
                for place, each in enumerate(self.room.places)
                if each == gain.place_kind and place not in taken
            )
            start = JobStart(self._waiting[kind][0][1], at, next(free))
        else:
            return None
        self._waiting[kind].popleft()
        if not self._waiting[kind]:
            del self._waiting[kind]
        self._best = {
            mix: each for mix, each in self._best.items() if each is None or each.kind != kind
        }
        return start

    def _gains_of_several(
        self, gpus: Sequence[PlacedJobs]
    ) -> Iterator[tuple[tuple[float, int], int, JobStart]]:
        """The gain, the kind and the start of each kind of jobs that take several GPUs."""
        for kind, waiting in self._waiting.items() if self.room.widths else ():
            came, job = waiting[0]
            width = self.room.width(job)
            if width > 1 and (start := self.room.start_on_several(job, gpus)):
                worth = self.room.worth((PlacedJob(job, start.place),))
                yield (round(width * worth, _DIGITS), -came), kind, start

    def _best_next_to(self, at: int, gpus: Sequence[PlacedJobs]) -> _Gain | None:
        seats, layout = gpus[at], None
        before = self._mixes.get(at)
        if self.room.chooses_layout(at, seats):
            layout = self._layout_for_work(self.room.offers[at], gpus)
            before = seats, layout
        elif before is None or before[0] is not seats:
            layouts = self.room.offers[at] if self.room.offers else None
            self._mixes[at] = before = seats, (layouts, self.room.mix(seats))
        mix = before[1]
        if mix not in self._best:
            gains = []
            for kind, waiting in self._waiting.items():
                came, job = waiting[0]
                if self.room.width(job) > 1:
                    continue
                if (mix, kind) not in self._gains:
                    self._gains[mix, kind] = self._gain(at, seats, job, layout)
                if gain := self._gains[mix, kind]:
                    gains.append(_Gain(gain[0], -came, kind, gain[1]))
            self._best[mix] = max(gains, default=None)
        return self._best[mix]

    def _layout_for_work(self, layouts: Sequence[range], gpus: Sequence[PlacedJobs]) -> range:
        """Return the layout in which the jobs that wait do most work, each counted by itself."""
        if layouts not in self._chosen:
            counts = {kind: len(waiting) for kind, waiting in self._waiting.items()}
            part = self.room.part_of_idle_gpu(sum(counts.values()), gpus)

            def work(layout: range) -> float:
                left, total = counts.copy(), 0.0
                for place in layout[:part]:
                    seats = {
                        kind: (PlacedJob(self._waiting[kind][0][1], place),)
                        for kind, count in left.items()
                        if count
                    }
                    worths = [
                        (self.room.worth(own), -self._waiting[kind][0][0], kind)
                        for kind, own in seats.items()
                        if self.room.fits(own)
                    ]
                    if worths:
                        worth, _, kind = max(worths)
                        total += worth
                        left[kind] -= 1
                return round(total, _DIGITS)

            self._chosen[layouts] = max(layouts, key=work)
        return self._chosen[layouts]

    def _gain(
        self, at: int, seats: PlacedJobs, job: int, layout: range | None
    ) -> tuple[float, int] | None:
        before = self.room.worth(seats) if seats else 0.0
        gains = [
            (self.room.worth(together) - before, -self.room.places[place])
            for place, together in self.room.options(job, seats, at, layout)
        ]
        gain, place_kind = max(gains, default=(0.0, 0))
        return (round(gain, _DIGITS), -place_kind) if gain > _LEAST_GAIN else None


def queue_of(
    policy: StartPolicy, room: GpuCapacity, alone_s: Sequence[float], kinds: Sequence[int]
) -> JobQueue:
    """Return an empty queue."""
    match policy:
        case "first-come":
            return InOrder(room)
        case "shortest-first":
            return InOrder(room, alone_s)
        case "best-fit":
            return BestFit(room, kinds)
