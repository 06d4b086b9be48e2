"""90 % intervals of steps: quantiles of the errors on model families left out (split conformal).

A job that fills the GPU is off by replay's error, a host-bound job by the host's speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from advisor.errors import InvalidInput
from advisor.files.reading import MOST_LOG, check_number
from advisor.prediction.host import is_gpu_bound, log_beyond_host
from advisor.prediction.prediction import Interval, interval_around
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

# Logs of a step over its host's path at which quantiles are taken: a host-bound job's errors shrink
# with it, those of GPU-bound ones next to others do not change.
HOST_BOUND_AT = (0.0, 0.1, 0.3, 0.8)
GPU_BOUND_AT = (0.0,)

# A job is taken to follow its host until its step is this far beyond the host's path, in logs.
_FOLLOWS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """5 and 95 % quantiles of log(measured / predicted) at growing distances from the host path."""

    at: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.at) == len(self.low) == len(self.high) > 0 or sorted(self.at) != [*self.at]:
            raise InvalidInput("an interval has both ends at each of its growing distances")
        if max(self.low) > 0 or min(self.high) < 0:
            raise InvalidInput("the ends of an interval lie on both sides of its middle")
        check_number("an end of an interval", max(*self.high, -min(self.low)), MOST_LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Ends of the intervals of one mode.

    Attributes:
        gpu_bound: For jobs that keep the GPU busy alone: over `scale_by_others`.
        host_bound: For the others.
        by_others: Growth of a GPU-bound job's interval by the hosts of the others.
    """

    gpu_bound: Ends
    host_bound: Ends
    by_others: float = 0.0

    def __post_init__(self) -> None:
        check_number("growth of an interval by the others", self.by_others, 1e3)

    def log_ends(self, profiles: Sequence[Profile], steps_s: Floats) -> tuple[Floats, Floats]:
        """Return logs of both ends over the predicted steps of jobs together, shapes (jobs,)."""
        distance = host_distance(profiles, steps_s)
        scale = scale_by_others(profiles, steps_s, distance, self.by_others)
        gpu_bound = np.array(list(map(_weight_of_gpu, profiles)))
        low, high = (
            gpu_bound * np.interp(distance, self.gpu_bound.at, of_gpu) * scale
            + (1 - gpu_bound) * np.interp(distance, self.host_bound.at, of_host)
            for of_gpu, of_host in (
                (self.gpu_bound.low, self.host_bound.low),
                (self.gpu_bound.high, self.host_bound.high),
            )
        )
        return with_moments(profiles, steps_s, low, high)

    def around(self, profile: Profile, step_s: float) -> Interval:
        """Return the interval of a job by itself around its predicted step."""
        low, high = self.log_ends([profile], np.array([step_s]))
        return interval_around(step_s, float(low[0]), float(high[0]))


# Shares of busy time between which a job without a trace counts as partly GPU-bound: nvidia-smi is
# not so exact that one per cent may decide.
_HARDLY, _SURELY = 0.85, 0.95


def _weight_of_gpu(profile: Profile) -> float:
    """Return the degree to which a job is GPU-bound, 0..1."""
    if profile.trace is not None:
        return float(is_gpu_bound(profile))
    return float(np.interp(profile.busy_share or 0.0, (_HARDLY, _SURELY), (0.0, 1.0)))


def with_moments(
    profiles: Sequence[Profile], steps_s: Floats, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    """Return the ends `low` and `high`, wider by the moments in which jobs were measured alone.

    A job at its pace alone may be as fast or as slow as in any of them. A job that fills the GPU
    may be so together with others, too. Other moments are the host's, which a job follows less the
    longer others make it wait. Moments that agree do not narrow a range.
    """
    if not any(each.moments for each in profiles):
        return low, high
    follows = [_follows_moments(p, float(s)) for p, s in zip(profiles, steps_s, strict=True)]
    fastest, slowest = np.transpose([each.log_spread for each in profiles]) * follows
    return -np.hypot(low, fastest), np.hypot(high, slowest)


def _follows_moments(profile: Profile, step_s: float) -> float:
    if profile.is_estimate:  # of its moments, another GPU has the host's part
        beyond = log_beyond_host(profile, step_s)
    elif is_gpu_bound(profile):
        return 1.0
    else:
        beyond = log(step_s / profile.step_s)
    return min(1.0, max(0.0, 1 - beyond / _FOLLOWS))


def host_distance(profiles: Sequence[Profile], steps_s: Floats) -> Floats:
    """Return the log of each step over the job's host path, at least 0, shape (jobs,)."""
    return np.array(list(map(log_beyond_host, profiles, steps_s.tolist())))


def scale_by_others(
    profiles: Sequence[Profile], steps_s: Floats, distance: Floats, growth: float
) -> Floats:
    """Return the factor on the intervals of GPU-bound jobs, at least 1, shape (jobs,).

    Under time slicing a job that fills the GPU has the time that the others leave. Those that
    follow their hosts leave more or less of it: the share of the GPU that each of them uses.
    """
    if not growth:
        return np.ones(len(profiles))
    used = np.array([each.gpu_s or 0.0 for each in profiles]) / steps_s
    varied = (used * np.maximum(0.0, 1 - distance / _FOLLOWS)) ** 2
    return np.asarray(1 + growth * np.sqrt(np.maximum(0.0, varied.sum() - varied)))
