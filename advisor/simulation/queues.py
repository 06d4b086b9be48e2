"""The queue policies, which decide which job starts next, and where.

* ``first-come``: jobs in the order of arrival. No job overtakes, so one that does not fit delays
  all behind it. It goes to the GPU with the fewest jobs, to the first place that holds it.
* ``shortest-first``: as first-come, but in the order of the time alone.
* ``best-fit``: the job and GPU with the largest predicted gain in work done a second, of equal
  gains the job that came first; a job that would reduce it does not start. A job may wait for long
  while others fit better.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, assert_never

from advisor.errors import InvalidInput
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.groups import named_jobs, restricted, without_starts
from advisor.simulation import Policy
from advisor.simulation.events import JobQueue, JobStart, Pace, PlacedJob, PlacedJobs
from advisor.workload.job import Job
from advisor.workload.profile import Profile

# Least gain in work done a second, relative to the job alone, with which a job joins others.
_LEAST_GAIN = 1e-6
# Gains that are equal to so many digits are a tie: the rest is rounding.
_DIGITS = 9


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
        counts = list(map(len, gpus))
        for at in sorted(range(len(gpus)), key=counts.__getitem__):
            if counts[at] == len(self.room.places):
                break
            if self._refused.get(at) is gpus[at]:
                continue
            if option := next(self.room.options(job, gpus[at]), None):
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
        offers = ((gain[:2], -len(seats), -at, gain) for at, seats in enumerate(gpus)
                  if (gain := self._best_next_to(at, seats)))  # fmt: skip
        best = max(offers, default=None)
        if best is None:
            return None
        *_, minus_at, gain = best
        _, job = self._waiting[gain.kind].popleft()
        if not self._waiting[gain.kind]:
            del self._waiting[gain.kind]
        self._best = {mix: each for mix, each in self._best.items()
                      if each is None or each.kind != gain.kind}  # fmt: skip
        taken = {seat.place for seat in gpus[-minus_at]}
        free = (place for place, each in enumerate(self.room.places)
                if each == gain.place_kind and place not in taken)  # fmt: skip
        return JobStart(job, -minus_at, next(free))

    def _best_next_to(self, at: int, seats: PlacedJobs) -> _Gain | None:
        before = self._mixes.get(at)
        if before is None or before[0] is not seats:
            self._mixes[at] = before = seats, self.room.mix(seats)
        mix = before[1]
        if mix not in self._best:
            gains = []
            for kind, waiting in self._waiting.items():
                came, job = waiting[0]
                if (mix, kind) not in self._gains:
                    self._gains[mix, kind] = self._gain(seats, job)
                if gain := self._gains[mix, kind]:
                    gains.append(_Gain(gain[0], -came, kind, gain[1]))
            self._best[mix] = max(gains, default=None)
        return self._best[mix]

    def _gain(self, seats: PlacedJobs, job: int) -> tuple[float, int] | None:
        before = self.room.worth(seats) if seats else 0.0
        gains = [
            (self.room.worth(together) - before, -self.room.places[place])
            for place, together in self.room.options(job, seats)
        ]
        gain, place_kind = max(gains, default=(0.0, 0))
        return (round(gain, _DIGITS), -place_kind) if gain > _LEAST_GAIN else None


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
        predict: Predicts a mix while so many GPUs run jobs and share the host's cores.
        jobs: All jobs; those of equal profile and constraints are one kind.
        sharing: How each GPU is shared; job n of it is whichever job is in place n.
        most: Most jobs at once on a GPU, if `sharing` does not fix it; at least 1.
        problem: Returns why these jobs may not share a GPU like this; None where they may.
    """

    def __init__(
        self, predict: Callable[[int], Predict], jobs: Sequence[Job], sharing: Sharing, most: int,
        problem: Callable[[Sequence[Job], Arrangement, MixPrediction], str | None],
    ) -> None:  # fmt: skip
        if most < 1:
            raise InvalidInput(f"a GPU has at least 1 job at once, got {most}")
        self._predict, self._problem = predict, problem
        self.sharing = sharing
        self._anywhere = without_starts(sharing)  # where an instance begins changes no pace
        constraints: list[tuple[object, ...]] = [
            (id(each.profile), each.user, each.isolated, each.data_parallel, each.protect)
            for each in jobs
        ]
        first: dict[tuple[object, ...], int] = {}
        self.kinds = tuple(first.setdefault(each, len(first)) for each in constraints)
        self._jobs = [jobs[constraints.index(each)] for each in first]
        marks = _place_keys(sharing, most)
        self._places = tuple(marks.index(mark) for mark in marks)
        self._predicted: dict[tuple[_Mix, int], MixPrediction] = {}
        self._problems: dict[_Mix, str | None] = {}

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

    def of(self, seats: PlacedJobs, busy_gpus: int = 1) -> MixPrediction:
        """Predict the jobs in `seats`, at least one; copies may swap their places in it."""
        mix = self._mix(seats)
        if (mix, busy_gpus) not in self._predicted:
            jobs, sharing = self._arranged(mix)
            profiles = [job.profile for job in jobs]
            self._predicted[mix, busy_gpus] = self._predict(busy_gpus)(profiles, sharing)
        return self._predicted[mix, busy_gpus]

    def problem(self, seats: PlacedJobs) -> str | None:
        """Return why the jobs in `seats` may not run at once; None where they may."""
        mix = self._mix(seats)
        if mix not in self._problems:
            self._problems[mix] = self._problem(*self._arranged(mix), self.of(seats))
        return self._problems[mix]

    def fits(self, seats: PlacedJobs) -> bool:
        """Return whether they may run at once."""
        return self.problem(seats) is None

    def _arranged(self, mix: _Mix) -> tuple[list[Job], Arrangement]:
        """The jobs of a mix, and how they share."""
        sharing = restricted(self._anywhere, [place for _, place in mix])
        return [self._jobs[kind] for kind, _ in mix], sharing

    def _worth(self, seats: PlacedJobs) -> float:
        """Sum of the speeds of the jobs, each 1 when alone."""
        return sum(1 / job.slowdown for job in self.of(seats).jobs)

    def _mix(self, seats: PlacedJobs) -> _Mix:
        return tuple(sorted([(self.kinds[job], self._places[place]) for job, place in seats]))

    def paced_s(self, seats: PlacedJobs, busy_gpus: int = 1) -> list[Interval]:
        """Return the step of each of `seats`, with its share of epoch ends.

        Copies of a job in equal places may swap steps.
        """
        steps_s = [job.paced_s for job in self.of(seats, busy_gpus).jobs]
        places = [(self.kinds[job], self._places[place]) for job, place in seats]
        order = sorted(range(len(seats)), key=places.__getitem__)
        by_seat = dict(zip(order, steps_s, strict=True))
        return [by_seat[at] for at in range(len(seats))]

    def pace(self, level: Level, busy_gpus: int = 1) -> Pace:
        """Return the pace for the event loop, if all steps take the time at `level`."""
        speeds: dict[_Mix, tuple[float, ...]] = {}

        def pace(seats: PlacedJobs) -> tuple[float, ...]:
            key = tuple([(self.kinds[job], self._places[place]) for job, place in seats])
            if key not in speeds:
                steps_s = self.paced_s(seats, busy_gpus)
                speeds[key] = tuple(1 / each.at(level) for each in steps_s)
            return speeds[key]

        return pace


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
        case "hybrid" | "phases" | "queue":
            return tuple(range(max(named_jobs(sharing))))
        case _:
            assert_never(sharing.mode)
