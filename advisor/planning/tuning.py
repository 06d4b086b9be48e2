"""Limits tried one after another where they promise most, rough answers learning from each try.

A rough answer errs alike for limits that are alike. So what is predicted of a few corrects what is
said roughly of all others: by Gaussian processes, one for each job, of the log of predicted over
rough steps.
"""

from collections.abc import Callable, Sequence

import numpy as np

from advisor.prediction.script import Floats

# Limits are alike that differ by a factor of this: of 0.5, 1 and 2 octaves the best for 6 job sets.
_OCTAVES = 1.0
# Of the log of a step: predictions are that uneven between limits that are all but the same.
_UNEVEN = 0.01


def promising(
    vectors: Floats,
    rough_s: Floats,
    predicted_s: Callable[[int], Sequence[float]],
    cost: Callable[[Floats], Floats],
    tries: tuple[Sequence[int], int],
) -> list[int]:
    """Positions in `vectors` of those that were tried, the best first.

    Args:
        vectors: Limits of the jobs in per cent, shape (vectors, jobs).
        rough_s: Seconds of a step of each job, likewise.
        predicted_s: The same of the vector at a position, as it is predicted.
        cost: Of every vector, shape (vectors,), from seconds of a step of each job.
        tries: Positions that are tried whatever is said of them, at least one, and how many more.
    """
    first, more = tries
    tried, rough, places = list(first), np.log(rough_s), np.log2(vectors)
    known = [np.log(predicted_s(at)) - rough[at] for at in tried]
    for _ in range(min(more, len(vectors) - len(tried))):
        costs = cost(np.exp(rough + _learnt(places, tried, np.array(known))))
        costs[tried] = np.inf
        tried.append(int(np.argmin(costs)))
        known.append(np.log(predicted_s(tried[-1])) - rough[tried[-1]])
    steps = rough.copy()
    steps[tried] += known
    costs = cost(np.exp(steps))
    return sorted(tried, key=lambda at: float(costs[at]))


def _learnt(places: Floats, tried: Sequence[int], known: Floats) -> Floats:
    """What `known` of those that were tried says of all, shape (vectors, jobs)."""
    middle = known.mean(axis=0)
    distance = ((places[:, None] - places[tried][None]) ** 2).sum(axis=2)
    likeness = np.exp(-distance / (2 * _OCTAVES**2))
    own = likeness[tried] + _UNEVEN * np.eye(len(tried))
    return np.asarray(middle + likeness @ np.linalg.solve(own, known - middle))
