"""What a step takes at a batch size at which nobody measured it, from what it takes at others.

Part of a step is the same at every batch size (launches, the optimizer, weights that are read), and
a small batch leaves SMs idle, so its examples cost more. Hence three laws for time and energy: a
larger batch takes no less; an example of it takes no more; and each further example takes at least
as much as the one before. They leave a band, narrow between sizes that lie close.
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
# the A100 slices of MISO and MIGPerf by `research.batch_score`.
_ALIKE, _OF_BAND = 0.03, 0.4

# As `_ALIKE`, of memory: tensors grow in proportion, what the allocator keeps does so roughly.
_MEMORY_ALIKE = 0.02


@dataclass(frozen=True, slots=True)
class AtBatch:
    """What is expected at a batch size.

    Attributes:
        middle: The expected value.
        spread: Standard deviation of its log.
    """

    middle: float
    spread: float


def band(known: Mapping[int, float], batch: int) -> tuple[float, float]:
    """The least and the most that the three laws allow at `batch`; equal where it is known.

    Measurements that break the laws among themselves leave the line between the nearest two.

    Args:
        known: What a step takes, by batch size; at least one.
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
    """Time or energy of a step: midway in the band between sizes, and at its foot beyond them.

    Beyond, the line through the nearest two goes on, as far as the other laws let it.
    """
    low, high = band(known, batch)
    between = min(known) < batch < max(known)
    middle = sqrt(low) * sqrt(high) if between else low
    if low == high or low <= 0:
        return AtBatch(middle, _away(known, batch, _ALIKE))
    return AtBatch(middle, hypot(_away(known, batch, _ALIKE), _OF_BAND * log(high / low)))


def memory_at(known: Mapping[int, float], batch: int) -> AtBatch:
    """Memory: on the line through the nearest two sizes, since activations grow in proportion.

    Beyond the largest the line is the least: where activations are few the peak is at the
    optimizer's step, and a larger batch moves it to the backward pass, where they all count.
    """
    low, high = band(known, batch)
    spread = _away(known, batch, _MEMORY_ALIKE)
    if min(known) < batch < max(known):
        return AtBatch(high, spread)
    above = batch > max(known) and low > 0
    return AtBatch(low, hypot(spread, _OF_BAND * log(high / low)) if above else spread)


def _away(known: Mapping[int, float], batch: int, spread: float) -> float:
    """`spread` and once more for each doubling from the nearest size that is known; 0 at one."""
    doublings = min(abs(log2(each / batch)) for each in known)
    return spread * (1 + doublings) if doublings else 0.0


def check_near(name: str, measured: Mapping[int, object], batch: int) -> None:
    """See that `batch` is not too far from those at which the workload `name` was `measured`.

    Raises:
        InvalidInput: It is.
    """
    least, most = min(measured), max(measured)
    if least / FARTHEST <= batch <= most * FARTHEST:
        return
    side = f"largest, {most}" if batch > most else f"smallest, {least}"
    raise InvalidInput(
        f"{name}: batch {batch} is more than {FARTHEST:g} times beyond the {side}, at which it was "
        f"measured, and nothing is estimated so far out. Measure it nearer to that."
    )
