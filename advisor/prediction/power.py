"""Power of the whole GPU while a mix runs, and each job's share, from the jobs' power alone.

``power = awake + sum of own * (waiting + working * speed)``, where a job's own watts are its power
alone above the awake GPU. By our rule jobs share the awake GPU's power equally, and add their term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, isnan, log
from operator import mul
from statistics import fmean, median
from typing import Any

import numpy as np

from advisor.errors import InvalidInput
from advisor.files.units import MOST_LOG, MOST_W, check, check_number
from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.hardware.partition import partition_of
from advisor.prediction.mig_instances import on_partition, sm_time
from advisor.prediction.prediction import (
    ENERGIES,
    LEVELS,
    Interval,
    MixPrediction,
    all_known,
    interval_around,
    mean_interval,
)
from advisor.prediction.replay import Physics
from advisor.prediction.trace import Floats
from advisor.sharing import Arrangement, Hybrid, Mode
from advisor.workload.profile import Profile

# Power of jobs that share is near the sum of what each draws alone.
_MOST_SHARE = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """Shares of a job's own watts that it adds in one mode of sharing; by default the plain sum.

    Attributes:
        waiting: Share that it draws at any speed.
        working: Share that is proportional to its speed.
        working_half: The same for jobs in 16 bit precision, which react differently to limits: the
            libraries choose their kernels by the SMs that they see.
        low: 5 % quantile of log(measured / predicted power).
        high: 95 % quantile of the same.
    """

    waiting: float = 0.0
    working: float = 1.0
    working_half: float = 1.0
    low: float = -0.25
    high: float = 0.25

    def __post_init__(self) -> None:
        check(self, ("waiting", "working", "working_half"), _MOST_SHARE)
        if not self.low <= 0 <= self.high:
            raise InvalidInput(f"the bounds of a power law hold its middle, got {self}")
        check_number("a bound of a power law", max(-self.low, self.high), MOST_LOG)


# For a job alone: its profile's power, with the variation from day to day.
_ALONE = PowerLaw(low=-0.1, high=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Power laws of one GPU, by mode, and of a job alone.

    Attributes:
        awake_w: Power of a GPU that processes hold without giving it work.
    """

    awake_w: float
    laws: dict[Mode, PowerLaw] = field(default_factory=dict)
    alone: PowerLaw = _ALONE

    def __post_init__(self) -> None:
        check(self, ("awake_w",), MOST_W)

    def law(self, mode: Mode, jobs: int) -> PowerLaw:
        """Return the law for `jobs` jobs at once."""
        return self.alone if jobs == 1 else self.laws.get(mode, PowerLaw())

    def own_w(self, profiles: Sequence[Profile]) -> Floats:
        """Return watts of each job alone above the awake GPU, shape (jobs,); NaN if unknown."""
        drawn_w = np.array([profile.power_w for profile in profiles], dtype=np.float64)
        return np.maximum(0.0, drawn_w - self.awake_w)

    def added_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float] | Floats, law: PowerLaw
    ) -> Floats:
        """Return watts that each job adds to the awake GPU, shape (..., jobs); NaN if unknown.

        `speeds` are solo step over shared step of each, 0..1, in the same shape.
        """
        working = np.where(list(map(is_half, profiles)), law.working_half, law.working)
        added_w = self.own_w(profiles) * (law.waiting + working * np.asarray(speeds))
        return np.asarray(added_w)

    def shares_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float] | Floats, gpu: Gpu, law: PowerLaw
    ) -> Floats | None:
        """Return watts of each job by the rule above, shape (jobs,); None without the jobs' power.

        Their sum is the GPU's power. If its limit binds, what the jobs add is cut in proportion.
        """
        added = self.added_w(profiles, speeds, law)
        if np.isnan(added).any():
            return None
        room_w = max(0.0, (gpu.power_limit_w or inf) - self.awake_w)
        cut = min(1.0, room_w / max(float(added.sum()), 1e-9))
        return np.asarray(self.awake_w / len(profiles) + cut * added)


def is_half(profile: Profile) -> bool:
    """Return whether the job computes in 16 bit precision."""
    return profile.workload.precision in ("amp", "fp16")


def idle_power_w(profiles: Sequence[Profile]) -> float | None:
    """Return the median idle power of `profiles`; None: not measured."""
    measured = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    return median(measured) if measured else None


def gract(profiles: Sequence[Profile], speeds: Sequence[float], mode: Mode) -> float | None:
    """Return the share of time in which the engine is active, 0..1 (GRACT); None without counters.

    `speeds` are solo step over shared step of each job. The engine is active for the jobs' own
    work, and while a step takes longer than alone. Time slices count as activity. In 1,140 runs on
    an H200 and an H100, at the measured speeds, GRACT so computed is 0.7 points off.
    """
    own = all_known(None if each.counters is None else each.counters.gract for each in profiles)
    if own is None:
        return None
    if mode == "naive" and len(own) > 1:
        return 1.0
    summed: float = min(1.0, sum(map(mul, own, speeds)))
    if mode == "serial":
        return summed
    return max(summed, 1 - min((1 - share) * at for share, at in zip(own, speeds, strict=True)))


# Medians of measured over summed SM activity of two jobs or more: of 715 naive runs and 881 under
# limits on an H200 and an H100, which differ by at most 0.012. Waiting slices count as activity.
# Under limits, kernels keep fewer SMs busy for not as much longer, above all if no two jobs share
# an SM.
_SM_TIME: Mapping[Mode, float] = {"naive": 1.04, "mps-limits": 0.91}
_SM_TIME_APART = 0.85


def smact(
    profiles: Sequence[Profile], speeds: Sequence[float], sharing: Arrangement
) -> float | None:
    """Return the mean share of SMs with work, 0..1 (SMACT); None without GPM counters."""
    if (summed := summed_share(profiles, speeds, "sm_active")) is None or len(profiles) == 1:
        return summed and min(1.0, summed)
    apart = sharing.keeps_sms_apart
    return min(1.0, summed * (_SM_TIME_APART if apart else _SM_TIME.get(sharing.mode, 1.0)))


def summed_share(
    profiles: Sequence[Profile], speeds: Sequence[float], counter: str
) -> float | None:
    """Sum a counter alone times the speed over jobs; None if a job lacks the counter."""
    shares = all_known(getattr(profile.counters, counter, None) for profile in profiles)
    return None if shares is None else sum(map(mul, shares, speeds))


def paced(profile: Profile, step_s: Interval) -> Interval:
    """Return `Profile.paced_s` of a step at each level."""
    return Interval(*(profile.paced_s(step_s.at(level)) for level in LEVELS))


def power_and_energy(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power, mode: Mode
) -> tuple[Interval | None, tuple[Interval | None, ...]]:
    """Predict mean power of the GPU, and energy of a step of each job; None where not measured.

    Jobs have steps as long as `steps`; jobs in turn run for the same time.
    """
    unknown = None, (None,) * len(profiles)
    if mode == "serial" and len(profiles) > 1:
        alone = [
            power_and_energy([profile], [step], gpu, power, mode)
            for profile, step in zip(profiles, steps, strict=True)
        ]
        mean_w = mean_interval([power_w for power_w, _ in alone], [1.0] * len(alone))
        return unknown if mean_w is None else (mean_w, tuple(joules for _, (joules,) in alone))
    law = power.law(mode, len(profiles))
    pace = [min(1.0, p.step_s / step.p50) for p, step in zip(profiles, steps, strict=True)]
    if (shares := power.shares_w(profiles, pace, gpu, law)) is None:
        return unknown
    energies = tuple(
        interval_around(float(watts), law.low, law.high).times(paced(profile, step))
        for watts, profile, step in zip(shares, profiles, steps, strict=True)
    )
    return interval_around(float(shares.sum()), law.low, law.high), energies


def held_to(mix: MixPrediction, most_w: float | None) -> MixPrediction:
    """Return `mix` with no power above `most_w`, and no energy above that of steps at that power.

    None is no limit. A job has the same part of the highest power as of the mean.
    """
    if most_w is None or mix.power_w is None:
        return mix
    shares = [1.0] * len(mix.jobs)
    if mix.sharing.mode != "serial":
        drawn_w = [
            0.0 if each.energy_step_j is None else each.energy_step_j.p50 / each.paced_s.p50
            for each in mix.jobs
        ]
        shares = [each / max(sum(drawn_w), 1e-9) for each in drawn_w]
    jobs = []
    for job, share in zip(mix.jobs, shares, strict=True):
        energies: dict[str, Any] = {}
        if (before_j := job.energy_step_j) is not None:
            step_j = before_j.at_most(job.paced_s.scaled(share * most_w))
            energies = {
                name: step_j.scaled(each.p50 / before_j.p50)
                for name in ENERGIES
                if (each := getattr(job, name)) is not None
            }
        jobs.append(replace(job, **energies))
    most = Interval(most_w, most_w, most_w)
    return replace(mix, power_w=mix.power_w.at_most(most), jobs=tuple(jobs))


def activity_on_instances(
    profiles: Sequence[Profile],
    hybrid: Hybrid,
    steps: Sequence[Interval],
    gpu: Gpu,
    physics: Physics,
) -> tuple[float | None, float | None]:
    """Return GRACT and SMACT of `gpu` cut up into instances, 0..1; None without their counters.

    An instance's engine is active while any kernel runs on it, and counts for its part of the GPU's
    compute slices: so DCGM computes the whole GPU's activity. `steps` are those on the instances,
    in the order of `profiles`, which were measured alone on the whole GPU.
    """
    whole = max(row.compute_slices for row in gpu.mig)
    gracts: list[float | None] = []
    smacts: list[float | None] = []
    for part in hybrid.partitions:
        assert part.instance is not None, "its jobs are on an instance"
        partition = partition_of(gpu, part.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        steps_s = [steps[job - 1].p50 for job in part.jobs]
        moved = [on_partition(job, partition, physics) for job in jobs]
        speeds = [min(1.0, job.step_s / s) for job, s in zip(moved, steps_s, strict=True)]
        active = gract(moved, speeds, part.sharing.mode)
        slices = part.slices or profile_of(gpu, part.instance.profile).compute_slices
        gracts.append(active and active * slices / whole)
        speeds = [
            job.step_s / s * sm_time(job, partition, physics)
            for job, s in zip(jobs, steps_s, strict=True)
        ]
        working = smact(jobs, speeds, part.sharing)
        smacts.append(working and min(partition.sm_share, working))
    engine, sms = all_known(gracts), all_known(smacts)
    return None if engine is None else min(1.0, sum(engine)), None if sms is None else sum(sms)


# The lowest cap that the laws were fitted to, 100 W of 300 W. It is the least allowed where the
# least that a GPU accepts is unknown.
_LEAST_SHARE = 1 / 3

CAP_NOTE = "not measured on this GPU: translated from V100 and A40"


@dataclass(frozen=True, slots=True)
class PowerCapLaw:
    """Log of a ratio as ``first * h + second * h**2``, less the same at the GPU's limit.

    Both laws were fitted to epochs of five networks under caps of 100 W to 300 W on a V100 and an
    A40 (traces of Zeus, NSDI 2023, github.com/ml-energy/zeus, Apache-2.0). The mean error is below
    8 % for a network, and below 12 % for a GPU, that was left out.

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

    def log_ratio(self, power_w: float, cap_w: float, limit_w: float) -> float:
        """Return it for a mean power of `power_w` without a cap."""
        capped, free = (
            self.softness * np.logaddexp(0.0, (log(power_w / most) - self.offset) / self.softness)
            for most in (cap_w, limit_w)
        )
        return float(self.first * (capped - free) + self.second * (capped**2 - free**2))

    def ratio(self, power_w: float, cap_w: float, limit_w: float) -> Interval:
        """Return capped over uncapped: time at least 1, power at most 1; 1 at the GPU's limit."""
        if cap_w >= limit_w:
            return Interval(1.0, 1.0, 1.0)
        middle = self.log_ratio(power_w, cap_w, limit_w)
        least, most = (0.0, inf) if self.first > 0 else (-inf, 0.0)
        ends = (min(most, max(least, middle + away)) for away in (self.low, 0.0, self.high))
        return Interval(*map(exp, ends))


# Fitted: time goes up, power goes down.
TIME = PowerCapLaw(0.3986, 1.2046, offset=0.1, softness=0.2, low=-0.225, high=0.304)
POWER = PowerCapLaw(-0.9256, 0.0, offset=-0.1, softness=0.05, low=-0.131, high=0.065)


def check_cap(cap_w: float, gpu: Gpu) -> None:
    """Raise `InvalidInput` for a cap that `gpu` cannot be set to, or that cannot be predicted."""
    limit_w = gpu.power_limit_w
    if limit_w is None:
        raise InvalidInput(f"{gpu.key}: its power limit is unknown, so a cap cannot be checked.")
    minimum_w = gpu.power_limit_min_w
    least_w = _LEAST_SHARE * limit_w if minimum_w is None else minimum_w
    if not least_w <= cap_w <= limit_w:
        raise InvalidInput(
            f"a power cap of {cap_w:g} W is outside the range of {gpu.key}. "
            f"Use {ceil(least_w)} W to {limit_w:g} W."
        )


def capped(mix: MixPrediction, alone_w: Sequence[float], cap_w: float, gpu: Gpu) -> MixPrediction:
    """Return `mix` under a power cap that `check_cap` allows, marked as not confirmed.

    `alone_w` determine the jobs' slowdowns: the power of the mix if jobs run at once, the power of
    each job alone if they take turns.
    """
    limit_w = gpu.power_limit_w or cap_w
    slower = [TIME.ratio(watts, cap_w, limit_w) for watts in alone_w]
    weaker = [POWER.ratio(watts, cap_w, limit_w) for watts in alone_w]
    ratio = mean_interval(weaker, alone_w)
    assert ratio is not None
    assert mix.power_w is not None
    jobs = []
    for job, longer, drawn in zip(mix.jobs, slower, weaker, strict=True):
        error = job.slowdown_error and job.slowdown_error.times(longer.scaled(1 / longer.p50))
        under_cap = job.mapped(longer.times, longer.times(drawn).times)
        slowdown = job.slowdown * longer.p50
        jobs.append(replace(under_cap, slowdown=slowdown, slowdown_error=error))
    speeds = [1 / job.slowdown for job in jobs]
    capped_mix = replace(
        mix,
        jobs=tuple(jobs),
        power_w=mix.power_w.times(ratio),
        weighted_speedup=fmean(speeds) if mix.sharing.mode == "serial" else sum(speeds),
        power_cap_w=cap_w,
        confirmed_on_hardware=False,
        ran_elsewhere=False,
    )
    return held_to(capped_mix, cap_w)


def throttled(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power
) -> list[Interval]:
    """Return `steps` on MIG instances, longer where jobs would draw more than the GPU may.

    Instances have one clock, and one power limit together. What a job's own power does not show
    goes by the law of caps: never measured on MIG, so the interval is from none to twice as much.
    """
    pace = [profile.step_s / step.p50 for profile, step in zip(profiles, steps, strict=True)]
    together_w = power.awake_w + float(power.added_w(profiles, pace, PowerLaw()).sum())
    limit_w = gpu.power_limit_w
    if limit_w is None or isnan(together_w):
        return list(steps)
    longer = []
    for profile, step in zip(profiles, steps, strict=True):
        # Of this limit the power together is the share that the job's own is of the GPU's limit.
        as_if_w = limit_w * together_w / max(1.0, profile.power_w or 0.0)
        log_longer = max(0.0, TIME.log_ratio(together_w, limit_w, as_if_w))
        longer.append(step.times(Interval(1.0, exp(log_longer), exp(2 * log_longer))))
    return longer
