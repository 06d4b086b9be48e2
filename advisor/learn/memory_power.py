"""Fits memory, and the power and activity of the whole GPU, to shared runs of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
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
from advisor.prediction.power import Power, PowerLaw, is_half
from advisor.prediction.replay import Effort, Physics
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.groups import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

# Used if nothing was measured on any GPU.
NO_CONTEXT = Context(usual_mib=600.0, per_sm_mib=0.0)


def fit_context(
    profiles: Mapping[str, Profile],
    usable: Sequence[ObservedRun],
    gpu: Gpu,
    otherwise: Context = NO_CONTEXT,
) -> Context:
    """Fit the usual size of a context, and how much of it each SM taken away by a limit saves."""
    contexts = [each.memory.context_mib for each in profiles.values()]
    saved = [
        (profile.mps.memory.context_mib - tenant.memory.context_mib) / (gpu.sms - tenant.sms)
        for shared in usable
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if profile.mps
        and profile.mps.memory.context_mib
        and tenant.memory
        and tenant.memory.context_mib
        and tenant.sms
        and tenant.sms < gpu.sms
    ]
    return Context(
        usual_mib=median([each for each in contexts if each is not None] or [otherwise.usual_mib]),
        per_sm_mib=max(0.0, median(saved or [otherwise.per_sm_mib])),
    )


def log_memory(shared: ObservedRun, context: Context) -> Floats:
    """Compute log of measured over predicted memory of each tenant, if the driver reported it."""
    return np.array(
        [
            np.log(
                tenant.memory.device_mib
                / need(
                    profile,
                    context,
                    under_mps=shared.mode != "naive",
                    sms_taken=shared.gpu.sms - (tenant.sms or shared.gpu.sms),
                ).held_mib
            )
            for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
            if tenant.memory and tenant.memory.device_mib
        ]
    )


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
    """A mix, or a process alone (serial), that was run on a GPU made to look smaller.

    Attributes:
        needs: Predicted memory of each tenant, in order.
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

    A tenant that failed on a GPU made to look smaller counts as refused memory: nothing else was
    wrong with it, and not every library reports a lack of memory.
    """
    tried = []
    for run in runs:
        shared = together(parse_sharing(run.sharing))
        if run.free_mib is None or shared is None or not profiles.keys() >= {*run.names}:
            continue
        tenants = [profiles[name] for name in run.names]
        tried.append(
            Trial(
                mode="serial" if len(tenants) == 1 else shared.mode,
                families=frozenset(each.workload.family for each in tenants),
                needs=tuple(needs(tenants, shared, context, gpu)),
                capacity_mib=run.free_mib - (MPS_SERVER_MIB if shared.under_mps else 0),
                refused=sum(tenant.outcome != "ok" for tenant in run.tenants),
            )
        )
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
    all modes are fitted to one edge. A mode gets its own edge once its trials show a difference; so
    does a process alone, which mixes do not show.
    """
    mixes = [each for each in tried if each.mode != "serial"]
    if not _enough(mixes):
        return {}
    common = _edge(mixes)
    edges: dict[Mode, Edge] = dict.fromkeys((*SHARED_MODES, "serial"), common)
    for mode in edges:
        chosen = [each for each in tried if each.mode == mode]
        own = _edge(chosen) if _enough(chosen) else common
        if _log_likelihood(own, chosen) - _log_likelihood(common, chosen) > _CONSTANTS:
            edges[mode] = own
    return edges


def _enough(tried: Sequence[Trial]) -> bool:
    misfits = sum(each.refused > 0 for each in tried)
    rarer = min(misfits, len(tried) - misfits)
    return len(tried) >= _FEWEST_TRIALS and rarer >= _FEWEST_OF_EACH


def _log_likelihood(edge: Edge, tried: Sequence[Trial]) -> float:
    risks = [(edge.risk(each.needs, each.capacity_mib), each.refused > 0) for each in tried]
    return sum(log(max(_LEAST_RISK, risk if out else 1 - risk)) for risk, out in risks)


def _edge(tried: Sequence[Trial]) -> Edge:
    """Mean of all edges of the grid, weighted by likelihood: one alone would be overconfident."""
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
    means = [float(np.average(axis[:, 0], weights=likely)) for axis in (share, width, sigma)]
    return Edge(means[0], means[1], means[2], float(np.mean(refused[refused > 0])))


_FEWEST_RUNS = 5
_SLEEPING_W = 75.0  # where no profile says; an idle H200 draws 77 W


def fit_power(
    usable: Sequence[ObservedRun],
    alone: Iterable[tuple[Profile, Run]],
    gpu: Gpu,
    physics: Physics,
    playback: ReplayCache,
) -> Power:
    """Fit the power laws to those shared runs whose power is known.

    `alone` are runs of a single tenant, each with its profile. Intervals allow for speeds predicted
    by replay with the constants `physics`.
    """
    runs: dict[Mode, list[ObservedRun]] = {}
    for run in usable:
        if run.run.power_w is not None and all(each.power_w is not None for each in run.profiles):
            runs.setdefault(run.mode, []).append(run)
    power, laws = Power(awake_w=_awake_w([*chain.from_iterable(runs.values())])), {}
    for mode, of_mode in sorted(runs.items()):
        if len(of_mode) >= _FEWEST_RUNS:
            replays = [
                playback.play(run.profiles, run.sharing, run.gpu, physics, Effort())
                for run in of_mode
            ]
            laws[mode] = _law(of_mode, replays, gpu, power)
    logs = [log(run.power_w / p.power_w) for p, run in alone if run.power_w and p.power_w]
    if len(logs) < _FEWEST_RUNS:
        return replace(power, laws=laws)
    low, high = np.quantile(logs, (0.05, 0.95))
    bounded = replace(power.alone, low=min(0.0, float(low)), high=max(0.0, float(high)))
    return replace(power, laws=laws, alone=bounded)


def _speeds(run: ObservedRun, steps_s: Floats | None = None) -> Floats:
    """Solo step over each of `steps_s`, else the measured one; at most 1, shape (jobs,)."""
    return np.minimum(1.0, run.alone_s / (run.measured_s if steps_s is None else steps_s))


def _awake_w(runs: Sequence[ObservedRun]) -> float:
    """Power of the awake GPU by which one factor on all jobs' own watts fits best."""
    # Linear: power = awake + factor * (sum of power alone * speed - awake * sum of speeds).
    # Readings before a profile are of a sleeping or a waiting card, by chance.
    profiles = [profile for run in runs for profile in run.profiles]
    idle_w = [each.idle_power_w for each in profiles if each.idle_power_w is not None]
    sleeping_w = min(idle_w, default=_SLEEPING_W)
    least_w = min((each.power_w for each in profiles if each.power_w is not None), default=0.0)
    busy_w = max(sleeping_w, least_w)
    if len(runs) < _FEWEST_RUNS:
        return (sleeping_w + busy_w) / 2
    columns = np.array(
        [
            (1.0, _speeds(run).sum(), _speeds(run) @ [each.power_w or 0.0 for each in run.profiles])
            for run in runs
        ]
    )
    measured_w = np.array([run.run.power_w for run in runs], dtype=np.float64)
    _, less, factor = np.linalg.lstsq(columns / measured_w[:, None], np.ones(len(runs)))[0]
    return float(np.clip(-less / max(1e-9, factor), sleeping_w, busy_w))


def _law(
    runs: Sequence[ObservedRun], replays: Sequence[Floats | None], gpu: Gpu, power: Power
) -> PowerLaw:
    """The law of one mode: its shares, at least 0, explain the runs' power above the awake GPU."""
    # Relative errors of all runs weigh the same; the plain sum weighs as much as one run. Bounds
    # hold nine of ten jobs at replayed speeds, and are symmetric: errors have unrelated signs.
    from scipy.optimize import nnls

    # Own watts of a run's jobs; times speeds in full precision; in half.
    columns = np.empty((len(runs), 3))
    for at, run in enumerate(runs):
        own_w, half = power.own_w(run.profiles), np.array([is_half(each) for each in run.profiles])
        paced_w = own_w * _speeds(run)
        columns[at] = own_w.sum(), paced_w[~half].sum(), paced_w[half].sum()
    measured_w = np.array([run.run.power_w for run in runs], dtype=np.float64)
    x, y = columns / measured_w[:, None], 1 - power.awake_w / measured_w
    plain = np.array([0.0, 1.0, 1.0])
    shares, _ = nnls(np.concatenate([x, np.eye(3)]), np.concatenate([y, plain]))
    waiting, working, working_half = map(float, shares)
    law = PowerLaw(waiting=waiting, working=working, working_half=working_half)
    predicted = (
        power.shares_w(run.profiles, _speeds(run, replayed_s), gpu, law)
        for run, replayed_s in zip(runs, replays, strict=True)
    )
    watts = np.array([shares_w.sum() for shares_w in predicted if shares_w is not None])
    errors = np.repeat(np.abs(np.log(measured_w / watts)), [len(run.profiles) for run in runs])
    bound = float(np.quantile(errors, 0.9))
    return replace(law, low=-bound, high=bound)
