"""Power and energy of a mix with intervals: of the whole GPU, and of each job's step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log

from advisor.hardware.catalogue import Gpu
from advisor.prediction.mix_prediction import Interval, JobPrediction
from advisor.prediction.power import Power, PowerLaw
from advisor.workload.profile import Profile


@dataclass(frozen=True, slots=True)
class PowerAndEnergy:
    """What a mix draws.

    Attributes:
        power_w: Mean power of the whole GPU; None if a profile has none.
        energy_step_j: Energy of a step of each job by the rule in `advisor.prediction.power`,
            shape (jobs,); None likewise.
    """

    power_w: Interval | None
    energy_step_j: tuple[Interval | None, ...]


def power_together(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power, law: PowerLaw
) -> PowerAndEnergy:
    """What jobs draw that run at once, each step taking as long as `steps` say."""
    pace = [min(1.0, p.step_s / step.p50) for p, step in zip(profiles, steps, strict=True)]
    shares = power.shares_w(profiles, pace, gpu, law)
    if shares is None:
        return PowerAndEnergy(None, (None,) * len(profiles))
    energies = tuple(
        _energy(_around(float(watts), law), step) for watts, step in zip(shares, steps, strict=True)
    )
    return PowerAndEnergy(_around(float(shares.sum()), law), energies)


def power_in_turn(
    profiles: Sequence[Profile], steps: Sequence[Interval], gpu: Gpu, power: Power
) -> PowerAndEnergy:
    """What jobs draw that run one after another, each for the same time."""
    alone = [
        power_together([profile], [step], gpu, power, power.alone)
        for profile, step in zip(profiles, steps, strict=True)
    ]
    known = [each.power_w for each in alone if each.power_w is not None]
    if len(known) < len(alone):
        return PowerAndEnergy(None, (None,) * len(alone))
    mean = Interval(
        *(sum(levels) / len(known) for levels in zip(*map(_levels, known), strict=True))
    )
    return PowerAndEnergy(mean, tuple(each.energy_step_j[0] for each in alone))


def with_energy(
    answer: JobPrediction, profile: Profile, energy_step_j: Interval | None
) -> JobPrediction:
    """`answer` with what a step, an epoch and an example of `profile` take."""
    if energy_step_j is None:
        return answer
    steps = profile.workload.steps_per_epoch
    return replace(
        answer,
        energy_step_j=energy_step_j,
        energy_epoch_j=None if steps is None else energy_step_j.scaled(steps),
        energy_example_j=energy_step_j.scaled(1 / profile.workload.batch),
    )


def _around(watts: float, law: PowerLaw) -> Interval:
    return Interval(watts * exp(law.low), watts, watts * exp(law.high))


def _energy(power_w: Interval, step_s: Interval) -> Interval:
    """Joules of a step, the errors of power and of pace being independent of each other."""
    middle = power_w.p50 * step_s.p50
    down = hypot(*(log(each.p50 / each.p05) for each in (power_w, step_s)))
    up = hypot(*(log(each.p95 / each.p50) for each in (power_w, step_s)))
    return Interval(middle * exp(-down), middle, middle * exp(up))


def _levels(value: Interval) -> tuple[float, float, float]:
    return value.p05, value.p50, value.p95
