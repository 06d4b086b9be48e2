"""The paces of all mixes that jobs over time may form, on GPUs of one model or more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from typing import assert_never

from advisor.hardware.gpus import GpuCount
from advisor.prediction.prediction import Interval, Level, MixPrediction
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.groups import groups, named_jobs, restricted, without_starts
from advisor.simulation.events import Pace, PlacedJob, PlacedJobs
from advisor.simulation.queues import GpuCapacity
from advisor.simulation.turns import repartition_s
from advisor.workload.job import Job
from advisor.workload.profile import Profile

Predict = Callable[[Sequence[Profile], Arrangement], MixPrediction]
"""Predicts a mix, as `advisor.prediction.predictor.Predictor.predict`."""

_Mix = tuple[tuple[int, int], ...]
"""The jobs on a GPU, sorted: the kind of each, and the first place equivalent to its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGpus:
    """Equal GPUs, and how each is shared by at most so many jobs.

    Attributes:
        predict: Predicts a mix while so many GPUs of a host run jobs and share its cores.
        jobs: All jobs, as profiled on this model of GPU.
        layouts: Ways to share one GPU, and for each the most jobs at once, at least 1, if it does
            not fix them. Job n of a sharing is whichever job is in place n.
        problem: Returns why these jobs may not share a GPU like this; None where they may.
    """

    count: GpuCount
    predict: Callable[[int], Predict]
    jobs: Sequence[Job]
    layouts: Sequence[tuple[Sharing, int]]
    problem: Callable[[Sequence[Job], Arrangement, MixPrediction], str | None]


@dataclass(frozen=True, slots=True)
class _Layout:
    """A way to share the GPUs of a pool, with the numbers of its places."""

    pool: int
    sharing: Sharing
    places: range


class Paces:
    """Predicts each mix once and caches it, independent of the order of its jobs.

    Places are numbered over all pools and layouts, so that a number has both. Jobs of equal profile
    and constraints are one kind. Work is counted in steps, which all GPUs have in common.

    Attributes:
        kinds: Kind of each job, shape (jobs,).
    """

    def __init__(self, pools: Sequence[SharedGpus]) -> None:
        self.pools = tuple(pools)
        constraints: list[tuple[object, ...]] = [
            (
                id(each.profile),
                each.user,
                each.isolated,
                each.data_parallel,
                each.protect,
                each.gpus,
            )
            for each in pools[0].jobs
        ]
        first: dict[tuple[object, ...], int] = {}
        self.kinds = tuple(first.setdefault(each, len(first)) for each in constraints)
        numbers = [constraints.index(each) for each in first]
        self._jobs = [[pool.jobs[at] for at in numbers] for pool in pools]
        self._places: list[int] = []
        self._layouts: list[_Layout] = []  # of each place
        offers: list[tuple[range, ...]] = []
        for at, pool in enumerate(pools):
            own = []
            for sharing, most in pool.layouts:
                marks, start = _place_keys(sharing, most), len(self._places)
                self._places += [start + marks.index(mark) for mark in marks]
                own.append(range(start, len(self._places)))
                layout = _Layout(at, without_starts(sharing), own[-1])
                self._layouts += [layout] * len(marks)
            offers += [tuple(own)] * pool.count.gpus
        self._offers = tuple(offers)
        self._predicted: dict[tuple[_Mix, int], MixPrediction] = {}
        self._problems: dict[_Mix, str | None] = {}

    @property
    def hosts(self) -> list[int]:
        """Numbers of GPUs of all hosts."""
        counts = [pool.count for pool in self.pools]
        return [count.host_gpus for count in counts for _ in range(count.hosts)]

    @property
    def room(self) -> GpuCapacity:
        """The capacity of the GPUs, for a queue."""
        widths = tuple(job.gpus for job in self.pools[0].jobs)
        ends = list(accumulate(self.hosts, initial=0))
        return GpuCapacity(
            tuple(self._places),
            lambda seats: self.problem(seats) is None,
            self._worth,
            self._mix,
            self._offers,
            widths if max(widths) > 1 else (),
            [range(*pair) for pair in pairwise(ends)],
        )

    @property
    def cores(self) -> float:
        """Cores of each host, as of the first; infinite: enough."""
        return self.of((PlacedJob(0, 0),)).host_cores or inf

    def change_s(self, before: int, after: int) -> float:
        """Return the seconds that an idle GPU takes to change its layout between two places."""
        old, new = self._layouts[before], self._layouts[after]
        if old is new:
            return 0.0
        (group, *_), (other, *_) = groups(old.sharing, 1), groups(new.sharing, 1)
        return repartition_s(group, other)

    def layout(self, number: int) -> Sharing:
        """Return how the GPU of the place with that number is shared."""
        return self._layouts[number].sharing

    def place(self, number: int) -> int:
        """Return the place with that number, counted on its own GPU."""
        return number - self._layouts[number].places.start

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
            pool, jobs, sharing = self._arranged(mix)
            profiles = [job.profile for job in jobs]
            self._predicted[mix, busy_gpus] = pool.predict(busy_gpus)(profiles, sharing)
        return self._predicted[mix, busy_gpus]

    def problem(self, seats: PlacedJobs) -> str | None:
        """Return why the jobs in `seats` may not run at once; None where they may."""
        mix = self._mix(seats)
        if mix not in self._problems:
            pool, jobs, sharing = self._arranged(mix)
            wide = next((job for job in jobs if job.gpus > 1), None)
            if wide and (len(jobs) > 1 or sharing.mode not in ("serial", "naive", "mps")):
                self._problems[mix] = f"it takes {wide.gpus} whole GPUs, with nothing else on them"
            else:
                self._problems[mix] = pool.problem(jobs, sharing, self.of(seats))
        return self._problems[mix]

    def _arranged(self, mix: _Mix) -> tuple[SharedGpus, list[Job], Arrangement]:
        """The GPUs that a mix runs on, its jobs, and how they share."""
        layout = self._layouts[mix[0][1]]
        sharing = restricted(layout.sharing, [place - layout.places.start for _, place in mix])
        own = self._jobs[layout.pool]
        return self.pools[layout.pool], [own[kind] for kind, _ in mix], sharing

    def _worth(self, seats: PlacedJobs) -> float:
        """Sum of the speeds of the jobs, each 1 when alone on the first model of GPU."""
        total, mix = 0.0, self._mix(seats)
        own = self._jobs[self._layouts[seats[0].place].pool]
        for (kind, _), answer in zip(mix, self.of(seats).jobs, strict=True):
            faster = self._jobs[0][kind].alone_step_s / own[kind].alone_step_s
            total += faster / answer.slowdown
        return total

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
