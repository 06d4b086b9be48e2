"""The effect of a power cap below the GPU's limit on pace and energy: not measured on this GPU.

Both laws depend on one number: how far the mix's mean power without a cap is above the cap.
They were fitted to epochs of five networks under caps of 100 W to 300 W on a V100 and an A40
(the traces of Zeus, "Understanding and Optimizing GPU Energy Consumption of DNN Training",
NSDI 2023, github.com/ml-energy/zeus, Apache-2.0). The mean error is below 8 % for a network, and
below 12 % for a GPU, that was left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, isfinite, isnan
from statistics import fmean

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.interval import Interval, mean_interval
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.prediction.power import Power, PowerLaw
from advisor.prediction.power_limit import held_to
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile

# The lowest caps that the laws were fitted to, 100 W of 300 W: nothing is said of lower ones where
# the least that a GPU takes is not known.
_LEAST_SHARE = 1 / 3

CAP_NOTE = "not measured on this GPU: translated from V100 and A40"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCapLaw:
    """Log of a ratio as ``first * h + second * h**2``, less the same at the GPU's limit.

    h is how far power lies above the cap, log(power / cap) less `offset`, as a soft maximum with
    0: a load whose mean lies under the cap has moments that do not.

    Attributes:
        softness: Width of the soft maximum's bend, above 0.
        low: 5 % quantile of log(measured / predicted) over networks and GPUs left out.
        high: 95 % quantile of the same.
    """

    first: float
    second: float
    offset: float
    softness: float
    low: float
    high: float

    def log_ratio(self, power_w: Floats, cap_w: Floats, limit_w: Floats) -> Floats:
        """For mean powers without a cap, caps and limits of the GPU, each of shape (rows,)."""
        columns = columns_of(power_w, cap_w, limit_w, self.offset, self.softness)
        return np.asarray(columns @ np.array([self.first, self.second]))


def columns_of(
    power_w: Floats, cap_w: Floats, limit_w: Floats, offset: float, softness: float
) -> Floats:
    """The columns in which a cap law is linear, shape (rows, 2)."""

    def above(watts: Floats) -> Floats:
        return np.asarray(
            softness * np.logaddexp(0.0, (np.log(power_w / watts) - offset) / softness)
        )

    capped, free = above(cap_w), above(limit_w)
    return np.column_stack([capped - free, capped**2 - free**2])


# Fitted: time goes up, power goes down.
TIME = PowerCapLaw(
    first=0.3986, second=1.2046, offset=0.1, softness=0.2, low=-0.225, high=0.304
)  # fmt: skip
POWER = PowerCapLaw(
    first=-0.9256, second=0.0, offset=-0.1, softness=0.05, low=-0.131, high=0.065
)  # fmt: skip


def check_cap(cap_w: float, gpu: Gpu) -> None:
    """Refuse a cap to which `gpu` cannot be set.

    Raises:
        InvalidInput: It is above the GPU's limit, or below the least that can be set or predicted.
    """
    limit_w = gpu.power_limit_w
    if limit_w is None:
        raise InvalidInput(f"{gpu.key}: its power limit is not known, so no cap can be judged.")
    known_w = gpu.power_limit_min_w
    least_w = _LEAST_SHARE * limit_w if known_w is None else known_w
    if isfinite(cap_w) and least_w <= cap_w <= limit_w:
        return
    if known_w is not None:
        why = f"cannot be set on {gpu.key}, which takes"
    elif 0 < cap_w < least_w:
        why = (
            f"is too low for {gpu.key}: how low it can be set is not known, and the effect of less "
            f"than a third of its limit was never measured. Use"
        )
    else:
        why = f"cannot be set on {gpu.key}. Use"
    raise InvalidInput(f"a power cap of {cap_w:g} W {why} {ceil(least_w)} W to {limit_w:g} W.")


def capped(mix: MixPrediction, alone_w: Sequence[float], cap_w: float, gpu: Gpu) -> MixPrediction:
    """`mix` under a power cap, marked as not confirmed.

    Args:
        mix: Prediction without a cap, with known power.
        alone_w: The power that determines each job's slowdown, shape (jobs,): the mix's if jobs
            run at once, each job's own if they take turns.
        cap_w: A cap that `check_cap` allows.
        gpu: The GPU of the prediction.
    """
    if mix.power_w is None:
        raise InvalidInput("a power cap needs the power of every job, which was not measured")
    limit_w = gpu.power_limit_w or cap_w
    slower = [_ratio(TIME, watts, cap_w, limit_w) for watts in alone_w]
    weaker = [_ratio(POWER, watts, cap_w, limit_w) for watts in alone_w]
    ratio = mean_interval(weaker, alone_w)
    assert ratio is not None, "each is known"
    jobs = tuple(map(_capped_job, mix.jobs, slower, weaker))
    speeds = [1 / job.slowdown for job in jobs]
    found = replace(
        mix,
        jobs=jobs,
        power_w=mix.power_w.times(ratio),
        weighted_speedup=fmean(speeds) if mix.sharing.mode == "serial" else sum(speeds),
        power_cap_w=cap_w,
        confirmed_on_hardware=False,
        ran_elsewhere=False,
    )
    return held_to(found, cap_w)


def throttled(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power
) -> list[Interval]:
    """`steps` of jobs on MIG instances, longer where they would draw more than the GPU may.

    Instances have one clock, and one power limit together. How a job slows near that is in its own
    profile as far as it draws power itself; the rest goes by the law of caps, of which nobody tried
    whether it holds on MIG: as often it is nothing as twice as much.
    """
    pace = [profile.step_s / step.p50 for profile, step in zip(profiles, steps, strict=True)]
    together_w = power.awake_w + float(power.added_w(profiles, pace, PowerLaw()).sum())
    limit_w = gpu.power_limit_w
    if limit_w is None or isnan(together_w):
        return list(steps)
    longer = [_log_between(each.power_w or 0.0, together_w, limit_w) for each in profiles]
    return [
        step.times(Interval(1.0, exp(log), exp(2 * log)))
        for step, log in zip(steps, longer, strict=True)
    ]


def _log_between(own_w: float, together_w: float, limit_w: float) -> float:
    """Log of time at `together_w` over that at `own_w`, at least 0."""
    # Of which `together_w` is as many times as `own_w` is of the limit.
    as_if_w = limit_w * together_w / max(1.0, own_w)
    rows = (np.array([each]) for each in (together_w, limit_w, as_if_w))
    return max(0.0, float(TIME.log_ratio(*rows)[0]))


def _ratio(law: PowerCapLaw, power_w: float, cap_w: float, limit_w: float) -> Interval:
    """Capped over uncapped; exactly 1 if the cap is the GPU's limit.

    A cap never speeds up, and never makes a GPU draw more.
    """
    if cap_w >= limit_w:
        return Interval(1.0, 1.0, 1.0)
    rows = (np.array([watts]) for watts in (power_w, cap_w, limit_w))
    middle = float(law.log_ratio(*rows)[0])
    low, high = middle + law.low, middle + law.high
    if law is TIME:
        return Interval(*map(exp, (max(0.0, low), max(0.0, middle), high)))
    return Interval(*map(exp, (low, min(0.0, middle), min(0.0, high))))


def _capped_job(job: JobPrediction, slower: Interval, weaker: Interval) -> JobPrediction:
    energy = slower.times(weaker)
    return replace(
        job,
        step_s=job.step_s.times(slower),
        epoch_s=_maybe(job.epoch_s, slower),
        slowdown=job.slowdown * slower.p50,
        slowdown_error=_maybe(job.slowdown_error, slower.scaled(1 / slower.p50)),
        energy_step_j=_maybe(job.energy_step_j, energy),
        energy_epoch_j=_maybe(job.energy_epoch_j, energy),
        energy_example_j=_maybe(job.energy_example_j, energy),
    )


def _maybe(value: Interval | None, factor: Interval) -> Interval | None:
    return None if value is None else value.times(factor)
