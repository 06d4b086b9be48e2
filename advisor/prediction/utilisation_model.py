"""What can be said of a mix where a profile has no kernel trace: nvidia-smi's numbers, no more.

The capacity model takes utilisation for how busy the GPU is. What it misses then is drawn straight
in a few columns, each known for every GPU that has a driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.hardware.gpu_partition import limit_shares
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Mps, Naive
from advisor.sharing.traversal import together
from advisor.workload.measured import Counters
from advisor.workload.plausible import MOST_LOG, check_number
from advisor.workload.profile import Profile
from advisor.workload.spec import STRICT

COLUMNS = (
    "log_capacity_slowdown",  # how crowded the capacity model finds it
    "log_degree",
    "busy",  # utilisation alone
    "mates_busy",  # the others', summed
    "log_limit",
    "mates_log_limit",  # mean of the others'
    "log_busy_over_limit",  # 0 if the limit leaves more than that
    "log_step_ms",  # long steps have long kernels, which make short ones wait
    "mates_log_step_ms",
    "power",  # over the GPU's limit: tells full SMs from empty ones; nan where not measured
    "mates_power",
)

# A column further out than this many of its standard deviations counts as if it were there: a
# straight line says nothing far from where it was drawn.
_FURTHEST = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationModel:
    """What the capacity model misses in one mode, and how far the answer is off then.

    Attributes:
        low: Quantile, 5 %, of log(measured / predicted) for families left out.
        high: Quantile, 95 %, likewise.
        constant: Log of measured over the capacity model's step, where all columns are average.
        mean: Of each column, shape (columns,); empty: the capacity model stands as it is.
        scale: Standard deviation of each column, likewise.
        weights: What one standard deviation of each column adds to the log, likewise.
    """

    __pydantic_config__ = STRICT

    low: float
    high: float
    constant: float = 0.0
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.low <= 0 <= self.high:
            raise InvalidInput("the bounds of an interval lie on both sides of its middle")
        check_number("a bound of an interval", max(-self.low, self.high), MOST_LOG)
        widths = {len(self.mean), len(self.scale), len(self.weights)}
        if widths not in ({0}, {len(COLUMNS)}):
            raise InvalidInput("answers without a trace were fitted to other columns than these")
        if min(self.scale, default=1.0) <= 0:
            raise InvalidInput("the scales of a model's columns are above 0")

    def log_correction(self, x: Floats) -> Floats:
        """Log of measured over the capacity model's step, shape (jobs,); x: (jobs, columns)."""
        if not self.weights:
            return np.zeros(len(x))
        away = (x - np.array(self.mean)) / np.array(self.scale)
        return np.asarray(self.constant + drawn(away) @ np.array(self.weights))


def drawn(away: Floats) -> Floats:
    """Columns of mean 0 and scale 1 as they are weighed: what is not known counts as average."""
    return np.nan_to_num(np.clip(away, -_FURTHEST, _FURTHEST), nan=0.0)


def seen_by_driver(profile: Profile) -> Profile:
    """`profile` as nvidia-smi alone has it: step, utilisation, power and memory.

    GRACT stands for the driver's utilisation, as both are shares of time in which any kernel ran;
    the GPU path is what that makes of a step. Without counters the GPU path stays as it is.
    """
    counters = profile.counters
    return replace(
        profile,
        host_s=None,
        gpu_s=counters.gract * profile.step_s if counters else profile.gpu_s,
        counters=counters and Counters(source="nvml", gract=counters.gract),
        mps=None,
        trace=None,
    )


def why_wide(profiles: Sequence[Profile], sharing: Arrangement) -> str | None:
    """Why answers for `profiles` that share have wide intervals; None if each has a trace."""
    bare = sorted({each.name for each in profiles if each.trace is None})
    if not bare or len(profiles) == 1 or together(sharing) is None:
        return None
    return (
        f"ranges are wide, for {', '.join(bare)} has no kernel trace: utilisation alone does not "
        "tell how many SMs a job leaves to others"
    )


def columns(
    profiles: Sequence[Profile], sharing: Naive | Mps, gpu: Gpu, capacity_s: Floats
) -> Floats:
    """One row for each job, one column for each of `COLUMNS`, shape (jobs, columns).

    Args:
        profiles: As `seen_by_driver` has them, each with a GPU path.
        sharing: Of two jobs or more.
        gpu: On which they share.
        capacity_s: Step of each by the capacity model, shape (jobs,).
    """
    step_s = np.array([each.step_s for each in profiles])
    busy = np.array([each.busy_share for each in profiles])
    shares = np.array(limit_shares(sharing.limits, gpu.sms) or [1.0] * len(profiles))
    power = np.array([_power(each, gpu) for each in profiles])
    mates = len(profiles) - 1
    found = {
        "log_capacity_slowdown": np.log(capacity_s / step_s),
        "log_degree": np.full(len(profiles), np.log(len(profiles))),
        "busy": busy,
        "mates_busy": busy.sum() - busy,
        "log_limit": np.log(shares),
        "mates_log_limit": (np.log(shares).sum() - np.log(shares)) / mates,
        "log_busy_over_limit": np.log(np.maximum(1.0, busy / shares)),
        "log_step_ms": np.log(1e3 * step_s),
        "mates_log_step_ms": (np.log(1e3 * step_s).sum() - np.log(1e3 * step_s)) / mates,
        "power": power,
        "mates_power": power.sum() - power,
    }
    return np.column_stack([found[name] for name in COLUMNS])


def _power(profile: Profile, gpu: Gpu) -> float:
    if profile.power_w is None or gpu.power_limit_w is None:
        return float("nan")
    return profile.power_w / gpu.power_limit_w
