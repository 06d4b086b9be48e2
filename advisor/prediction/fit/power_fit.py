"""Fits the power and the activity of the whole GPU to shared runs of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import ObservedRun
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power, PowerLaw, is_half, summed_share
from advisor.prediction.trace import Floats
from advisor.sharing import Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run

_FEWEST_RUNS = 5
_SLEEPING_W = 75.0  # where no profile says; an H200 that nobody uses draws 77 W
_TRIED = 9  # powers of the awake GPU that are tried
# Strength of the prior of a law towards the plain sum, in numbers of runs.
_PULL = 0.1
_FULL = 0.95  # activity from which on a counter is saturated


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One run as the fit sees it.

    Attributes:
        speeds: Solo step over measured step, at most 1, shape (jobs,).
        likely: The same by replay, as for a mix that was not measured.
    """

    mode: Mode
    apart: bool
    profiles: tuple[Profile, ...]
    families: frozenset[str]
    speeds: Floats
    likely: Floats
    power_w: float
    gract: float | None
    sm_active: float | None


def fit_power(
    usable: Sequence[ObservedRun], alone: Iterable[tuple[Profile, Run]], gpu: Gpu,
    physics: Physics, playback: ReplayCache,
) -> Power:  # fmt: skip
    """The power laws that shared runs support.

    Args:
        usable: Shared runs; those without known power of the run or of its jobs are skipped.
        alone: Runs of one tenant with its profile.
        gpu: The GPU of all of them.
        physics: Constants of replay: intervals allow for speeds that are predicted.
        playback: Replays already made.
    """
    rows = [row for shared in usable if (row := _row(shared, physics, playback))]
    awake_w = _awake_w(rows, gpu)
    modes = sorted({row.mode for row in rows})
    laws = {mode: _law([row for row in rows if row.mode == mode], awake_w, gpu) for mode in modes}
    known = Power(awake_w=awake_w, laws={mode: law for mode, law in laws.items() if law})
    return replace(known, alone=_alone(known.alone, alone))


def _row(shared: ObservedRun, physics: Physics, playback: ReplayCache) -> _Row | None:
    power_w = shared.run.power_w
    if power_w is None or any(each.power_w is None for each in shared.profiles):
        return None
    speeds = np.minimum(1.0, shared.alone_s / shared.measured_s)
    replayed = playback.replayed_s(shared, physics)
    counters = shared.run.counters
    return _Row(
        mode=shared.mode, apart=shared.sharing.keeps_sms_apart,
        profiles=shared.profiles, families=frozenset(shared.families),
        speeds=speeds,
        likely=speeds if replayed is None else np.minimum(1.0, shared.alone_s / replayed),
        power_w=power_w,
        gract=counters.gract if counters else None,
        sm_active=counters.sm_active if counters else None,
    )  # fmt: skip


def _awake_w(rows: Sequence[_Row], gpu: Gpu) -> float:
    """The awake power with which the laws explain the runs best.

    Readings before a profile cannot be used: a sleeping card draws less than a waiting one (77 W
    and 116 W on an H200), and which of the two was read is chance.
    """
    profiles = [profile for row in rows for profile in row.profiles]
    idle = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    sleeping_w = min(idle, default=_SLEEPING_W)
    busy_w = min((each.power_w for each in profiles if each.power_w is not None), default=0.0)
    tried = np.linspace(sleeping_w, max(sleeping_w, busy_w), _TRIED)
    if len(rows) < _FEWEST_RUNS:
        return float(np.median(tried))
    return float(min(tried, key=lambda watts: _misfit(rows, float(watts), gpu)))


def _misfit(rows: Sequence[_Row], awake_w: float, gpu: Gpu) -> float:
    """Mean absolute log error of laws fitted with that awake power."""
    errors = []
    for mode in sorted({row.mode for row in rows}):
        chosen = [row for row in rows if row.mode == mode]
        errors.append(np.abs(_log_errors(chosen, _fitted(chosen, awake_w), awake_w, gpu)))
    return float(np.concatenate(errors).mean())


def _law(rows: Sequence[_Row], awake_w: float, gpu: Gpu) -> PowerLaw | None:
    """The law of one mode; None if there are too few runs.

    Its bounds come from families that it was not fitted on, at replayed speeds. They are symmetric,
    since the sign of replay's error is not that of its correction's.
    """
    if len(rows) < _FEWEST_RUNS:
        return None
    unseen = []
    for family in sorted({family for row in rows for family in row.families}):
        known = [row for row in rows if family not in row.families]
        scored = [replace(row, speeds=row.likely) for row in rows if family in row.families]
        unseen.append(_log_errors(scored, _fitted(known, awake_w), awake_w, gpu))
    bound = float(np.quantile(np.abs(np.concatenate(unseen)), 0.9))
    gract, least = _gract(rows)
    smact = _factor([row for row in rows if not row.apart], "sm_active", 1.0)
    return replace(
        _fitted(rows, awake_w), gract=gract, gract_least=least, smact=smact,
        smact_apart=_factor([row for row in rows if row.apart], "sm_active", smact),
        low=-bound, high=bound,
    )  # fmt: skip


def _fitted(rows: Sequence[_Row], awake_w: float) -> PowerLaw:
    """The shares that explain the runs' power, with equal weight for each run's relative error.

    None of them is below 0, so that a job that gets faster never makes the GPU draw less.
    """
    from scipy.optimize import nnls

    if not rows:
        return PowerLaw()
    parts = np.array([_parts(row, awake_w) for row in rows])
    measured = np.array([row.power_w for row in rows])
    x, y = parts / measured[:, None], (measured - awake_w) / measured
    pull = np.sqrt(_PULL * (x.sum(axis=1) ** 2).mean())
    towards = pull * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
    plain = pull * np.array([0.0, 1.0, 0.0])
    (waiting, working, half), _ = nnls(np.concatenate([x, towards]), np.concatenate([y, plain]))
    return PowerLaw(waiting=float(waiting), working=float(working), working_half=float(half))


def _parts(row: _Row, awake_w: float) -> Floats:
    """Own watts of the jobs, then times their speeds for those in full precision and in half."""
    own = np.maximum(0.0, np.array([each.power_w or 0.0 for each in row.profiles]) - awake_w)
    half = np.array([is_half(each) for each in row.profiles])
    paced = own * row.speeds
    return np.array([own.sum(), paced[~half].sum(), paced[half].sum()])


def _log_errors(rows: Sequence[_Row], law: PowerLaw, awake_w: float, gpu: Gpu) -> Floats:
    """Log of measured over predicted power, shape (runs,)."""
    power = Power(awake_w=awake_w)
    predicted = [power.shares_w(row.profiles, list(row.speeds), gpu, law) for row in rows]
    watts = np.array([shares.sum() for shares in predicted if shares is not None])
    return np.asarray(np.log(np.array([row.power_w for row in rows]) / watts))


def _gract(rows: Sequence[_Row]) -> tuple[float, float]:
    """Factor on the jobs' engine activity, and the least activity of any two jobs.

    Under time slicing the engine counts as active nearly all the time, even with little work; then
    no factor is needed.
    """
    seen = [row.gract for row in rows if row.gract is not None]
    if rows[0].mode == "naive" and seen:
        return 1.0, float(np.median(seen))
    return _factor(rows, "gract", 1.0), 0.0


def _factor(rows: Sequence[_Row], counter: str, otherwise: float) -> float:
    """Median of measured over summed activity where the GPU is not full; or else `otherwise`."""
    pairs = [(getattr(row, counter), summed_share(row.profiles, list(row.speeds), counter))
             for row in rows]  # fmt: skip
    ratios = [seen / summed for seen, summed in pairs if seen and summed and seen < _FULL]
    return float(np.median(ratios)) if len(ratios) >= _FEWEST_RUNS else otherwise


def _alone(law: PowerLaw, alone: Iterable[tuple[Profile, Run]]) -> PowerLaw:
    """`law` with the bounds that runs of one tenant support."""
    logs = [
        float(np.log(run.power_w / profile.power_w))
        for profile, run in alone if run.power_w and profile.power_w
    ]  # fmt: skip
    if len(logs) < _FEWEST_RUNS:
        return law
    low, high = np.quantile(logs, (0.05, 0.95))
    return replace(law, low=min(0.0, float(low)), high=max(0.0, float(high)))
