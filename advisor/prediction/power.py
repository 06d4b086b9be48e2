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
from statistics import median

import numpy as np

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.interval import Interval, interval_around, mean_interval
from advisor.prediction.mix_prediction import JobPrediction
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.workload.plausible import MOST_LOG, check, check_number
from advisor.workload.profile import Profile

# Power and activity of jobs that share are near the sum of what each has alone.
_MOST_FACTOR = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """How power and activity add up in one mode of sharing; by default the plain sum.

    Attributes:
        waiting: Share of its own power that a job draws at any pace, at least 0.
        working: Share of its own power that is proportional to its pace, at least 0.
        working_half: As `working` for jobs in 16 bit precision, which react differently to limits:
            the libraries choose their kernels by the SMs that they see.
        gract: Factor on the sum of the jobs' engine activity.
        gract_least: Least engine activity of any two jobs: time slices count as activity.
        smact: Factor on the sum of the jobs' SM activity.
        smact_apart: As `smact` if limits keep jobs apart; see `advisor.sharing.Mps`.
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
        factors = self.gract, self.smact, self.smact_apart
        if min(self.waiting, self.working, self.working_half, *factors) < 0:
            raise InvalidInput(f"shares and factors of a power law are at least 0, got {self}")
        if not self.low <= 0 <= self.high:
            raise InvalidInput(f"the bounds of a power law hold its middle, got {self}")
        check_number("a bound of a power law", max(-self.low, self.high), MOST_LOG)
        most = max(self.waiting, self.working, self.working_half, self.gract_least, *factors)
        check_number("a factor of a power law", most, _MOST_FACTOR)


# For a job alone: its profile's power, with the variation from day to day.
_ALONE = PowerLaw(low=-0.1, high=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The laws of one GPU.

    Attributes:
        awake_w: Power of a GPU that processes hold without giving it work.
        laws: By mode, of `advisor.sharing.SHARED_MODES`.
        alone: Law of a job alone.
    """

    awake_w: float
    laws: dict[Mode, PowerLaw] = field(default_factory=dict)
    alone: PowerLaw = _ALONE

    def __post_init__(self) -> None:
        check(self, ("awake_w",))

    def law(self, mode: Mode, jobs: int, apart: bool = False) -> PowerLaw:
        """The law for `jobs` jobs at once; the plain sum for a mode without one.

        Args:
            mode: See `laws`.
            jobs: At least 1.
            apart: Whether limits give the jobs SMs of their own.
        """
        if jobs == 1:
            return self.alone
        law = self.laws.get(mode, PowerLaw())
        return replace(law, smact=law.smact_apart) if apart else law

    def added_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float] | Floats, law: PowerLaw
    ) -> Floats:
        """Watts that each job adds to the awake GPU, shape (..., jobs); NaN where not known.

        Args:
            profiles: The jobs, each measured alone.
            speeds: Solo step over shared step of each, 0..1, shape (..., jobs).
            law: Of the way they share.
        """
        drawn = [profile.power_w for profile in profiles]
        own = np.maximum(0.0, np.array(drawn, dtype=np.float64) - self.awake_w)
        half = np.array([is_half(profile) for profile in profiles])
        working = np.where(half, law.working_half, law.working)
        return np.asarray(own * (law.waiting + working * np.asarray(speeds)))

    def shares_w(
        self, profiles: Sequence[Profile], speeds: Sequence[float], gpu: Gpu, law: PowerLaw
    ) -> Floats | None:
        """Watts of each job by the rule above, shape (jobs,); the sum is the whole GPU's power.

        Never below the awake GPU's power nor above the GPU's limit; None without the jobs' power.
        If the limit binds, what the jobs add is cut in proportion.
        """
        added = self.added_w(profiles, speeds, law)
        if np.isnan(added).any():
            return None
        room_w = max(0.0, (gpu.power_limit_w or float("inf")) - self.awake_w)
        cut = min(1.0, room_w / max(float(added.sum()), 1e-9))
        return np.asarray(self.awake_w / len(profiles) + cut * added)


def is_half(profile: Profile) -> bool:
    """Whether the job computes in 16 bit precision."""
    return profile.workload.precision in ("amp", "fp16")


def idle_power_w(profiles: Sequence[Profile]) -> float | None:
    """Median idle power of `profiles`; None: not measured."""
    measured = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    return median(measured) if measured else None


def gract(profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw) -> float | None:
    """Share of time in which the GPU's engine is active, 0..1 (GRACT); None without counters.

    Args:
        profiles: The jobs, each measured alone.
        speeds: Solo step over shared step of each, shape (jobs,).
        law: Of the way they share.
    """
    summed = summed_share(profiles, speeds, "gract")
    return None if summed is None else min(1.0, max(law.gract_least, law.gract * summed))


def gract_under_limits(
    profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw
) -> float | None:
    """As `gract` where MPS limits hold jobs back: their kernels take longer on fewer SMs.

    What a step takes longer than alone, the engine is active, for the job itself or for others. Of
    598 runs under limits on an H200, at the pace measured, that is off by 0.7 points, `law` by 1.3.
    """
    if (found := gract(profiles, speeds, law)) is None:
        return None
    idle = [
        (1 - profile.counters.gract) * speed
        for profile, speed in zip(profiles, speeds, strict=True)
        if profile.counters is not None and profile.counters.gract is not None
    ]
    return max(found, 1 - min(idle))


def smact(profiles: Sequence[Profile], speeds: Sequence[float], law: PowerLaw) -> float | None:
    """Mean share of SMs with work, 0..1 (SMACT); None without GPM counters."""
    summed = summed_share(profiles, speeds, "sm_active")
    return None if summed is None else min(1.0, law.smact * summed)


def summed_share(
    profiles: Sequence[Profile], speeds: Sequence[float], counter: str
) -> float | None:
    """Sum over jobs of a counter alone times the job's speed; None if a job lacks the counter."""
    total = 0.0
    for profile, speed in zip(profiles, speeds, strict=True):
        share = getattr(profile.counters, counter, None)
        if share is None:
            return None
        total += share * speed
    return total


@dataclass(frozen=True, slots=True)
class PowerAndEnergy:
    """Power and energy of a mix.

    Attributes:
        power_w: Mean power of the whole GPU; None if a profile has none.
        energy_step_j: Energy of a step of each job by the rule in `advisor.prediction.power`,
            shape (jobs,); None where power was not measured.
    """

    power_w: Interval | None
    energy_step_j: tuple[Interval | None, ...]


def power_together(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power, law: PowerLaw
) -> PowerAndEnergy:
    """Power and energy of jobs that run at once, with steps as long as `steps` say."""
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
    """Power and energy of jobs that run one after another, each for the same time."""
    alone = [
        power_together([profile], [step], gpu, power, power.alone)
        for profile, step in zip(profiles, steps, strict=True)
    ]
    mean = mean_interval([each.power_w for each in alone], [1.0] * len(alone))
    if mean is None:
        return PowerAndEnergy(None, (None,) * len(alone))
    return PowerAndEnergy(mean, tuple(each.energy_step_j[0] for each in alone))


def with_energy(
    answer: JobPrediction, profile: Profile, energy_step_j: Interval | None
) -> JobPrediction:
    """`answer` with the energy of a step, an epoch and an example of `profile`."""
    if energy_step_j is None:
        return answer
    steps = profile.workload.steps_per_epoch
    return replace(
        answer,
        energy_step_j=energy_step_j,
        energy_epoch_j=None if steps is None else energy_step_j.scaled(steps),
        energy_example_j=energy_step_j.scaled(1 / profile.workload.batch),
    )
