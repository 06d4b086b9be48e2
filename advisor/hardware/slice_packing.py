"""Places pieces on the slices of a GPU, none of which two of them share."""

from collections.abc import Sequence


def packed(pieces: Sequence[tuple[Sequence[int], int]]) -> tuple[int, ...] | None:
    """A start for each of `pieces`, no slice shared; None if they do not fit.

    Pieces with the fewest possible starts are placed first, each at its first free start.

    Args:
        pieces: For each piece, the slices at which it may start, and how many it covers.
    """
    hardest_first = sorted(range(len(pieces)), key=lambda index: len(pieces[index][0]))
    found = _search([pieces[index] for index in hardest_first])
    if found is None:
        return None
    starts = dict(zip(hardest_first, found, strict=True))
    return tuple(starts[index] for index in range(len(pieces)))


def covered(start: int, size: int) -> int:
    """The slices from `start` on, a bit each."""
    return ((1 << size) - 1) << start


def _search(
    pieces: Sequence[tuple[Sequence[int], int]], taken: int = 0, skipped: int = 0
) -> list[int] | None:
    """As `packed`, around slices that are taken; `skipped` starts of the first were tried before.

    Of two equal pieces the second lies after the first: the other way round is the same.
    """
    if not pieces:
        return []
    (starts, size), *others = pieces
    for tried, start in enumerate(starts[skipped:], start=skipped + 1):
        slices = covered(start, size)
        if not slices & taken:
            equal = others and others[0] == pieces[0]
            rest = _search(others, taken | slices, tried if equal else 0)
            if rest is not None:
                return [start, *rest]
    return None
