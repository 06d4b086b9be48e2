"""How far steps in turns follow the pace of mates that wait for their hosts.

Under naive sharing a job that fills the GPU has what its mates leave: with mates that work on the
GPU for the shares a of their steps, its own step takes its GPU part over 1 - sum(a). A mate that
its host slows leaves more, and one whose windows varied when it was profiled may be slow or fast.
"""

from collections.abc import Sequence

import numpy as np

from advisor.prediction.correction import host_spread
from advisor.prediction.job_features import is_gpu_bound
from advisor.prediction.memory import Z95
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile


def widened(low: Floats, high: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Log distances of both ends of 90 % intervals, at most and at least 0, wider by `spread`."""
    more = Z95 * spread
    return -np.hypot(low, more), np.hypot(high, more)


def mates_spread(profiles: Sequence[Profile], steps_s: Floats) -> Floats:
    """Standard deviation of the log of each step by what mates' windows differed by, shape (jobs,).

    0 for jobs that do not fill the GPU: their steps are their own.

    Args:
        profiles: Of jobs that take turns.
        steps_s: Of each in the mix, shape (jobs,).
    """
    given = np.array([each.gpu_s or 0.0 for each in profiles]) / steps_s
    varied = (given * host_spread(profiles, steps_s)) ** 2
    fills = np.array([is_gpu_bound(each) for each in profiles])
    of_mates = np.sqrt(np.maximum(0.0, varied.sum() - varied))
    return np.where(fills, of_mates / np.where(fills, given, 1.0), 0.0)
