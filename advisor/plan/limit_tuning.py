"""MPS limits: the vectors that are always tried, and how more promising ones are found.

Estimates of similar limits have similar errors. So predictions for a few vectors correct the
estimates for all others: by one Gaussian process for each job, of the log of predicted over
estimated steps.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb, prod

import numpy as np
from numpy.typing import NDArray

from advisor.hardware.gpus import Gpu
from advisor.hardware.partition import limit_shares
from advisor.prediction.trace import Floats
from advisor.sharing import Mps
from advisor.workload.job import Job
from advisor.workload.profile import Profile

# Equal limits that are tried, in per cent: multiples of a compute slice of MIG, k/7. Those that
# leave SMs unused are skipped.
EQUAL_GRID = (14, 28, 43, 57, 71, 86)

# Sums, in per cent, of unequal limits in proportion to the SMs that each job uses alone.
PROPORTIONAL_SUMS = (100, 150, 200)
_SMALLEST, _LARGEST = 5, 100


# Limits with a smaller sum, in per cent, leave SMs unused.
_LEAST_SUM = 90

# Limits of all other jobs where some are protected, in per cent.
_LIMITS_OF_OTHERS = (57.0, 43.0, 28.0, 14.0)


def worth_trying(limit: float, jobs: int) -> bool:
    """Whether `jobs` jobs with one `limit`, in per cent, may use all SMs or nearly all."""
    return limit * jobs >= _LEAST_SUM


def limit_vectors(profiles: Sequence[Profile]) -> list[Mps]:
    """MPS with the limits that are always tried for these jobs."""
    degree = len(profiles)
    equal = {round(100 / degree), *(each for each in EQUAL_GRID if worth_trying(each, degree))}
    vectors = [(float(each),) * degree for each in sorted(equal)]
    vectors += [_proportional(profiles, total) for total in PROPORTIONAL_SUMS]
    return [Mps(vector) for vector in dict.fromkeys(vectors)]


def protecting_limits(jobs: Sequence[Job]) -> list[Mps]:
    """MPS with limits for all but the protected jobs; none where all or no jobs are protected."""
    protected = [job.protect is not None for job in jobs]
    if len(set(protected)) < 2:
        return []
    return [Mps(tuple(100.0 if own else limit for own in protected)) for limit in _LIMITS_OF_OTHERS]


def _proportional(profiles: Sequence[Profile], total: int) -> tuple[float, ...]:
    demands = [_demand(profile) for profile in profiles]
    shares = [total * demand / sum(demands) for demand in demands]
    return tuple(float(min(_LARGEST, max(_SMALLEST, round(share)))) for share in shares)


def _demand(profile: Profile) -> float:
    """Mean share of the SMs that a job uses alone; its busy share where no counter tells."""
    counters = profile.counters
    if counters is not None and counters.sm_active:
        return counters.sm_active
    return profile.busy_share or 1.0


# Length scale of the likeness of limits, in octaves: best of 0.5, 1 and 2 for 6 job sets.
_OCTAVES = 1.0
# Variance of the log of a predicted step between limits that hardly differ.
_UNEVEN = 0.01


def promising(
    vectors: Floats,
    estimated_s: Floats,
    predicted_s: Callable[[int], Sequence[float]],
    cost: Callable[[Floats], Floats],
    tries: tuple[Sequence[int], int],
) -> list[int]:
    """Indices of the `vectors` that were tried, the best first.

    Args:
        vectors: Limits of the jobs in per cent, shape (vectors, jobs).
        estimated_s: Estimated seconds of a step of each job, same shape.
        predicted_s: Predicts the vector at an index: seconds of a step of each job.
        cost: Cost of every vector, shape (vectors,), given the seconds of a step of each job.
        tries: Indices that are tried in any case, at least one; and how many more to try.
    """
    first, more = tries
    tried, estimated, places = list(first), np.log(estimated_s), np.log2(vectors)
    known = [np.log(predicted_s(at)) - estimated[at] for at in tried]
    for _ in range(min(more, len(vectors) - len(tried))):
        costs = cost(np.exp(estimated + _learnt(places, tried, np.array(known))))
        costs[tried] = np.inf
        tried.append(int(np.argmin(costs)))
        known.append(np.log(predicted_s(tried[-1])) - estimated[tried[-1]])
    steps = estimated.copy()
    steps[tried] += known
    costs = cost(np.exp(steps))
    return sorted(tried, key=lambda at: float(costs[at]))


def _learnt(places: Floats, tried: Sequence[int], known: Floats) -> Floats:
    """Correction of every vector learnt from those `tried`, shape (vectors, jobs)."""
    middle = known.mean(axis=0)
    distance = ((places[:, None] - places[tried][None]) ** 2).sum(axis=2)
    likeness = np.exp(-distance / (2 * _OCTAVES**2))
    own = likeness[tried] + _UNEVEN * np.eye(len(tried))
    return np.asarray(middle + likeness @ np.linalg.solve(own, known - middle))


def different(sharings: Sequence[Mps], gpu: Gpu) -> list[Mps]:
    """`sharings` without those that leave every job the same SMs as an earlier one.

    Nor those that leave every job all SMs, as MPS without limits does.
    """
    first: dict[tuple[float, ...], Mps] = {}
    for each in sharings:
        first.setdefault(tuple(limit_shares(each.limits, gpu.sms)), each)
    return [each for shares, each in first.items() if min(shares) < 1]


def distinct(vectors: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Index of the first of each group of equal vectors, and the group of each vector."""
    rows = np.ascontiguousarray(vectors.astype(np.uint8))  # limits are whole per cents
    _, kept, which = np.unique(
        rows.view(f"V{vectors.shape[1]}").ravel(), return_index=True, return_inverse=True
    )
    return kept, which


def of_copies(grid: Sequence[int], copies: int) -> list[tuple[int, ...]]:
    """Vectors for copies of one job, of at most two different limits of `grid`: more are no use.

    Which copy has which limit does not matter.
    """
    return [(each,) * copies for each in grid] + [
        (low,) * few + (high,) * (copies - few)
        for low, high in combinations(grid, 2)
        for few in range(1, copies)
    ]


def count(places: Sequence[Sequence[int]], grid: Sequence[int]) -> int:
    """Number of vectors that `of_copies` makes of `grid`."""
    return prod(len(grid) + (len(each) - 1) * comb(len(grid), 2) for each in places)
