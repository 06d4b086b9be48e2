"""A number with the bounds that nine of ten measurements keep, and how such numbers combine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, sqrt
from statistics import fmean, median
from typing import Literal, TypeVar

from advisor.errors import InvalidInput

Level = Literal["p05", "p50", "p95"]
LEVELS: tuple[Level, ...] = ("p05", "p50", "p95")
"""A whole mix is computed at each of these: the errors of all its jobs are fully correlated."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median, and the bounds between which nine of ten measurements should fall.

    Raises:
        InvalidInput: The bounds do not contain the median.
    """

    p05: float
    p50: float
    p95: float

    def __post_init__(self) -> None:
        if not self.p05 <= self.p50 <= self.p95:
            raise InvalidInput(f"an interval holds its median, got {self}")

    def at(self, level: Level) -> float:
        """The median, or the bound that `level` names."""
        return self.p50 if level == "p50" else self.p95 if level == "p95" else self.p05

    def scaled(self, factor: float) -> "Interval":
        return Interval(self.p05 * factor, self.p50 * factor, self.p95 * factor)

    def later(self, by: float) -> "Interval":
        """With so much more, which is known."""
        return Interval(self.p05 + by, self.p50 + by, self.p95 + by)

    def widened(self, factor: float) -> "Interval":
        """With both ends so many times as far from the middle, in logs; `factor` is at least 1."""
        return Interval(
            self.p50 * (self.p05 / self.p50) ** factor,
            self.p50,
            self.p50 * (self.p95 / self.p50) ** factor,
        )

    def from_part(self, part: float) -> "Interval":
        """Without what lies below `part` of the middle, at most 1."""
        return Interval(max(self.p05, self.p50 * part), self.p50, self.p95)

    def times(self, factor: "Interval") -> "Interval":
        """The product of two independent numbers: the logs of their errors add in quadrature."""
        down, up = map(hypot, self._reaches(), factor._reaches())
        return interval_around(self.p50 * factor.p50, -down, up)

    def at_least(self, other: "Interval") -> "Interval":
        """Of two answers that both bound a number from below, the higher at each level."""
        return Interval(
            max(self.p05, other.p05), max(self.p50, other.p50), max(self.p95, other.p95)
        )

    def over_alike(self, other: "Interval") -> "Interval":
        """The ratio to `other`, where one has the error of the other and one of its own beside."""

        def own(wide: float, narrow: float) -> float:
            return sqrt(max(0.0, wide**2 - narrow**2))

        (down, up), (other_down, other_up) = self._reaches(), other._reaches()
        low = hypot(own(down, other_down), own(other_up, up))
        high = hypot(own(up, other_up), own(other_down, down))
        return interval_around(self.p50 / other.p50, -low, high)

    def _reaches(self) -> tuple[float, float]:
        """How far the ends lie from the middle, in logs."""
        return log(self.p50 / self.p05), log(self.p95 / self.p50)

    def at_most(self, most: "Interval") -> "Interval":
        """With its median and upper end no higher than those of `most`."""
        middle = min(self.p50, most.p50)
        return Interval(min(self.p05, middle), middle, max(middle, min(self.p95, most.p95)))

    def contains(self, measured: float) -> bool:
        return self.p05 <= measured <= self.p95


def interval_around(middle: float, low: float, high: float) -> Interval:
    """Interval whose ends are `low` (at most 0) and `high` from its middle, in logs."""
    return Interval(middle * exp(low), middle, middle * exp(high))


def between(first: Interval, second: Interval, weight: float) -> Interval:
    """Both at once, level by level in logs: `first` at `weight` 0, `second` at 1."""
    pairs = ((first.p05, second.p05), (first.p50, second.p50), (first.p95, second.p95))
    return Interval(*(a ** (1 - weight) * b**weight for a, b in pairs))


def spanning(answers: Sequence[Interval]) -> Interval:
    """The interval that contains all of `answers`, any of which may be right."""
    return Interval(
        min(each.p05 for each in answers),
        median([each.p50 for each in answers]),
        max(each.p95 for each in answers),
    )


def around(values: Sequence[float]) -> Interval:
    """The interval of the results at each of `LEVELS`.

    With queues, slower steps may let the last job end sooner, since others start elsewhere.
    """
    return Interval(min(values), values[LEVELS.index("p50")], max(values))


_Value = TypeVar("_Value")


def all_known(values: Iterable[_Value | None]) -> list[_Value] | None:
    """`values` if all are known; None if one is None."""
    found = list(values)
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def mean_interval(values: Sequence[Interval | None], weights: Sequence[float]) -> Interval | None:
    """The mean with fully correlated errors; None where a value is not known."""
    if (known := all_known(values)) is None:
        return None
    return Interval(*(fmean([each.at(level) for each in known], weights) for level in LEVELS))
