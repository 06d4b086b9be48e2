"""Limits for several jobs: which there are, and which of them come to the same."""

from collections.abc import Sequence
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from advisor.gpu.catalogue import Gpu
from advisor.prediction.rehearsal import limit_shares
from advisor.prediction.script import Floats
from advisor.sharing import Mps


def different(sharings: Sequence[Mps], gpu: Gpu) -> list[Mps]:
    """The first of those that leave every job the same SMs."""
    first: dict[tuple[float, ...], Mps] = {}
    for each in sharings:
        first.setdefault(tuple(limit_shares(each.limits, gpu)), each)
    return list(first.values())


def distinct(vectors: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each different vector comes first, and which of these each vector is."""
    rows = np.ascontiguousarray(vectors.astype(np.uint8))  # limits are whole per cents
    _, kept, which = np.unique(
        rows.view(f"V{vectors.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    return kept, which


def of_copies(grid: Sequence[int], copies: int) -> list[tuple[int, ...]]:
    """Limits of `grid` for copies of a job: at most two, for copies by themselves want one.

    Which of them has which says nothing.
    """
    return [(each,) * copies for each in grid] + [
        (low,) * few + (high,) * (copies - few)
        for low, high in combinations(grid, 2)
        for few in range(1, copies)
    ]


def count(places: Sequence[Sequence[int]], grid: Sequence[int]) -> int:
    """Vectors of `grid` that `of_copies` makes."""
    return prod(len(grid) + (len(each) - 1) * comb(len(grid), 2) for each in places)
