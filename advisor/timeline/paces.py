"""How fast jobs run together under one sharing, predicted once for each mix."""

from collections.abc import Callable, Sequence
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.prediction.interval import Interval, Level
from advisor.prediction.mix_prediction import MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.traversal import named_jobs, restricted, without_starts
from advisor.timeline.event_loop import Pace, PlacedJobs
from advisor.timeline.queue_policies import GpuCapacity
from advisor.workload.profile import Profile

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
        most: Most jobs at once on a GPU, if `sharing` does not fix it.
        most_risk: Highest chance of running out of memory that is allowed, 0..1.

    Raises:
        InvalidInput: `most` is below 1.
    """

    def __init__(
        self,
        predict: Predict,
        profiles: Sequence[Profile],
        sharing: Sharing,
        most: int,
        most_risk: float,
    ) -> None:
        if most < 1:
            raise InvalidInput(f"a GPU has at least 1 job at once, got {most}")
        self._predict, self._most_risk = predict, most_risk
        self.sharing = sharing
        self._anywhere = without_starts(sharing)  # where an instance begins changes no pace
        first: dict[int, int] = {}
        self.kinds = tuple(first.setdefault(id(each), len(first)) for each in profiles)
        self._profiles = list({id(each): each for each in profiles}.values())
        marks = _places(sharing, most)
        self._places = tuple(marks.index(mark) for mark in marks)
        self._known: dict[_Mix, MixPrediction] = {}

    @property
    def room(self) -> GpuCapacity:
        """The capacity of each GPU, for a queue."""
        return GpuCapacity(self._places, self.fits, self._worth, self._mix)

    @property
    def mixes(self) -> int:
        """Number of mixes predicted so far."""
        return len(self._known)

    @property
    def confirmed(self) -> bool:
        """Whether every mix predicted so far is of a kind with fitted real runs."""
        return all(each.confirmed_on_hardware for each in self._known.values())

    @property
    def estimated_from(self) -> str | None:
        """The GPUs whose runs stood in for this one's in a mix predicted so far; None: none."""
        known = (each.estimated_from for each in self._known.values())
        return next((each for each in known if each), None)

    def of(self, seats: PlacedJobs) -> MixPrediction:
        """Prediction of the jobs in `seats`, at least one; copies may swap their places in it."""
        mix = self._mix(seats)
        found = self._known.get(mix)
        if found is None:
            profiles = [self._profiles[kind] for kind, _ in mix]
            sharing = restricted(self._anywhere, [place for _, place in mix])
            found = self._known[mix] = self._predict(profiles, sharing)
        return found

    def fits(self, seats: PlacedJobs) -> bool:
        """Whether memory holds them."""
        return self.of(seats).oom_probability <= self._most_risk

    def _worth(self, seats: PlacedJobs) -> float:
        """Sum of the speeds of the jobs, each 1 when alone."""
        return sum(1 / job.slowdown for job in self.of(seats).jobs)

    def _mix(self, seats: PlacedJobs) -> _Mix:
        return tuple(sorted([(self.kinds[job], self._places[place]) for job, place in seats]))

    def step_s(self, seats: PlacedJobs) -> list[Interval]:
        """Step of each of `seats`; copies of a job in equal places may swap steps."""
        steps_s = [job.step_s for job in self.of(seats).jobs]
        if len(seats) == 1:
            return steps_s
        places = [(self.kinds[job], self._places[place]) for job, place in seats]
        order = sorted(range(len(seats)), key=places.__getitem__)
        found = dict(zip(order, steps_s, strict=True))
        return [found[at] for at in range(len(seats))]

    def pace(self, level: Level) -> Pace:
        """The pace for the event loop, if all steps take the time at `level`."""
        return lambda seats: [1 / each.at(level) for each in self.step_s(seats)]


def _places(sharing: Sharing, most: int) -> tuple[object, ...]:
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
