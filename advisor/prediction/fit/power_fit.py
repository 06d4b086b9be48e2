"""Fits the power and the activity of the whole GPU to shared runs of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import Bools, ObservedRun
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
    """One run as the fit uses it.

    Attributes:
        alone_w: Power of each job alone, shape (jobs,).
        half: Whether each job computes in half precision, shape (jobs,).
        speeds: Solo step over measured step, at most 1, shape (jobs,).
        likely: The same predicted by replay, as for a mix without measurements.
    """

    mode: Mode
    apart: bool
    profiles: tuple[Profile, ...]
    families: frozenset[str]
    alone_w: Floats
    half: Bools
    speeds: Floats
    likely: Floats
    power_w: float
    gract: float | None
    sm_active: float | None


def fit_power(
    usable: Sequence[ObservedRun], alone: Iterable[tuple[Profile, Run]], gpu: Gpu,
    physics: Physics, playback: ReplayCache,
) -> Power:  # fmt: skip
    """The power laws that shared runs show.

    Args:
        usable: Shared runs; those without known power are skipped.
        alone: Runs of a single tenant, each with its profile.
        gpu: The GPU of all of them.
        physics: Constants of replay: intervals must allow for predicted speeds.
        playback: Cached replays.
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
        alone_w=np.array([each.power_w or 0.0 for each in shared.profiles]),
        half=np.array([is_half(each) for each in shared.profiles]),
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
        law = _fitted(_parts(chosen, awake_w), _measured_w(chosen), awake_w)
        errors.append(np.abs(_log_errors(chosen, law, awake_w, gpu)))
    return float(np.concatenate(errors).mean())


def _law(rows: Sequence[_Row], awake_w: float, gpu: Gpu) -> PowerLaw | None:
    """The law of one mode; None if there are too few runs.

    Its bounds come from families that it was not fitted to, at replayed speeds. They are symmetric,
    since errors of replay and of the correction have unrelated signs.
    """
    if len(rows) < _FEWEST_RUNS:
        return None
    parts, measured_w, unseen = _parts(rows, awake_w), _measured_w(rows), []
    for family in sorted({family for row in rows for family in row.families}):
        known = np.array([family not in row.families for row in rows])
        scored = [replace(row, speeds=row.likely) for row in rows if family in row.families]
        law = _fitted(parts[known], measured_w[known], awake_w)
        unseen.append(_log_errors(scored, law, awake_w, gpu))
    bound = float(np.quantile(np.abs(np.concatenate(unseen)), 0.9))
    gract, least = _gract(rows)
    smact = _factor([row for row in rows if not row.apart], "sm_active", 1.0)
    return replace(
        _fitted(parts, measured_w, awake_w), gract=gract, gract_least=least, smact=smact,
        smact_apart=_factor([row for row in rows if row.apart], "sm_active", smact),
        low=-bound, high=bound,
    )  # fmt: skip


def _measured_w(rows: Sequence[_Row]) -> Floats:
    return np.array([row.power_w for row in rows])


def _fitted(parts: Floats, measured_w: Floats, awake_w: float) -> PowerLaw:
    """The shares that explain the runs' power, with equal weight for each run's relative error.

    None of them is below 0, so that a job that gets faster never makes the GPU draw less.

    Args:
        parts: As of `_parts`.
        measured_w: Power of the same runs, shape (runs,).
        awake_w: As of `_awake_w`.
    """
    from scipy.optimize import nnls

    if not len(parts):
        return PowerLaw()
    x, y = parts / measured_w[:, None], (measured_w - awake_w) / measured_w
    pull = np.sqrt(_PULL * (x.sum(axis=1) ** 2).mean())
    towards = pull * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
    plain = pull * np.array([0.0, 1.0, 0.0])
    (waiting, working, half), _ = nnls(np.concatenate([x, towards]), np.concatenate([y, plain]))
    return PowerLaw(waiting=float(waiting), working=float(working), working_half=float(half))


def _parts(rows: Sequence[_Row], awake_w: float) -> Floats:
    """Of each run own watts of its jobs, then times their speeds: in full precision and in half.

    Returns:
        Watts, shape (runs, 3).
    """
    found = np.empty((len(rows), 3))
    for at, row in enumerate(rows):
        own = np.maximum(0.0, row.alone_w - awake_w)
        paced = own * row.speeds
        found[at] = own.sum(), paced[~row.half].sum(), paced[row.half].sum()
    return found


def _log_errors(rows: Sequence[_Row], law: PowerLaw, awake_w: float, gpu: Gpu) -> Floats:
    """Log of measured over predicted power, shape (runs,)."""
    power = Power(awake_w=awake_w)
    predicted = [power.shares_w(row.profiles, list(row.speeds), gpu, law) for row in rows]
    watts = np.array([shares.sum() for shares in predicted if shares is not None])
    return np.asarray(np.log(_measured_w(rows) / watts))


def _gract(rows: Sequence[_Row]) -> tuple[float, float]:
    """Factor on the jobs' engine activity, and the least engine activity of two or more jobs.

    Under time slicing the engine counts as active nearly all the time even with little work; then
    the factor is not needed.
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
    """`law` with bounds from runs of a single tenant."""
    logs = [
        float(np.log(run.power_w / profile.power_w))
        for profile, run in alone if run.power_w and profile.power_w
    ]  # fmt: skip
    if len(logs) < _FEWEST_RUNS:
        return law
    low, high = np.quantile(logs, (0.05, 0.95))
    return replace(law, low=min(0.0, float(low)), high=max(0.0, float(high)))
