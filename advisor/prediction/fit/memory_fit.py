"""Fits the memory model to runs of one GPU."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.observation import ObservedRun
from advisor.prediction.memory import MPS_SERVER_MIB, Z95, Context, Need, need, needs
from advisor.prediction.memory_edge import Edge, caches_mib, deviations_over
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES, Mode, parse_sharing
from advisor.sharing.traversal import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

# Where nothing was measured on any GPU.
NO_CONTEXT = Context(usual_mib=600.0, per_sm_mib=0.0)


def fit_context(
    profiles: Mapping[str, Profile],
    usable: Sequence[ObservedRun],
    gpu: Gpu,
    otherwise: Context = NO_CONTEXT,
) -> Context:
    """The usual size of a context, and how much of it each SM taken away by a limit saves.

    Args:
        profiles: Profiles by name.
        usable: Runs of these.
        gpu: The GPU of all of them.
        otherwise: Used where runs and profiles do not tell.
    """
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
    """Log of measured over predicted memory of each tenant whose memory the driver reported."""
    return np.array([
        np.log(tenant.memory.device_mib / need(
            profile, context, under_mps=shared.mode != "naive",
            sms_taken=shared.gpu.sms - (tenant.sms or shared.gpu.sms),
        ).held_mib)
        for tenant, profile in zip(shared.run.tenants, shared.profiles, strict=True)
        if tenant.memory and tenant.memory.device_mib
    ])  # fmt: skip


def memory_sigma(log_errors: Floats) -> float:
    """Relative standard error with which 90 % intervals hold nine of ten processes.

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
        families: Families of its tenants.
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
    """The runs that tried whether mixes of `profiles` fit in memory.

    A tenant that died on a GPU made to look smaller counts as refused memory: nothing else was
    wrong with it, and not every library reports what it lacks.
    """
    return tuple(trial for run in runs if (trial := _trial(profiles, run, context, gpu)))


def _trial(
    profiles: Mapping[str, Profile], run: Run, context: Context, gpu: Gpu
) -> Trial | None:  # fmt: skip
    sharing = parse_sharing(run.sharing)
    names = [tenant.workload.name for tenant in run.tenants]
    shared = together(sharing)
    known = all(name in profiles for name in names)
    if run.free_mib is None or not known or shared is None:
        return None
    tenants = [profiles[name] for name in names]
    return Trial(
        mode="serial" if len(tenants) == 1 else shared.mode,
        families=frozenset(each.workload.family for each in tenants),
        needs=tuple(needs(tenants, shared, context, gpu)),
        capacity_mib=run.free_mib - (MPS_SERVER_MIB if shared.under_mps else 0),
        refused=sum(tenant.outcome != "ok" for tenant in run.tenants),
    )


# Where the edge is looked for. Processes seldom step at the same time, so less than what all of
# them need at once may do; and more than all would hold may not, for what is free lies in pieces.
_SHARES = np.linspace(-1.0, 2.0, 31)
_WIDTHS = np.linspace(0.05, 1.0, 20)
_SIGMAS = np.array([0.003, 0.005, 0.01, 0.02, 0.04])

# Fewer trials, or fewer of either outcome, and the cautious edge stays.
_FEWEST_TRIALS, _FEWEST_OF_EACH = 20, 3

# No outcome is impossible: one that was thought so must not weigh more than all others.
_LEAST_RISK = 0.01


# What an edge has to be fitted; each must gain this much log likelihood (Akaike 1974).
_CONSTANTS = 3


def fit_edges(tried: Sequence[Trial]) -> dict[Mode, Edge]:
    """By mode: the memory edge that outcomes of trials show; empty if there are too few.

    Driver and allocator refuse memory in the same way however processes take turns, so trials of
    all modes teach one edge. A mode gets an edge of its own once its trials show a difference; so
    does a process alone, about which mixes say nothing.
    """
    mixes = [each for each in tried if each.mode != "serial"]
    if not _enough(mixes):
        return {}
    common = _edge(mixes)
    modes: tuple[Mode, ...] = (*SHARED_MODES, "serial")
    return {mode: _own_edge([e for e in tried if e.mode == mode], common) for mode in modes}


def _own_edge(tried: Sequence[Trial], common: Edge) -> Edge:
    if not _enough(tried):
        return common
    own = _edge(tried)
    gained = _log_likelihood(own, tried) - _log_likelihood(common, tried)
    return own if gained > _CONSTANTS else common


def _enough(tried: Sequence[Trial]) -> bool:
    misfits = sum(each.refused > 0 for each in tried)
    rarer = min(misfits, len(tried) - misfits)
    return len(tried) >= _FEWEST_TRIALS and rarer >= _FEWEST_OF_EACH


def _log_likelihood(edge: Edge, tried: Sequence[Trial]) -> float:
    """Log likelihood of the outcomes of `tried`."""
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
