"""How often measured steps lie in their intervals, and the uncertainty of that share.

Errors within a family are correlated, so the bootstrap resamples families, not jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from advisor.validate.predicted_and_measured import JobComparison

NOMINAL = 0.90
_DRAWS = 2000
_SEED = 20261121
_FEWEST_FAMILIES = 2


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of jobs inside their 90 % interval.

    Attributes:
        low: Lower end of its 95 % interval under a bootstrap over families; None if there is
            one family only.
        high: Upper end.
    """

    share: float
    low: float | None
    high: float | None

    @property
    def holds(self) -> bool | None:
        """Whether 90 % lies in that interval; None if there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= NOMINAL <= self.high


def coverage_of(jobs: Sequence[JobComparison]) -> Coverage:
    """Coverage of `jobs`, each of which has an interval; the same draws for the same jobs."""
    families = sorted({job.family for job in jobs})
    inside = np.array([sum(j.inside for j in jobs if j.family == each) for each in families])
    count = np.array([sum(j.family == each for j in jobs) for each in families])
    share = float(inside.sum() / count.sum())
    if len(families) < _FEWEST_FAMILIES:
        return Coverage(share, None, None)
    equal = np.full(len(families), 1 / len(families))
    draws = np.random.default_rng(_SEED).multinomial(len(families), equal, size=_DRAWS)
    shares = draws @ inside / (draws @ count)
    low, high = np.quantile(shares, (0.025, 0.975))
    return Coverage(share, float(low), float(high))
