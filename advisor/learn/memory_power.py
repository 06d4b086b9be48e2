"""Fits memory, and the power and activity of the whole GPU, to shared runs of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.learn.observations import ObservedRun, ReplayCache
from advisor.prediction.memory import (
    MPS_SERVER_MIB,
    Z95,
    Context,
    Edge,
    Need,
    caches_mib,
    deviations_over,
    need,
    needs,
)
from advisor.prediction.power import Power, PowerLaw, is_half, summed_share
from advisor.prediction.replay import Physics
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

# Used if nothing was measured on any GPU.
NO_CONTEXT = Context(usual_mib=600.0, per_sm_mib=0.0)


def fit_context(
    profiles: Mapping[str, Profile], usable: Sequence[ObservedRun], gpu: Gpu,
    otherwise: Context = NO_CONTEXT,
) -> Context:  # fmt: skip
    """Fit the usual size of a context, and how much of it each SM taken away by a limit saves."""
    contexts = [each.memory.context_mib for each in profiles.values()]
    saved = [
        (profile.mps.memory.context_mib - tenant.memory.context_mib) / (gpu.sms - tenant.sms)
        for shared in usable
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if profile.mps and profile.mps.memory.context_mib and tenant.memory
        and tenant.memory.context_mib and tenant.sms and tenant.sms < gpu.sms
    ]  # fmt: skip
    return Context(
        usual_mib=median([each for each in contexts if each is not None] or [otherwise.usual_mib]),
        per_sm_mib=max(0.0, median(saved or [otherwise.per_sm_mib])),
    )


def log_memory(shared: ObservedRun, context: Context) -> Floats:
    """Compute log of measured over predicted memory of each tenant, if the driver reported it."""
    return np.array([
        np.log(tenant.memory.device_mib / need(
            profile, context, under_mps=shared.mode != "naive",
            sms_taken=shared.gpu.sms - (tenant.sms or shared.gpu.sms),
        ).held_mib)
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if tenant.memory and tenant.memory.device_mib
    ])  # fmt: skip


def memory_sigma(log_errors: Floats) -> float:
    """Return the relative standard error with which 90 % intervals hold nine of ten processes.

    A few outliers, where a library chose other kernels, do not widen it for all. 2 % without
    measurements, and never below half a per cent.
    """
    if not len(log_errors):
        return 0.02
    return max(0.005, float(np.quantile(np.abs(log_errors), 0.9)) / Z95)


@dataclass(frozen=True, slots=True)
class Trial:
    """A mix that was run on a GPU made to look smaller.

    Attributes:
        mode: One of `advisor.sharing.SHARED_MODES`; serial: a process alone.
        needs: Predicted memory of each tenant, in order.
        capacity_mib: Memory that the tenants could share.
        refused: Number of tenants that ended early.
    """

    mode: Mode
    families: frozenset[str]
    needs: tuple[Need, ...]
    capacity_mib: float
    refused: int


def trials(
    profiles: Mapping[str, Profile], runs: Iterable[Run], context: Context, gpu: Gpu
) -> tuple[Trial, ...]:
    """Return the runs that tried whether mixes of `profiles` fit in memory.

    A tenant that died on a GPU made to look smaller counts as refused memory: nothing else was
    wrong with it, and not every library reports a lack of memory.
    """
    tried = []
    for run in runs:
        shared = together(parse_sharing(run.sharing))
        if run.free_mib is None or shared is None or not profiles.keys() >= {*run.names}:
            continue
        tenants = [profiles[name] for name in run.names]
        tried.append(Trial(
            mode="serial" if len(tenants) == 1 else shared.mode,
            families=frozenset(each.workload.family for each in tenants),
            needs=tuple(needs(tenants, shared, context, gpu)),
            capacity_mib=run.free_mib - (MPS_SERVER_MIB if shared.under_mps else 0),
            refused=sum(tenant.outcome != "ok" for tenant in run.tenants),
        ))  # fmt: skip
    return tuple(tried)


# The grid of edges. Processes seldom step at the same time, so less than all of them need at once
# may do; and more than all would hold may not, because free memory lies in pieces.
_SHARES = np.linspace(-1.0, 2.0, 31)
_WIDTHS = np.linspace(0.05, 1.0, 20)
_SIGMAS = np.array([0.003, 0.005, 0.01, 0.02, 0.04])

# Fewer trials, or fewer of either outcome, and the cautious edge stays.
_FEWEST_TRIALS, _FEWEST_OF_EACH = 20, 3

# No outcome is impossible: one that was thought so must not weigh more than all others.
_LEAST_RISK = 0.01

# Constants of an edge; each must gain this much log likelihood (Akaike 1974).
_CONSTANTS = 3


def fit_edges(tried: Sequence[Trial]) -> dict[Mode, Edge]:
    """Fit the memory edge of each mode to outcomes of trials; empty if there are too few.

    Driver and allocator refuse memory in the same way however processes take turns, so trials of
    all modes teach one edge. A mode gets an edge of its own once its trials show a difference; so
    does a process alone, about which mixes say nothing.
    """
    mixes = [each for each in tried if each.mode != "serial"]
    if not _enough(mixes):
        return {}
    common = _edge(mixes)
    modes: tuple[Mode, ...] = (*SHARED_MODES, "serial")
    edges = {}
    for mode in modes:
        chosen = [each for each in tried if each.mode == mode]
        own = _edge(chosen) if _enough(chosen) else common
        gained = _log_likelihood(own, chosen) - _log_likelihood(common, chosen)
        edges[mode] = own if gained > _CONSTANTS else common
    return edges


def _enough(tried: Sequence[Trial]) -> bool:
    misfits = sum(each.refused > 0 for each in tried)
    rarer = min(misfits, len(tried) - misfits)
    return len(tried) >= _FEWEST_TRIALS and rarer >= _FEWEST_OF_EACH


def _log_likelihood(edge: Edge, tried: Sequence[Trial]) -> float:
    risks = [(edge.risk(each.needs, each.capacity_mib), each.refused > 0) for each in tried]
    return sum(log(max(_LEAST_RISK, risk if out else 1 - risk)) for risk, out in risks)


def _edge(tried: Sequence[Trial]) -> Edge:
    """Mean of all edges of the grid, weighted by the likelihood of the outcomes.

    The likeliest edge alone would be overconfident. All edges and trials are computed at once.
    """
    from scipy.special import ndtr

    held = np.array([sum(need.held_mib for need in each.needs) for each in tried])
    cache = np.array([caches_mib(each.needs) for each in tried])
    capacity = np.array([each.capacity_mib for each in tried])
    share, width, sigma = (
        axis.reshape(-1, 1) for axis in np.meshgrid(_SHARES, _WIDTHS, _SIGMAS, indexing="ij")
    )
    risks = ndtr(deviations_over(held, cache, capacity, (share, width, sigma)))
    refused = np.array([each.refused for each in tried])
    outcomes = np.where(refused > 0, risks, 1 - risks)
    logs = np.log(np.maximum(outcomes, _LEAST_RISK)).sum(axis=1)
    likely = np.exp(logs - logs.max())

    def mean(axis: Floats) -> float:
        return float(np.average(axis[:, 0], weights=likely))

    victims = float(np.mean(refused[refused > 0]))
    return Edge(share=mean(share), width=mean(width), sigma=mean(sigma), victims=victims)


_FEWEST_RUNS = 5
_SLEEPING_W = 75.0  # where no profile says; an H200 that nobody uses draws 77 W
_TRIED = 9  # powers of the awake GPU that are tried
# Strength of the prior of a law towards the plain sum, in numbers of runs.
_PULL = 0.1
_FULL = 0.95  # activity from which on a counter is saturated

# A run whose power is known, and the speed of each of its jobs: solo step over measured step, at
# most 1, shape (jobs,).
_Paced = tuple[ObservedRun, Floats]


def fit_power(
    usable: Sequence[ObservedRun], alone: Iterable[tuple[Profile, Run]], gpu: Gpu,
    physics: Physics, playback: ReplayCache,
) -> Power:  # fmt: skip
    """Fit the power laws to shared runs.

    Those without known power are skipped. `alone` are runs of a single tenant, each with its
    profile. Intervals allow for speeds predicted by replay with the constants `physics`.
    """

    def likely(run: ObservedRun, measured: Floats) -> Floats:
        """Speeds by replay, as for a mix without measurements."""
        replayed_s = playback.replayed_s(run, physics)
        return measured if replayed_s is None else np.minimum(1.0, run.alone_s / replayed_s)

    modes: dict[Mode, list[_Paced]] = {}
    for run in usable:
        if all(
            watts is not None for watts in (run.run.power_w, *(p.power_w for p in run.profiles))
        ):
            paced = run, np.minimum(1.0, run.alone_s / run.measured_s)
            modes.setdefault(run.mode, []).append(paced)
    awake_w = _awake_w(modes, gpu)
    laws = {
        mode: _law(rows, [(run, likely(run, speeds)) for run, speeds in rows], awake_w, gpu)
        for mode, rows in sorted(modes.items())
        if len(rows) >= _FEWEST_RUNS
    }
    power = Power(awake_w=awake_w, laws=laws)
    return replace(power, alone=_alone(power.alone, alone))


def _awake_w(modes: Mapping[Mode, Sequence[_Paced]], gpu: Gpu) -> float:
    """The awake power with which the laws explain the runs best.

    Readings before a profile cannot be used: a sleeping card draws less than a waiting one (77 W
    and 116 W on an H200), and chance decides which of the two was read.
    """
    profiles = [profile for rows in modes.values() for run, _ in rows for profile in run.profiles]
    idle = [profile.idle_power_w for profile in profiles if profile.idle_power_w is not None]
    sleeping_w = min(idle, default=_SLEEPING_W)
    busy_w = min((each.power_w for each in profiles if each.power_w is not None), default=0.0)
    tried = np.linspace(sleeping_w, max(sleeping_w, busy_w), _TRIED)
    if sum(map(len, modes.values())) < _FEWEST_RUNS:
        return float(np.median(tried))

    def error(awake_w: float) -> float:
        errors = [
            np.abs(_log_errors(rows, _fitted(rows, awake_w), awake_w, gpu))
            for _, rows in sorted(modes.items())
        ]
        return float(np.concatenate(errors).mean())

    return min(map(float, tried), key=error)


def _law(rows: Sequence[_Paced], likely: Sequence[_Paced], awake_w: float, gpu: Gpu) -> PowerLaw:
    """The law of one mode; `likely` are the same runs at replayed speeds.

    Its bounds come from families that it was not fitted to, at replayed speeds. They are symmetric,
    since errors of replay and of the correction have unrelated signs.
    """
    unseen = []
    for family in sorted({family for run, _ in rows for family in run.families}):
        law = _fitted([row for row in rows if family not in row[0].families], awake_w)
        scored = [row for row in likely if family in row[0].families]
        unseen.append(_log_errors(scored, law, awake_w, gpu))
    bound = float(np.quantile(np.abs(np.concatenate(unseen)), 0.9))
    gract, least = _gract(rows)
    shared = [row for row in rows if not row[0].sharing.keeps_sms_apart]
    apart = [row for row in rows if row[0].sharing.keeps_sms_apart]
    smact = _factor(shared, "sm_active", 1.0)
    return replace(
        _fitted(rows, awake_w), gract=gract, gract_least=least, smact=smact,
        smact_apart=_factor(apart, "sm_active", smact), low=-bound, high=bound,
    )  # fmt: skip


def _fitted(rows: Sequence[_Paced], awake_w: float) -> PowerLaw:
    """The shares that explain the runs' power, with equal weight for each run's relative error.

    None of them is below 0, so that a job that gets faster never makes the GPU draw less.
    """
    from scipy.optimize import nnls

    if not rows:
        return PowerLaw()
    # Own watts of a run's jobs; times speeds in full precision; in half.
    parts = np.empty((len(rows), 3))
    for at, (run, speeds) in enumerate(rows):
        own = np.array([max(0.0, (profile.power_w or 0.0) - awake_w) for profile in run.profiles])
        half = np.array([is_half(profile) for profile in run.profiles])
        paced = own * speeds
        parts[at] = own.sum(), paced[~half].sum(), paced[half].sum()
    measured_w = _measured_w(rows)
    x, y = parts / measured_w[:, None], (measured_w - awake_w) / measured_w
    pull = np.sqrt(_PULL * (x.sum(axis=1) ** 2).mean())
    towards = pull * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 1.0]])
    plain = pull * np.array([0.0, 1.0, 0.0])
    (waiting, working, half), _ = nnls(np.concatenate([x, towards]), np.concatenate([y, plain]))
    return PowerLaw(waiting=float(waiting), working=float(working), working_half=float(half))


def _measured_w(rows: Sequence[_Paced]) -> Floats:
    return np.array([run.run.power_w for run, _ in rows])


def _log_errors(rows: Sequence[_Paced], law: PowerLaw, awake_w: float, gpu: Gpu) -> Floats:
    """Log of measured over predicted power, shape (runs,)."""
    power = Power(awake_w=awake_w)
    predicted = [power.shares_w(run.profiles, list(speeds), gpu, law) for run, speeds in rows]
    watts = np.array([shares.sum() for shares in predicted if shares is not None])
    return np.asarray(np.log(_measured_w(rows) / watts))


def _gract(rows: Sequence[_Paced]) -> tuple[float, float]:
    """Factor on the jobs' engine activity, and the least engine activity of two or more jobs.

    Under time slicing the engine counts as active nearly all the time even with little work; then
    the factor is not needed.
    """
    seen = [run.run.counters.gract for run, _ in rows if run.run.counters is not None]
    if rows[0][0].mode == "naive" and seen:
        return 1.0, float(np.median(seen))
    return _factor(rows, "gract", 1.0), 0.0


def _factor(rows: Sequence[_Paced], counter: str, otherwise: float) -> float:
    """Median of measured over summed activity where the GPU is not full; or else `otherwise`."""
    ratios = []
    for run, speeds in rows:
        measured = getattr(run.run.counters, counter, None)
        summed = summed_share(run.profiles, list(speeds), counter)
        if measured and summed and measured < _FULL:
            ratios.append(measured / summed)
    return float(np.median(ratios)) if len(ratios) >= _FEWEST_RUNS else otherwise


def _alone(law: PowerLaw, alone: Iterable[tuple[Profile, Run]]) -> PowerLaw:
    """`law` with bounds from runs of a single tenant."""
    logs = [
        float(np.log(run.power_w / profile.power_w))
        for profile, run in alone
        if run.power_w and profile.power_w
    ]
    if len(logs) < _FEWEST_RUNS:
        return law
    low, high = np.quantile(logs, (0.05, 0.95))
    return replace(law, low=min(0.0, float(low)), high=max(0.0, float(high)))
