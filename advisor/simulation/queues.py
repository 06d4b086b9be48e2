"""The queue policies, which decide which job starts next, and where.

* ``first-come``: jobs in the order of arrival. No job overtakes, so one that does not fit delays
  all behind it. It goes to the GPU with the fewest jobs, to the first place that holds it.
* ``shortest-first``: as first-come, but in the order of the time alone.
* ``best-fit``: the job and GPU with the largest predicted gain in work done a second; a job that
  would reduce it does not start. A job may wait for long while others fit better.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, assert_never

from advisor.errors import InvalidInput
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.groups import named_jobs, restricted, without_starts
from advisor.simulation import Policy
from advisor.simulation.events import JobQueue, JobStart, Pace, PlacedJob, PlacedJobs
from advisor.workload.profile import Profile

# Least gain in work done a second, relative to the job alone, with which a job joins others.
_LEAST_GAIN = 1e-6


@dataclass(frozen=True, slots=True)
class GpuCapacity:
    """The places and the memory of each of some equal GPUs.

    Attributes:
        places: A number for each place; those of equal numbers are interchangeable.
        fits: Whether a GPU's memory holds all of these jobs, each in its place.
        worth: Work done a second by all of these jobs, each counted as 1 when alone.
        mix: Key of what runs; jobs with equal keys have equal results.
    """

    places: tuple[int, ...]
    fits: Callable[[PlacedJobs], bool] = lambda _seats: True
    worth: Callable[[PlacedJobs], float] = lambda _seats: 0.0
    mix: Callable[[PlacedJobs], Hashable] = lambda seats: seats

    def options(self, job: int, seats: PlacedJobs) -> Iterator[tuple[int, PlacedJobs]]:
        """Return each place that `job` can take next to `seats`, and all jobs that run then."""
        taken = {seat.place for seat in seats}
        tried = set()
        for place, kind in enumerate(self.places):
            if place not in taken and kind not in tried:
                tried.add(kind)
                together = tuple(sorted((*seats, PlacedJob(job, place))))
                if self.fits(together):
                    yield place, together


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
        most = len(self.room.places)
        free = [at for at, seats in enumerate(gpus) if len(seats) < most]
        for at in sorted(free, key=lambda at: len(gpus[at])):
            if self._refused.get(at) is gpus[at]:
                continue
            if option := next(self.room.options(job, gpus[at]), None):
                heappop(self._waiting)
                self._refused.clear()
                return JobStart(job, at, option[0])
            self._refused[at] = gpus[at]
        return None


class _Offer(NamedTuple):
    """A start that a GPU offers. The largest is best: most work, then the lowest numbers."""

    added_work: float
    minus_jobs_there: int
    minus_gpu: int
    minus_kind: int
    minus_place_kind: int


@dataclass(slots=True)
class BestFit:
    """The policy ``best-fit``: the job that adds most work where it starts.

    The best start on a GPU is cached until its jobs change: only new kinds are compared.

    Attributes:
        kinds: Jobs of one kind are equal and start by arrival; shape (jobs,).
    """

    room: GpuCapacity
    kinds: Sequence[int]
    _waiting: dict[int, deque[int]] = field(default_factory=dict)
    _new: list[int] = field(default_factory=list)  # kinds that were not waiting before
    # By mix and kind of job: the work that the job adds, and its kind of place; None: it adds none.
    _gains: dict[tuple[Hashable, int], tuple[float, int] | None] = field(default_factory=dict)
    # By GPU: the jobs that run there, and the best start; None: no waiting job adds work.
    _seats: dict[int, PlacedJobs] = field(default_factory=dict)
    _best: dict[int, _Offer | None] = field(default_factory=dict)

    def add(self, job: int) -> None:
        kind = self.kinds[job]
        if kind not in self._waiting:
            self._waiting[kind] = deque()
            self._new.append(kind)
        self._waiting[kind].append(job)

    def take(self, gpus: Sequence[PlacedJobs]) -> JobStart | None:
        if not self._waiting:
            return None
        for at, seats in enumerate(gpus):
            if self._seats.get(at) is not seats:
                self._seats[at], self._best[at] = seats, None
                self._compare(at, self._waiting)
            elif self._new:
                self._compare(at, self._new)
        self._new.clear()
        best = max(filter(None, self._best.values()), default=None)
        if best is None:
            return None
        at, kind, place_kind = -best.minus_gpu, -best.minus_kind, -best.minus_place_kind
        job = self._waiting[kind].popleft()
        if not self._waiting[kind]:
            del self._waiting[kind]
            for other, offer in self._best.items():
                if offer and offer.minus_kind == -kind:
                    self._best[other] = None
                    self._compare(other, self._waiting)
        taken = {seat.place for seat in gpus[at]}
        places = enumerate(self.room.places)
        free = (place for place, each in places if each == place_kind and place not in taken)
        return JobStart(job, at, next(free))

    def _compare(self, at: int, kinds: Iterable[int]) -> None:
        seats, best = self._seats[at], self._best[at]
        mix = self.room.mix(seats)
        for kind in kinds:
            if (mix, kind) not in self._gains:
                self._gains[mix, kind] = self._gain(seats, self._waiting[kind][0])
            if gain := self._gains[mix, kind]:
                added_work, place_kind = gain
                offer = _Offer(added_work, -len(seats), -at, -kind, -place_kind)
                best = offer if best is None else max(offer, best)
        self._best[at] = best

    def _gain(self, seats: PlacedJobs, job: int) -> tuple[float, int] | None:
        before = self.room.worth(seats) if seats else 0.0
        gains = [
            (self.room.worth(together) - before, -self.room.places[place])
            for place, together in self.room.options(job, seats)
        ]
        gain, place_kind = max(gains, default=(0.0, 0))
        return (gain, -place_kind) if gain > _LEAST_GAIN else None


def queue_of(
    policy: Policy, room: GpuCapacity, alone_s: Sequence[float], kinds: Sequence[int]
) -> JobQueue:
    """Return an empty queue."""
    match policy:
        case "first-come":
            return InOrder(room)
        case "shortest-first":
            return InOrder(room, alone_s)
        case "best-fit":
            return BestFit(room, kinds)


Predict = Callable[[Sequence[Profile], Arrangement], MixPrediction]
"""Predicts a mix, as `advisor.prediction.predictor.Predictor.predict`."""

_Mix = tuple[tuple[int, int], ...]
"""The jobs on a GPU, sorted: the kind of each, and the first place equivalent to its own."""


class Paces:
    """Predicts each mix once and caches it, independent of the order of its jobs.

    Args:
        predict: Predicts a mix.
        profiles: Profile of each job, shape (jobs,); equal profiles are one kind.
        sharing: How each GPU is shared; job n of it is whichever job is in place n.
        most: Most jobs at once on a GPU, if `sharing` does not fix it; at least 1.
        most_risk: Highest chance of running out of memory that is allowed, 0..1.
    """

    def __init__(
        self, predict: Predict, profiles: Sequence[Profile], sharing: Sharing, most: int,
        most_risk: float,
    ) -> None:  # fmt: skip
        if most < 1:
            raise InvalidInput(f"a GPU has at least 1 job at once, got {most}")
        self._predict, self._most_risk = predict, most_risk
        self.sharing = sharing
        self._anywhere = without_starts(sharing)  # where an instance begins changes no pace
        first: dict[int, int] = {}
        self.kinds = tuple(first.setdefault(id(each), len(first)) for each in profiles)
        self._profiles = list({id(each): each for each in profiles}.values())
        marks = _place_keys(sharing, most)
        self._places = tuple(marks.index(mark) for mark in marks)
        self._predicted: dict[_Mix, MixPrediction] = {}

    @property
    def room(self) -> GpuCapacity:
        """The capacity of each GPU, for a queue."""
        return GpuCapacity(self._places, self.fits, self._worth, self._mix)

    @property
    def confirmed(self) -> bool:
        """True if every mix predicted so far is of a kind with fitted real runs."""
        return all(each.confirmed_on_hardware for each in self._predicted.values())

    @property
    def estimated_from(self) -> str | None:
        """The GPUs whose runs stood in for this one's in a mix predicted so far; None: none."""
        keys = (each.estimated_from for each in self._predicted.values())
        return next((key for key in keys if key), None)

    def of(self, seats: PlacedJobs) -> MixPrediction:
        """Predict the jobs in `seats`, at least one; copies may swap their places in it."""
        mix = self._mix(seats)
        if mix not in self._predicted:
            profiles = [self._profiles[kind] for kind, _ in mix]
            sharing = restricted(self._anywhere, [place for _, place in mix])
            self._predicted[mix] = self._predict(profiles, sharing)
        return self._predicted[mix]

    def fits(self, seats: PlacedJobs) -> bool:
        """Return whether memory holds them."""
        return self.of(seats).oom_probability <= self._most_risk

    def _worth(self, seats: PlacedJobs) -> float:
        """Sum of the speeds of the jobs, each 1 when alone."""
        return sum(1 / job.slowdown for job in self.of(seats).jobs)

    def _mix(self, seats: PlacedJobs) -> _Mix:
        return tuple(sorted([(self.kinds[job], self._places[place]) for job, place in seats]))

    def paced_s(self, seats: PlacedJobs) -> list[Interval]:
        """Return the step of each of `seats`, with its share of epoch ends.

        Copies of a job in equal places may swap steps.
        """
        steps_s = [job.paced_s for job in self.of(seats).jobs]
        places = [(self.kinds[job], self._places[place]) for job, place in seats]
        order = sorted(range(len(seats)), key=places.__getitem__)
        by_seat = dict(zip(order, steps_s, strict=True))
        return [by_seat[at] for at in range(len(seats))]

    def pace(self, level: Level) -> Pace:
        """Return the pace for the event loop, if all steps take the time at `level`."""
        return lambda seats: [1 / each.at(level) for each in self.paced_s(seats)]


def _place_keys(sharing: Sharing, most: int) -> tuple[object, ...]:
    """A key for each place of a GPU, equal for equivalent places."""
    match sharing.mode:
        case "serial":
            return (None,)
        case "naive" | "mps":
            return (None,) * most
        case "mps-limits":
            return sharing.limits
        case "mig":
            return tuple(each.profile for each in sharing.instances)
        case "hybrid" | "phases":
            return tuple(range(max(named_jobs(sharing))))
        case _:
            assert_never(sharing.mode)
