"""Power of the whole GPU while a mix runs, and each job's share, from the jobs' power alone.

A GPU that runs anything is awake: it draws a fixed power more than a sleeping one. On top of that
each job draws its power alone above the awake GPU, times its relative speed in the mix, plus a
part that does not depend on its pace, since its warps wait on SMs that are powered.

**Each job's share** of the energy cannot be measured: a meter sees the whole GPU. The rule here:
the awake GPU's power is shared equally by the running jobs, the rest goes to each job in proportion
to what it adds by the law above. The shares add up to the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, isfinite, isnan, log
from operator import mul
from statistics import fmean, median

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.mig import profile_of
from advisor.hardware.partition import partition_of
from advisor.prediction.mig_instances import on_partition, sm_time
from advisor.prediction.prediction import (
    Interval,
    JobPrediction,
    MixPrediction,
    all_known,
    interval_around,
    mean_interval,
)
from advisor.prediction.replay import Physics
from advisor.prediction.trace import Floats
from advisor.sharing import Hybrid, Mode
from advisor.workload.profile import Profile
from advisor.workload.reading import MOST_LOG, check, check_number

# Power and activity of jobs that share are near the sum of what each has alone.
_MOST_FACTOR = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """The sum of power and activity in one mode of sharing; by default the plain sum.

    Attributes:
        waiting: Share of its own power that a job draws at any pace, at least 0.
        working: Share of its own power that is proportional to its pace, at least 0.
        working_half: The same for jobs in 16 bit precision, which react differently to limits: the
            libraries choose their kernels by the SMs that they see.
        gract: Factor on the sum of the jobs' engine activity.
        gract_least: Least engine activity of any two jobs: time slices count as activity.
        smact: Factor on the sum of the jobs' SM activity.
        smact_apart: The same if limits keep jobs apart; see `advisor.sharing.Mps`.
        low: 5 % quantile of log(measured / predicted power), for families not fitted on.
        high: 95 % quantile of the same.
    """

    waiting: float = 0.0
    working: float = 1.0
    working_half: float = 1.0
    gract: float = 1.0
    gract_least: float = 0.0
    smact: float = 1.0
    smact_apart: float = 1.0
    low: float = -0.25
    high: float = 0.25

    def __post_init__(self) -> None:
        shares = self.waiting, self.working, self.working_half
        factors = *shares, self.gract, self.smact, self.smact_apart
        if min(factors) < 0:
            raise InvalidInput(f"shares and factors of a power law are at least 0, got {self}")
        if not self.low <= 0 <= self.high:
            raise InvalidInput(f"the bounds of a power law hold its middle, got {self}")
        check_number("a bound of a power law", max(-self.low, self.high), MOST_LOG)
        check_number("a factor of a power law", max(self.gract_least, *factors), _MOST_FACTOR)


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
        check(self, ("awake_w",))

    def law(self, mode: Mode, jobs: int, apart: bool = False) -> PowerLaw:
        """Return the law for `jobs` jobs at once, `apart` if limits give them SMs of their own."""
        if jobs == 1:
            return self.alone
        law = self.laws.get(mode, PowerLaw())
        return replace(law, smact=law.smact_apart) if apart else law

    def added_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float] | Floats, law: PowerLaw
    ) -> Floats:
        """Return watts that each job adds to the awake GPU, shape (..., jobs); NaN if not known.

        `speeds` are solo step over shared step of each, 0..1, in the same shape.
        """
        drawn = np.array([profile.power_w for profile in profiles], dtype=np.float64)
        working = [law.working_half if is_half(each) else law.working for each in profiles]
        own = np.maximum(0.0, drawn - self.awake_w)
        return np.asarray(own * (law.waiting + np.array(working) * np.asarray(speeds)))

    def shares_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float], gpu: Gpu, law: PowerLaw
    ) -> Floats | None:
        """Return watts of each job by the rule above, shape (jobs,); their sum is the GPU's power.

        If the GPU's limit binds, the jobs' additions are cut in proportion. None without the jobs'
        power.
        """
        added = self.added_w(profiles, speeds, law)
        if np.isnan(added).any():
            return None
        room_w = max(0.0, (gpu.power_limit_w or float("inf")) - self.awake_w)
        cut = min(1.0, room_w / max(float(added.sum()), 1e-9))
        return np.asarray(self.awake_w / len(profiles) + cut * added)


def is_half(profile: Profile) -> bool:
    """Return whether the job computes in 16 bit precision."""
    return profile.workload.precision in ("amp", "fp16")


def idle_power_w(profiles: Sequence[Profile]) -> float | None:
    """Return the median idle power of `profiles`; None: not measured."""
    measured = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    return median(measured) if measured else None


def gract(profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw) -> float | None:
    """Return the share of time in which the engine is active, 0..1 (GRACT); None without counters.

    `speeds` are solo step over shared step of each job.
    """
    summed = summed_share(profiles, speeds, "gract")
    return None if summed is None else min(1.0, max(law.gract_least, law.gract * summed))


def gract_under_limits(
    profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw
) -> float | None:
    """Return `gract` under MPS limits, where kernels take longer on fewer SMs.

    While a step takes longer than alone, the engine is active, for the job itself or for others. Of
    598 runs under limits on an H200, at the pace measured, that is off by 0.7 points, `law` by 1.3.
    """
    if (active := gract(profiles, speeds, law)) is None:
        return None
    idle = [
        (1 - profile.counters.gract) * speed
        for profile, speed in zip(profiles, speeds, strict=True)
        if profile.counters is not None and profile.counters.gract is not None
    ]
    return max(active, 1 - min(idle))


def smact(profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw) -> float | None:
    """Return the mean share of SMs with work, 0..1 (SMACT); None without GPM counters."""
    summed = summed_share(profiles, speeds, "sm_active")
    return None if summed is None else min(1.0, law.smact * summed)


def summed_share(
    profiles: Sequence[Profile], speeds: Sequence[float], counter: str
) -> float | None:
    """Sum a counter alone times the speed over jobs; None if a job lacks the counter."""
    shares = all_known(getattr(profile.counters, counter, None) for profile in profiles)
    return None if shares is None else sum(map(mul, shares, speeds))


@dataclass(frozen=True, slots=True)
class PowerAndEnergy:
    """Mean power of the GPU, and energy of a step of each job; None where not measured."""

    power_w: Interval | None
    energy_step_j: tuple[Interval | None, ...]


def power_together(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power, law: PowerLaw
) -> PowerAndEnergy:
    """Predict power and energy of jobs that run at once, with steps as long as `steps`."""
    pace = [min(1.0, p.step_s / step.p50) for p, step in zip(profiles, steps, strict=True)]
    shares = power.shares_w(profiles, pace, gpu, law)
    if shares is None:
        return PowerAndEnergy(None, (None,) * len(profiles))
    energies = tuple(
        interval_around(float(watts), law.low, law.high).times(step)
        for watts, step in zip(shares, steps, strict=True)
    )
    return PowerAndEnergy(interval_around(float(shares.sum()), law.low, law.high), energies)


def power_in_turn(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power
) -> PowerAndEnergy:
    """Predict power and energy of jobs that run one after another, each for the same time."""
    alone = [
        power_together([profile], [step], gpu, power, power.alone)
        for profile, step in zip(profiles, steps, strict=True)
    ]
    mean = mean_interval([each.power_w for each in alone], [1.0] * len(alone))
    if mean is None:
        return PowerAndEnergy(None, (None,) * len(alone))
    return PowerAndEnergy(mean, tuple(each.energy_step_j[0] for each in alone))


def held_to(mix: MixPrediction, most_w: float | None) -> MixPrediction:
    """Return `mix` with no power above `most_w`, and no energy above that of steps at that power.

    None is no limit. A job has the same part of the highest power as of the mean.
    """
    if most_w is None or mix.power_w is None:
        return mix
    shares = [1.0] * len(mix.jobs)
    if mix.sharing.mode != "serial":
        drawn_w = [0.0 if each.energy_step_j is None else each.energy_step_j.p50 / each.step_s.p50
                   for each in mix.jobs]  # fmt: skip
        shares = [each / max(sum(drawn_w), 1e-9) for each in drawn_w]
    most = Interval(most_w, most_w, most_w)
    jobs = tuple(_held(job, share * most_w) for job, share in zip(mix.jobs, shares, strict=True))
    return replace(mix, power_w=mix.power_w.at_most(most), jobs=jobs)


def _held(job: JobPrediction, most_w: float) -> JobPrediction:
    if (before_j := job.energy_step_j) is None:
        return job
    step_j = before_j.at_most(job.step_s.scaled(most_w))
    return job.mapped(energy=lambda each: step_j.scaled(each.p50 / before_j.p50))


def activity_on_instances(
    profiles: Sequence[Profile],
    hybrid: Hybrid,
    steps: Sequence[Interval],
    gpu: Gpu,
    constants: tuple[Physics, Power],
) -> tuple[float | None, float | None]:
    """Return GRACT and SMACT of `gpu` cut up into instances, 0..1; None without their counters.

    An instance's engine is active while any kernel runs on it, and counts for its part of the GPU's
    compute slices: so DCGM computes the whole GPU's activity. Robroek et al. (2024) report
    accordingly that small instances never fill a GPU. `steps` are those on the instances, in the
    order of `profiles`, which were measured alone on the whole GPU.
    """
    physics, power = constants
    whole = max(row.compute_slices for row in gpu.mig)
    gracts: list[float | None] = []
    smacts: list[float | None] = []
    for part in hybrid.partitions:
        assert part.instance is not None, "its jobs are on an instance"
        partition = partition_of(gpu, part.instance.profile, part.slices)
        jobs = [profiles[job - 1] for job in part.jobs]
        steps_s = [steps[job - 1].p50 for job in part.jobs]
        law = power.law(part.sharing.mode, len(jobs), part.sharing.keeps_sms_apart)
        moved = [on_partition(job, partition, physics) for job in jobs]
        speeds = [min(1.0, job.step_s / s) for job, s in zip(moved, steps_s, strict=True)]
        active = gract(moved, speeds, law)
        slices = part.slices or profile_of(gpu, part.instance.profile).compute_slices
        gracts.append(active and active * slices / whole)
        speeds = [job.step_s / s * sm_time(job, partition, physics)
                  for job, s in zip(jobs, steps_s, strict=True)]  # fmt: skip
        working = smact(jobs, speeds, law)
        smacts.append(working and min(partition.sm_share, working))
    engine, sms = all_known(gracts), all_known(smacts)
    gract_of_gpu = None if engine is None else min(1.0, sum(engine))
    return gract_of_gpu, None if sms is None else sum(sms)


# The lowest caps that the laws were fitted to, 100 W of 300 W: lower ones are refused where the
# least that a GPU accepts is not known.
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
        """Return it for the mean power without a cap, the cap and the GPU's limit."""
        capped, free = (
            self.softness * np.logaddexp(0.0, (log(power_w / most) - self.offset) / self.softness)
            for most in (cap_w, limit_w)
        )
        return float(self.first * (capped - free) + self.second * (capped**2 - free**2))


# Fitted: time goes up, power goes down.
TIME = PowerCapLaw(0.3986, 1.2046, offset=0.1, softness=0.2, low=-0.225, high=0.304)
POWER = PowerCapLaw(-0.9256, 0.0, offset=-0.1, softness=0.05, low=-0.131, high=0.065)


def check_cap(cap_w: float, gpu: Gpu) -> None:
    """Raise `InvalidInput` for a cap that `gpu` cannot be set to, or that cannot be predicted."""
    limit_w = gpu.power_limit_w
    if limit_w is None:
        raise InvalidInput(f"{gpu.key}: its power limit is not known, so no cap can be judged.")
    minimum_w = gpu.power_limit_min_w
    least_w = _LEAST_SHARE * limit_w if minimum_w is None else minimum_w
    if isfinite(cap_w) and least_w <= cap_w <= limit_w:
        return
    if minimum_w is not None:
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
    """Return `mix` under a power cap that `check_cap` allows, marked as not confirmed.

    `alone_w` determine the jobs' slowdowns: the power of the mix if jobs run at once, the power of
    each job alone if they take turns.
    """
    limit_w = gpu.power_limit_w or cap_w
    slower = [_ratio(TIME, watts, cap_w, limit_w) for watts in alone_w]
    weaker = [_ratio(POWER, watts, cap_w, limit_w) for watts in alone_w]
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

    Instances have one clock, and one power limit together. A job's own profile shows how it slows
    near the limit as far as it draws power itself; the rest goes by the law of caps. That was never
    measured on MIG, so the interval is from nothing to twice as much.
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


def _ratio(law: PowerCapLaw, power_w: float, cap_w: float, limit_w: float) -> Interval:
    """Return capped over uncapped: time at least 1, power at most 1; both 1 at the GPU's limit."""
    if cap_w >= limit_w:
        return Interval(1.0, 1.0, 1.0)
    middle = law.log_ratio(power_w, cap_w, limit_w)
    low, high = middle + law.low, middle + law.high
    if law is TIME:
        return Interval(*map(exp, (max(0.0, low), max(0.0, middle), high)))
    return Interval(*map(exp, (low, min(0.0, middle), min(0.0, high))))
