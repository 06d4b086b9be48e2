"""How fast jobs run beside each other under one sharing: predicted once for each mix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.prediction.mix_prediction import Interval, Level, MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.traversal import named_jobs, restricted, without_starts
from advisor.timeline.event_loop import Pace, PlacedJobs
from advisor.timeline.queue_policies import GpuCapacity
from advisor.workload.profile import Profile

Predict = Callable[[Sequence[Profile], Arrangement], MixPrediction]
"""Whatever answers for a mix; `advisor.prediction.predictor.Predictor.predict` does."""

_Mix = tuple[tuple[int, int], ...]
"""What runs on a GPU, sorted: of each job its kind, and the first place that is like its own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is kept of the prediction of a mix.

    Attributes:
        step_s: Of each job, in the order of the mix, shape (jobs,).
        fits: Whether memory holds it.
        worth: Sum of the jobs' speeds, each 1 when alone.
    """

    step_s: tuple[Interval, ...]
    fits: bool
    worth: float
    memory_mib: float
    power_w: Interval | None
    gract: float | None
    smact: float | None
    confirmed_on_hardware: bool


class Paces:
    """Asks a predictor about each mix once and remembers: mixes repeat, in whatever order.

    Args:
        predict: Answers for a mix.
        profiles: Of each job, shape (jobs,); jobs of one and the same profile are of one kind.
        sharing: Of each GPU. What it says of a job holds for whoever has the place of that number.
        most: Jobs on a GPU at once where `sharing` does not say how many, at most.
        most_risk: Chance to run out of memory that a mix may have, 0..1.

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
        self._known: dict[_Mix, Answer] = {}

    @property
    def room(self) -> GpuCapacity:
        """Of each GPU, for a queue."""
        return GpuCapacity(
            self._places,
            lambda seats: self.of(seats).fits,
            lambda seats: self.of(seats).worth,
            self._mix,
        )

    @property
    def mixes(self) -> int:
        """How many were predicted so far."""
        return len(self._known)

    @property
    def confirmed(self) -> bool:
        """Whether real runs stand behind every mix that was predicted so far."""
        return all(each.confirmed_on_hardware for each in self._known.values())

    def of(self, seats: PlacedJobs) -> Answer:
        """What `seats`, at least one, do together."""
        mix = self._mix(seats)
        found = self._known.get(mix)
        if found is None:
            found = self._known[mix] = self._asked(mix)
        return found

    def _mix(self, seats: PlacedJobs) -> _Mix:
        return tuple(sorted([(self.kinds[job], self._places[place]) for job, place in seats]))

    def step_s(self, seats: PlacedJobs) -> list[Interval]:
        """Of each of `seats`; copies of a job in equal places may swap paces."""
        if len(seats) == 1:
            return list(self.of(seats).step_s)
        answer = self.of(seats)
        places = [(self.kinds[job], self._places[place]) for job, place in seats]
        order = sorted(range(len(seats)), key=places.__getitem__)
        in_turn = sorted(zip(order, answer.step_s, strict=True), key=lambda each: each[0])
        return [step_s for _, step_s in in_turn]

    def pace(self, level: Level) -> Pace:
        """For the loop, if all steps take as long as `level` says."""
        return lambda seats: [1 / each.at(level) for each in self.step_s(seats)]

    def _asked(self, mix: _Mix) -> Answer:
        profiles = [self._profiles[kind] for kind, _ in mix]
        answer = self._predict(profiles, restricted(self._anywhere, [place for _, place in mix]))
        return Answer(
            step_s=tuple(job.step_s for job in answer.jobs),
            fits=answer.oom_probability <= self._most_risk,
            worth=sum(1 / job.slowdown for job in answer.jobs),
            memory_mib=answer.memory_total_mib,
            power_w=answer.power_w,
            gract=answer.gract,
            smact=answer.smact,
            confirmed_on_hardware=answer.confirmed_on_hardware,
        )


def _places(sharing: Sharing, most: int) -> tuple[object, ...]:
    """Of each place of a GPU, what tells it from those that are not equal to it."""
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
