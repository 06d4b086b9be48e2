"""The error of power and activity of the whole GPU, for model families left out.

For each family F the laws of power are fitted to the runs without any tenant of F, and every
scored run with a tenant of F is predicted once: at the pace that was measured, which shows the
laws alone, and at the pace that was predicted, which is what a user gets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import ObservedRun, shared_runs
from advisor.prediction.fit.power_fit import fit_power
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power, gract, smact
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.predicted_and_measured import RunComparison, profiles_of
from advisor.workload.profile import Profile
from advisor.workload.run import Run

Pace = Literal["measured", "predicted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """One mode at one pace; None if nothing was measured.

    At the measured pace profiles are as on the cores of the run, which leaves the laws' own error;
    at the predicted one all is as a user has it.

    Attributes:
        n: Predictions: each run once for each family in it.
        power_mape: Mean absolute error of the GPU's power, as a share of what was measured.
        power_coverage90: Share of measured powers inside their 90 % interval.
        gract_error: Mean absolute difference of GRACT, as a share of 1: 0.05 is five points.
        smact_error: The same of SMACT.
        power_noise: Mean absolute difference of power between a run and its repeat, as a share.
        gract_noise: Mean absolute difference of GRACT between repeats.
        smact_noise: The same of SMACT.
    """

    mode: Mode
    pace: Pace
    n: int
    power_mape: float
    power_coverage90: float
    gract_error: float | None
    smact_error: float | None
    power_noise: float | None
    gract_noise: float | None
    smact_noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerData:
    """What power is scored on.

    Attributes:
        profiles: Solo profiles by name.
        runs: All that may be fitted to.
        scored: With the pace predicted for each job by a model that never saw its family.
        repeats: Pairs of a scored run and its repeat with fresh workers.
        physics: Constants of replay, by which intervals allow for a predicted pace.
        playback: Replays already made.
    """

    profiles: Mapping[str, Profile]
    runs: Sequence[Run]
    scored: Sequence[RunComparison]
    repeats: Sequence[tuple[Run, Run]]
    gpu: Gpu
    physics: Physics
    playback: ReplayCache


@dataclass(frozen=True, slots=True)
class _Miss:
    mode: Mode
    pace: Pace
    power: float
    inside: bool
    gract: float | None
    smact: float | None


def power_scores(data: PowerData) -> tuple[PowerRow, ...]:
    """For each mode two rows: at the measured pace, and at the predicted one."""
    usable = shared_runs(data.profiles, data.runs, data.gpu)
    missed = [
        miss for power, shared in _folds(data, usable) for miss in _misses(data, power, shared)
    ]
    scored = {each.run.id for each in data.scored}
    modes = {shared.run.id: shared.mode for shared in usable if shared.run.id in scored}
    paces: tuple[Pace, ...] = ("measured", "predicted")
    return tuple(
        _scored(mode, pace, chosen, [p for p in data.repeats if modes.get(p[0].id) == mode])
        for mode in SHARED_MODES
        for pace in paces
        if (chosen := [miss for miss in missed if (miss.mode, miss.pace) == (mode, pace)])
    )


def _folds(data: PowerData, usable: Sequence[ObservedRun]) -> Iterator[tuple[Power, ObservedRun]]:
    """Every scored run once for each of its families, with the laws that never saw that one."""
    alone = [(data.profiles[run.tenants[0].workload.name], run) for run in data.runs
             if run.ok and len(run.tenants) == 1
             and run.tenants[0].workload.name in data.profiles]  # fmt: skip
    scored = {each.run.id for each in data.scored}
    for family in sorted({family for each in usable for family in each.families}):
        known = [each for each in usable if family not in each.families]
        solo = [pair for pair in alone if pair[0].workload.family != family]
        power = fit_power(known, solo, data.gpu, data.physics, data.playback)
        for each in usable:
            if each.run.id in scored and family in each.families:
                yield power, each


def _misses(data: PowerData, power: Power, shared: ObservedRun) -> Iterator[_Miss]:
    comparison = next(each for each in data.scored if each.run.id == shared.run.id)
    predicted_s = np.array([job.predicted_s.p50 for job in comparison.jobs])
    raw = replace(shared, profiles=profiles_of(shared.run, data.profiles, "raw"))
    paces: dict[Pace, tuple[ObservedRun, Floats]] = {
        "measured": (shared, shared.measured_s),
        "predicted": (raw, predicted_s),
    }
    for pace, (run, steps_s) in paces.items():
        speeds = list(map(float, np.minimum(1.0, run.alone_s / steps_s)))
        if miss := _miss(data.gpu, power, run, pace, speeds):
            yield miss


def _miss(
    gpu: Gpu, power: Power, shared: ObservedRun, pace: Pace, speeds: Sequence[float]
) -> _Miss | None:
    apart = shared.sharing.keeps_sms_apart
    law = power.law(shared.mode, len(shared.profiles), apart)
    shares = power.shares_w(shared.profiles, speeds, gpu, law)
    measured, seen = shared.run.power_w, shared.run.counters
    if shares is None or measured is None:
        return None
    watts = float(shares.sum())
    return _Miss(
        mode=shared.mode,
        pace=pace,
        power=watts / measured - 1,
        inside=law.low <= np.log(measured / watts) <= law.high,
        gract=_apart(gract(shared.profiles, speeds, law), seen.gract if seen else None),
        smact=_apart(smact(shared.profiles, speeds, law), seen.sm_active if seen else None),
    )


def _scored(
    mode: Mode, pace: Pace, missed: Sequence[_Miss], pairs: Sequence[tuple[Run, Run]]
) -> PowerRow:
    """The row of `missed`, with the repeats of the same mode."""
    counted = [(once.counters, again.counters) for once, again in pairs
               if once.counters and again.counters]  # fmt: skip
    return PowerRow(
        mode=mode,
        pace=pace,
        n=len(missed),
        power_mape=float(np.mean([abs(each.power) for each in missed])),
        power_coverage90=float(np.mean([each.inside for each in missed])),
        gract_error=_mean(each.gract for each in missed),
        smact_error=_mean(each.smact for each in missed),
        power_noise=_mean(abs(again.power_w / once.power_w - 1) for once, again in pairs
                          if once.power_w and again.power_w),
        gract_noise=_mean(_apart(once.gract, again.gract) for once, again in counted),
        smact_noise=_mean(_apart(once.sm_active, again.sm_active) for once, again in counted),
    )  # fmt: skip


def _apart(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


def _mean(values: Iterator[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
