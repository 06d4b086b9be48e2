"""What a plan of columns is, and what is wanted of it, in the words of CP-SAT.

Every column is an interval that may be there or not. Intervals that overlap at most as often as
there are equal GPUs can always be dealt out to these, so no GPU needs a number while searching.
Nothing passes between them: to set a GPU up takes time, but no plan costs less for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import Any, NamedTuple

from advisor.plan.search.fleet.columns import Column, Placed
from advisor.plan.search.fleet.fleet_goals import Problem

# Times are whole numbers of a unit, of which the longest plan has so many; slowdowns and joules
# are whole numbers of these parts, the joules of those of an idle GPU in one unit. All are rounded
# down, so that no plan costs less than the least that is found.
_RESOLUTION, _SLOWDOWN_PARTS, _IDLE_PARTS = 2**16, 10_000, 1_000
_LEAST_IDLE_W = 1.0


class _Piece(NamedTuple):
    """A column that a plan may take; `start` is 0 where it does not."""

    column: Column
    there: Any
    start: Any


@dataclass(frozen=True)
class Search:
    """A model of CP-SAT that is to be filled, of `columns` for `problem`."""

    model: Any
    columns: Sequence[Column]
    problem: Problem

    def ask(self, hint: Sequence[Placed]) -> None:
        """Say what a plan is, what is wanted of it, and where to begin."""
        self._each_job_once()
        self._no_more_at_once_than_gpus()
        self.model.minimize(self._wanted())
        self._begin_at(hint)

    def taken(self, value: Callable[[Any], int]) -> list[Column]:
        """The columns of the plan that was found, in the order in which they start."""
        there = [piece for piece in self._pieces if value(piece.there)]
        there.sort(key=lambda each: value(each.start))
        return [piece.column for piece in there]

    def cost_of(self, wanted: float) -> float:
        """What a plan costs, of what is minimised."""
        match self.problem.aim:
            case "mean-completion":
                cost = wanted * self._unit_s / sum(self.problem.counts)
            case "fairness":
                cost = (wanted - 1) / _SLOWDOWN_PARTS  # whole parts are rounded up
            case "deadlines":
                cost = wanted // (self._latest + 1)
            case "energy":
                cost = wanted * self._part_j
            case _:
                cost = wanted * self._unit_s
        return max(0.0, cost)

    @cached_property
    def _unit_s(self) -> float:
        """No plan takes longer than so many that leaves no GPU idle between its columns."""
        longest_s = [0.0] * len(self.problem.counts)
        for column in self.columns:
            for kind in column.team:
                longest_s[kind] = max(longest_s[kind], column.runs_s)
        every = zip(longest_s, self.problem.counts, strict=True)
        return sum(s * count for s, count in every) / _RESOLUTION

    @property
    def _latest(self) -> int:
        """No job ends later."""
        return _RESOLUTION

    @property
    def _part_j(self) -> float:
        idle_w = max(_LEAST_IDLE_W, self.problem.idle_power_w or 0.0)
        return idle_w * self._unit_s / _IDLE_PARTS

    def _units(self, seconds: float) -> int:
        return floor(seconds / self._unit_s)

    @cached_property
    def _pieces(self) -> list[_Piece]:
        """Every column, as often as there are jobs for it; one copy starts after the other."""
        found = []
        for column in self.columns:
            needed = Counter(column.team).items()
            most = min(self.problem.counts[kind] // count for kind, count in needed)
            copies = [self._piece(column) for _ in range(most)]
            for one, other in pairwise(copies):
                self.model.add_implication(other.there, one.there)
                self.model.add(one.start <= other.start).only_enforce_if(other.there)
            found += copies
        return found

    def _piece(self, column: Column) -> _Piece:
        there = self.model.new_bool_var("")
        start = self.model.new_int_var(0, self._latest, "")
        self.model.add(start <= self._latest * there)
        return _Piece(column, there, start)

    def _each_job_once(self) -> None:
        for kind, count in enumerate(self.problem.counts):
            runs = [
                piece.column.team.count(kind) * piece.there
                for piece in self._pieces
                if kind in piece.column.team
            ]
            self.model.add(sum(runs) == count)

    def _no_more_at_once_than_gpus(self) -> None:
        intervals = []
        for column, there, start in self._pieces:
            size = self._units(column.runs_s)
            intervals.append(
                self.model.new_optional_fixed_size_interval_var(start, size, there, "")
            )
        self.model.add_cumulative(intervals, [1] * len(intervals), self.problem.gpus)

    @cached_property
    def _end(self) -> Any:
        """Of the last job."""
        end = self.model.new_int_var(0, self._latest, "")
        runs = []
        for column, there, start in self._pieces:
            takes = self._units(column.runs_s)
            self.model.add(start + takes * there <= end)
            runs.append(takes * there)
        self.model.add(sum(runs) <= self.problem.gpus * end)  # follows; the solver sees it late
        return end

    def _wanted(self) -> Any:
        match self.problem.aim:
            case "mean-completion":
                return sum(
                    len(column.team) * start + sum(map(self._units, column.ends_s)) * there
                    for column, there, start in self._pieces
                )
            case "fairness":
                return self._worst()
            case "deadlines":
                return (self._latest + 1) * sum(self._missed()) + self._end
            case "energy":
                return self._joules()
            case _:
                return self._end

    def _worst(self) -> Any:
        most = self._latest * _SLOWDOWN_PARTS
        worst = self.model.new_int_var(0, most, "")
        for column, there, start in self._pieces:
            for kind, end_s in set(zip(column.team, column.ends_s, strict=True)):
                alone = 1 + self._units(self.problem.alone_s[kind])
                ends = start + self._units(end_s) * there
                self.model.add(alone * worst >= _SLOWDOWN_PARTS * ends)
        return worst

    def _missed(self) -> Iterator[Any]:
        """Of every job that has a deadline, in every piece, whether it ends later."""
        for column, there, start in self._pieces:
            for kind, end_s in zip(column.team, column.ends_s, strict=True):
                deadline_s = self.problem.deadlines_s[kind]
                if deadline_s is not None:
                    missed = self.model.new_bool_var("")
                    due = min(self._latest, self._units(deadline_s) + 1)
                    ends = start + self._units(end_s) * there
                    self.model.add(ends <= due + self._latest * missed)
                    yield missed

    def _joules(self) -> Any:
        idle_w = max(_LEAST_IDLE_W, self.problem.idle_power_w or 0.0)
        beyond_idle = [
            floor(((column.energy_j or 0.0) - idle_w * column.runs_s) / self._part_j) * there
            for column, there, _ in self._pieces
        ]
        return sum(beyond_idle) + _IDLE_PARTS * self.problem.gpus * self._end

    def _begin_at(self, hint: Sequence[Placed]) -> None:
        planned = list(hint)
        for column, there, start in self._pieces:
            found = next((each for each in planned if each.column is column), None)
            if found is not None:
                planned.remove(found)
            self.model.add_hint(there, found is not None)
            self.model.add_hint(start, 0 if found is None else self._units(found.start_s))
