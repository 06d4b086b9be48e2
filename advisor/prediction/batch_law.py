"""What a step costs at a batch size that was not measured, from what it costs at others.

Part of a step costs the same at every batch size: launches, the optimizer, reading weights. A small
batch also leaves SMs idle, so its examples cost more. Hence three laws for time and energy: a
larger batch costs no less; an example in it costs no more; and each further example costs at least
as much as the one before. They leave a band, which is narrow between sizes that are close.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import hypot, log, log2, sqrt

from advisor.errors import InvalidInput

FARTHEST = 4.0
"""Times beyond the largest or smallest batch size measured, at which nothing is said any more."""

# Standard deviation of the log of a step at a measured size, and for each doubling from the nearest
# one as much again: kernels are chosen anew for each size. And as a share of the band's width. Both
# from the V100 of Zeus (NSDI'23 artifact, ml-energy/zeus, 5 networks); scored on its A40, and on
# the A100 slices of MISO and MIGPerf.
_ALIKE, _OF_BAND = 0.03, 0.4

# As `_ALIKE`, of memory: tensors grow in proportion, what the allocator keeps does so roughly.
_MEMORY_ALIKE = 0.02


@dataclass(frozen=True, slots=True)
class AtBatch:
    """What is expected at a batch size, and how uncertain that is.

    Attributes:
        middle: The expected value.
        spread: Standard deviation of its log.
    """

    middle: float
    spread: float


def band(known: Mapping[int, float], batch: int) -> tuple[float, float]:
    """Lower and upper bound that the three laws allow at `batch`; equal where it was measured.

    Measurements that contradict the laws are replaced by the line between the nearest two.

    Args:
        known: Cost of a step by batch size; at least one.
        batch: Examples a step.
    """
    if batch in known:
        return known[batch], known[batch]
    below = sorted((each for each in known if each < batch), reverse=True)[:2]
    above = sorted(each for each in known if each > batch)[:2]
    least = [known[below[0]]] if below else []
    least += [known[above[0]] * batch / above[0]] if above else []
    least += [_line(known, near[0], near[1], batch) for near in (below, above) if len(near) == 2]
    if below and above:
        most = _line(known, below[0], above[0], batch)
    else:
        most = known[below[0]] * batch / below[0] if below else known[above[0]]
    return min(max(least), most), most


def _line(known: Mapping[int, float], one: int, other: int, batch: int) -> float:
    return known[one] + (known[other] - known[one]) * (batch - one) / (other - one)


def step_at(known: Mapping[int, float], batch: int) -> AtBatch:
    """Time or energy of a step: the middle of the band between sizes, its lower end beyond them.

    Beyond the sizes measured, the line through the nearest two continues as far as the other laws
    allow.
    """
    low, high = band(known, batch)
    between = min(known) < batch < max(known)
    middle = sqrt(low) * sqrt(high) if between else low
    if low == high or low <= 0:
        return AtBatch(middle, _away(known, batch, _ALIKE))
    return AtBatch(middle, hypot(_away(known, batch, _ALIKE), _OF_BAND * log(high / low)))


def memory_at(known: Mapping[int, float], batch: int) -> AtBatch:
    """Memory: on the line through the nearest two sizes, since activations grow in proportion.

    Beyond the largest size the line is a lower bound: where activations are few, memory peaks at
    the optimizer's step, and a larger batch moves the peak to the backward pass, where all
    activations count.
    """
    low, high = band(known, batch)
    spread = _away(known, batch, _MEMORY_ALIKE)
    if min(known) < batch < max(known):
        return AtBatch(high, spread)
    above = batch > max(known) and low > 0
    return AtBatch(low, hypot(spread, _OF_BAND * log(high / low)) if above else spread)


def _away(known: Mapping[int, float], batch: int, spread: float) -> float:
    """`spread`, once more for each doubling from the nearest measured size; 0 at one."""
    doublings = min(abs(log2(each / batch)) for each in known)
    return spread * (1 + doublings) if doublings else 0.0


def check_near(name: str, measured: Mapping[int, object], batch: int) -> None:
    """Check that `batch` is near enough to the sizes at which `name` was `measured`.

    Raises:
        InvalidInput: It is not.
    """
    least, most = min(measured), max(measured)
    if least / FARTHEST <= batch <= most * FARTHEST:
        return
    side = f"largest, {most}" if batch > most else f"smallest, {least}"
    raise InvalidInput(
        f"{name}: batch {batch} is more than {FARTHEST:g} times beyond the {side}, at which it was "
        f"measured, and nothing is estimated so far out. Measure it nearer to that."
    )
