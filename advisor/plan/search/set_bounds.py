"""What jobs cost at least in rooms that do not slow each other, by dynamic programming."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from advisor.plan.search.cost_table import Option
from advisor.plan.search.job_sets import Sets
from advisor.plan.search.partitions import Cut, Room
from advisor.plan.search.set_scores import Worth
from advisor.prediction.trace import Floats


@dataclass(frozen=True)
class Bounds:
    """The least of the two numbers that a plan's cost follows from; see `Worth`.

    Attributes:
        cuts: Of the GPU.
        worths: What each set is worth in each kind of room, by the ways to share it.
    """

    sets: Sets
    cuts: Sequence[Cut]
    worths: dict[Room, list[tuple[Option, Worth]]]
    _known: dict[tuple[Room, ...], tuple[Floats, Floats]] = field(default_factory=dict)

    @cached_property
    def of_cuts(self) -> tuple[Floats, Floats]:
        """Largest and sum of each state in each cut, each shape (cuts, states)."""
        if not self.cuts:
            nothing = np.full((0, self.sets.states), np.inf)
            return nothing, nothing
        bounds = [self.least(cut.rooms) for cut in self.cuts]
        most, total = (np.stack(each) for each in zip(*bounds, strict=True))
        return most, total

    def least(self, rooms: tuple[Room, ...]) -> tuple[Floats, Floats]:
        """What each state costs at least in `rooms`: largest and sum, each shape (states,)."""
        if (found := self._known.get(rooms)) is None:
            found = self._known[rooms] = self._worked_out(rooms)
        return found

    def _worked_out(self, rooms: tuple[Room, ...]) -> tuple[Floats, Floats]:
        if not rooms:
            nobody = np.full(self.sets.states, np.inf)
            nobody[0] = 0.0
            return nobody, nobody
        most, total = self.least(rooms[1:])
        own_most, own_total = self._best[rooms[0]]
        _, _, left = self.sets.pairs
        starts = self.sets.first_pairs
        largest = np.maximum(own_most, most[left])
        return (
            np.minimum.reduceat(largest, starts),
            np.minimum.reduceat(own_total + total[left], starts),
        )

    @cached_property
    def _best(self) -> dict[Room, tuple[Floats, Floats]]:
        """The least of each number over the ways to share a room, each shape (pairs,)."""
        _, chosen, _ = self.sets.pairs
        return {
            room: (
                np.minimum.reduce([own.most for _, own in ways])[chosen],
                np.minimum.reduce([own.total for _, own in ways])[chosen],
            )
            for room, ways in self.worths.items()
        }
