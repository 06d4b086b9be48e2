"""What jobs cost at least in rooms that do not slow each other, by dynamic programming.

A plan costs what follows from the largest of one number over its rooms, and from the sum of another
(`Objective.of_sets`): of a makespan the largest end, of a throughput the sum of speeds, of energy
both, since the GPU is awake until the last job ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from advisor.plan.search.cost_table import Option
from advisor.plan.search.job_sets import Sets
from advisor.plan.search.partitions import Cut, Room
from advisor.prediction.trace import Floats

Price = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Largest and sum over rooms -> cost, and what decides between equal costs."""


@dataclass(frozen=True, slots=True)
class SetScores:
    """Two numbers of every set under one option; infinite where it may not be.

    Attributes:
        most: Of which a plan counts the largest, shape (sets,).
        total: Of which it counts the sum, likewise.
    """

    most: Floats
    total: Floats

    def without(self, these: NDArray[np.bool_]) -> "SetScores":
        """The same where `these` sets, shape (sets,), may not be."""
        return SetScores(*(np.where(these, np.inf, each) for each in (self.most, self.total)))


@dataclass(frozen=True)
class Bounds:
    """The least of the two numbers that a plan's cost follows from; see `SetScores`.

    Attributes:
        cuts: Of the GPU.
        scores: Of each set in each kind of room, by the ways to share it.
    """

    sets: Sets
    cuts: Sequence[Cut]
    scores: dict[Room, list[tuple[Option, SetScores]]]
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
            for room, ways in self.scores.items()
        }
