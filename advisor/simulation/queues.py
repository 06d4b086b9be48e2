"""Who starts next, and where: the queue policies.

* ``first-come``: whoever came first. Nobody overtakes, so one too big for what is free holds up
  all behind it. Goes to the GPU with the fewest jobs, to its first place that holds it.
* ``shortest-first``: whoever takes the least time alone; otherwise the same.
* ``best-fit``: whichever job, on whichever GPU, adds most to the work done a second there, by
  prediction; nobody whom the others would be better off without. A job may wait for long while
  others fit better.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from advisor.simulation.loop import Queue, Seat, Seats, Start

Policy = Literal["first-come", "shortest-first", "best-fit"]

# Work done a second that a job must add, of its own alone, to be started beside others.
_LEAST_GAIN = 1e-6


def _anyhow(_seats: Seats) -> bool:
    return True


def _nothing(_seats: Seats) -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Room:
    """What each of some equal GPUs has room for.

    Attributes:
        places: A number for each place of a GPU; equal ones are interchangeable.
        fits: Whether a GPU's memory holds all of these jobs, each in its place.
        worth: Work done a second by all of these jobs, each counted as 1 when alone.
    """

    places: tuple[int, ...]
    fits: Callable[[Seats], bool] = _anyhow
    worth: Callable[[Seats], float] = _nothing

    def options(self, job: int, seats: Seats) -> Iterator[tuple[int, Seats]]:
        """Each place that `job` can take beside `seats`, and who runs there then."""
        taken = {seat.place for seat in seats}
        tried = set()
        for place, kind in enumerate(self.places):
            if place not in taken and kind not in tried:
                tried.add(kind)
                together = tuple(sorted((*seats, Seat(job, place))))
                if self.fits(together):
                    yield place, together


@dataclass(slots=True)
class InOrder:
    """Jobs in the order of their `ranks`, those of one rank as they came; nobody overtakes.

    Attributes:
        ranks: Lowest first, shape (jobs,); None: as they came.
    """

    room: Room
    ranks: Sequence[float] | None = None
    _waiting: list[tuple[float, int, int]] = field(default_factory=list)
    _came: int = 0
    # GPUs as they were when they did not hold the first in line.
    _refused: dict[int, Seats] = field(default_factory=dict)

    def add(self, job: int) -> None:
        rank = 0.0 if self.ranks is None else self.ranks[job]
        self._came += 1
        heappush(self._waiting, (rank, self._came, job))
        if self._waiting[0][2] == job:
            self._refused.clear()

    def take(self, gpus: Sequence[Seats]) -> Start | None:
        if not self._waiting:
            return None
        job = self._waiting[0][2]
        free = [at for at, seats in enumerate(gpus) if len(seats) < len(self.room.places)]
        for at in sorted(free, key=lambda at: len(gpus[at])):
            if self._refused.get(at) == gpus[at]:
                continue
            for place, _ in self.room.options(job, gpus[at]):
                heappop(self._waiting)
                self._refused.clear()
                return Start(job, at, place)
            self._refused[at] = gpus[at]
        return None


@dataclass(slots=True)
class BestFit:
    """Whichever job adds most where it goes.

    Attributes:
        kinds: Jobs of one kind are alike, and start as they came; shape (jobs,).
    """

    room: Room
    kinds: Sequence[int]
    _waiting: dict[int, deque[int]] = field(default_factory=dict)
    # Of each GPU: as it was when it was last looked at, and the best that it was offered then.
    _seen: dict[int, tuple[Seats, dict[int, tuple[float, int] | None]]] = field(
        default_factory=dict
    )

    def add(self, job: int) -> None:
        self._waiting.setdefault(self.kinds[job], deque()).append(job)

    def take(self, gpus: Sequence[Seats]) -> Start | None:
        offers = [
            (gain, -len(seats), -at, -kind, place)
            for at, seats in enumerate(gpus)
            if len(seats) < len(self.room.places)
            for kind, (gain, place) in self._offers(at, seats)
        ]
        if not offers:
            return None
        _, _, at, kind, place = max(offers)
        waiting = self._waiting[-kind]
        job = waiting.popleft()
        if not waiting:
            del self._waiting[-kind]
        return Start(job, -at, place)

    def _offers(self, at: int, seats: Seats) -> Iterator[tuple[int, tuple[float, int]]]:
        """Of each kind that waits and would add work on a GPU: how much, at which place."""
        if self._seen.get(at, (None,))[0] != seats:
            self._seen[at] = seats, {}
        known = self._seen[at][1]
        for kind, waiting in self._waiting.items():
            if kind not in known:
                known[kind] = self._offer(waiting[0], seats)
            if offer := known[kind]:
                yield kind, offer

    def _offer(self, job: int, seats: Seats) -> tuple[float, int] | None:
        before = self.room.worth(seats) if seats else 0.0
        gains = [
            (self.room.worth(together) - before, -place)
            for place, together in self.room.options(job, seats)
        ]
        gain, place = max(gains, default=(0.0, 0))
        return (gain, -place) if gain > _LEAST_GAIN else None


def queue_of(policy: Policy, room: Room, alone_s: Sequence[float], kinds: Sequence[int]) -> Queue:
    """An empty queue.

    Args:
        policy: As the first lines of this module say.
        room: Of each GPU.
        alone_s: Seconds that each job takes alone, shape (jobs,).
        kinds: Jobs of one kind are alike but for their length, shape (jobs,).
    """
    match policy:
        case "first-come":
            return InOrder(room)
        case "shortest-first":
            return InOrder(room, alone_s)
        case "best-fit":
            return BestFit(room, kinds)
