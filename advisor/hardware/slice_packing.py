"""Where pieces can lie side by side in a row of slices: memory's, or an instance's compute."""

from collections.abc import Sequence


def packed(wanted: Sequence[tuple[Sequence[int], int]]) -> tuple[int, ...] | None:
    """A start for each of `wanted`, no slice shared; None where there is none.

    Of all ways the first by starts, the pieces with the fewest choices first.

    Args:
        wanted: Of each piece, the slices at which it may start, and how many it covers.
    """
    hardest_first = sorted(range(len(wanted)), key=lambda index: len(wanted[index][0]))
    found = _search([wanted[index] for index in hardest_first], 0)
    if found is None:
        return None
    starts = dict(zip(hardest_first, found, strict=True))
    return tuple(starts[index] for index in range(len(wanted)))


def covered(start: int, size: int) -> int:
    """The slices from `start` on, a bit each."""
    return ((1 << size) - 1) << start


def _search(wanted: Sequence[tuple[Sequence[int], int]], taken: int) -> list[int] | None:
    if not wanted:
        return []
    (starts, size), *others = wanted
    for start in starts:
        slices = covered(start, size)
        if not slices & taken:
            rest = _search(others, taken | slices)
            if rest is not None:
                return [start, *rest]
    return None
