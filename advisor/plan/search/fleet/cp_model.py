"""A plan of groups as a model of CP-SAT, and the objectives as its expressions.

Every group is an optional interval. Intervals of which at most as many overlap as there are equal
GPUs can always be dealt out to these, so the model needs no GPU numbers. It has no pauses between
groups either: setting a GPU up takes time, and no plan costs less for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import Any, NamedTuple

from advisor.plan.search.fleet.placement import FleetGroup, PlacedGroup, Problem

# CP-SAT takes integers. Units of time in the longest plan; parts of the joules of an idle GPU in
# one unit of time. All values are rounded down, so that the least cost found is a lower bound.
_RESOLUTION, _IDLE_PARTS = 2**16, 1_000
_LEAST_IDLE_W = 1.0


class _Piece(NamedTuple):
    """A group that a plan may contain; `start` is 0 where it does not."""

    group: FleetGroup
    there: Any
    start: Any


@dataclass(frozen=True)
class PackingModel:
    """A CP-SAT model of plans of `groups` for `problem`."""

    model: Any
    groups: Sequence[FleetGroup]
    problem: Problem

    def ask(self, hint: Sequence[PlacedGroup]) -> None:
        """Add what a plan is, what is minimised, and the `hint` to start from."""
        self._each_job_once()
        self._no_more_at_once_than_gpus()
        self.model.minimize(self.problem.objective.minimised(self))
        self._begin_at(hint)

    def taken(self, value: Callable[[Any], int]) -> list[FleetGroup]:
        """The groups of the plan found, in the order of their starts."""
        there = [piece for piece in self._pieces if value(piece.there)]
        there.sort(key=lambda each: value(each.start))
        return [piece.group for piece in there]

    def cost_of(self, wanted: float) -> float:
        """Cost of a plan, from the minimised value `wanted`."""
        jobs = sum(self.problem.counts)
        return max(0.0, self.problem.objective.packed_cost(wanted, self, jobs))

    @cached_property
    def unit_s(self) -> float:
        """Seconds of a unit of time, such that `latest` bounds every plan without idle gaps."""
        longest_s = [0.0] * len(self.problem.counts)
        for group in self.groups:
            for kind in group.members:
                longest_s[kind] = max(longest_s[kind], group.runs_s)
        every = zip(longest_s, self.problem.counts, strict=True)
        return sum(s * count for s, count in every) / _RESOLUTION

    @property
    def latest(self) -> int:
        """Upper bound of the end of every job, in units."""
        return _RESOLUTION

    @property
    def part_j(self) -> float:
        idle_w = max(_LEAST_IDLE_W, self.problem.idle_power_w or 0.0)
        return idle_w * self.unit_s / _IDLE_PARTS

    def _units(self, seconds: float) -> int:
        return floor(seconds / self.unit_s)

    @cached_property
    def _pieces(self) -> list[_Piece]:
        """Every group as often as its jobs allow; of copies, each starts after the one before."""
        found = []
        for group in self.groups:
            needed = Counter(group.members).items()
            most = min(self.problem.counts[kind] // count for kind, count in needed)
            copies = [self._piece(group) for _ in range(most)]
            for one, other in pairwise(copies):
                self.model.add_implication(other.there, one.there)
                self.model.add(one.start <= other.start).only_enforce_if(other.there)
            found += copies
        return found

    def _piece(self, group: FleetGroup) -> _Piece:
        there = self.model.new_bool_var("")
        start = self.model.new_int_var(0, self.latest, "")
        self.model.add(start <= self.latest * there)
        return _Piece(group, there, start)

    def _each_job_once(self) -> None:
        for kind, count in enumerate(self.problem.counts):
            runs = [
                piece.group.members.count(kind) * piece.there
                for piece in self._pieces
                if kind in piece.group.members
            ]
            self.model.add(sum(runs) == count)

    def _no_more_at_once_than_gpus(self) -> None:
        intervals = []
        for group, there, start in self._pieces:
            size = self._units(group.runs_s)
            intervals.append(
                self.model.new_optional_fixed_size_interval_var(start, size, there, "")
            )
        self.model.add_cumulative(intervals, [1] * len(intervals), self.problem.gpus)

    @cached_property
    def end(self) -> Any:
        """End of the last job."""
        end = self.model.new_int_var(0, self.latest, "")
        runs = []
        for group, there, start in self._pieces:
            takes = self._units(group.runs_s)
            self.model.add(start + takes * there <= end)
            runs.append(takes * there)
        self.model.add(sum(runs) <= self.problem.gpus * end)  # follows; the solver sees it late
        return end

    def sum_of_ends(self) -> Any:
        """Sum of the ends of all jobs."""
        return sum(
            len(group.members) * start + sum(map(self._units, group.ends_s)) * there
            for group, there, start in self._pieces
        )

    def late_jobs(self) -> Any:
        """Number of jobs that miss their deadlines."""
        return sum(self._missed())

    def _missed(self) -> Iterator[Any]:
        """Whether each job with a deadline misses it, for every piece that it may be in."""
        for group, there, start in self._pieces:
            for kind, end_s in zip(group.members, group.ends_s, strict=True):
                deadline_s = self.problem.deadlines_s[kind]
                if deadline_s is not None:
                    missed = self.model.new_bool_var("")
                    due = min(self.latest, self._units(deadline_s) + 1)
                    ends = start + self._units(end_s) * there
                    self.model.add(ends <= due + self.latest * missed)
                    yield missed

    def joules(self) -> Any:
        """Energy of all GPUs until the last job ends."""
        idle_w = max(_LEAST_IDLE_W, self.problem.idle_power_w or 0.0)
        beyond_idle = [
            floor(((group.energy_j or 0.0) - idle_w * group.runs_s) / self.part_j) * there
            for group, there, _ in self._pieces
        ]
        return sum(beyond_idle) + _IDLE_PARTS * self.problem.gpus * self.end

    def _begin_at(self, hint: Sequence[PlacedGroup]) -> None:
        planned = list(hint)
        for group, there, start in self._pieces:
            found = next((each for each in planned if each.group is group), None)
            if found is not None:
                planned.remove(found)
            self.model.add_hint(there, found is not None)
            self.model.add_hint(start, 0 if found is None else self._units(found.start_s))
