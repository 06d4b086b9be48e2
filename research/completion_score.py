"""The error of the simulator for whole jobs, and the regret of choosing by it."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import numpy as np

from advisor.measure.shared.planned_run import CompletionRun
from advisor.prediction.job_features import is_gpu_bound
from advisor.sharing import SHARED_MODES, Group, Mode, Mps, Naive
from advisor.timeline.waiting_jobs import repartition_s
from advisor.validate.baselines import CHOOSERS, Offer
from advisor.validate.regret import Regret, regret_of
from advisor.workload.profile import Profile
from research.completion import CompletionComparison, panels
from research.files import BENCHMARKS

RECOMMENDED, SIMULATED = "recommended", "simulated"
MODES: tuple[Mode, ...] = ("serial", *SHARED_MODES, "phases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Errors over the runs of one mode, as shares; None if there is not a run.

    Attributes:
        runs: How many.
        jobs: In all of them.
        makespan: Mean absolute error of when the last job ends.
        worst_makespan: The largest.
        completion: Mean absolute error of when each job ends.
        p90: What one in ten of these exceeds.
        inside: Share of jobs that ended within their 90 % intervals.
    """

    runs: int
    jobs: int
    makespan: float | None
    worst_makespan: float | None
    completion: float | None
    p90: float | None
    inside: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """How far jobs are off by what paces them, and how slow their cores were.

    Attributes:
        gpu_bound: Mean absolute error of when jobs end that fill the GPU alone.
        host_bound: Of those that wait for their hosts.
        slower: Times as long that cores took for the same work as when jobs were profiled: what
            one in twenty was below, the median, and what one in twenty exceeded.
    """

    gpu_bound: float
    host_bound: float
    slower: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Starts and stops of MPS between groups: how many, their median, and what is simulated."""

    n: int
    median_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeJobs:
    """All there is to say of runs of whole jobs.

    Attributes:
        modes: By mode; those without a run are left out.
        unseen: The same, each job by the model fitted without its family.
        mixes: The same for mixes that ran to be simulated and not to be chosen from.
        hosts: None if not all of it was recorded.
        pauses: None if MPS was neither started nor stopped between groups.
        set_sizes: Jobs of each job set that ran in several ways to be chosen from.
        rules: What each way to choose gives away of the best speed of these sets.
    """

    modes: Mapping[str, Finished]
    unseen: Mapping[str, Finished]
    mixes: Mapping[str, Finished]
    hosts: Hosts | None
    pauses: Pauses | None
    set_sizes: tuple[int, ...]
    rules: Mapping[str, Regret]


def whole_jobs(
    runs: Sequence[CompletionComparison],
    unseen: Sequence[CompletionComparison],
    profiles: Mapping[str, Profile],
    folder: Path = BENCHMARKS,
) -> WholeJobs | None:
    """The figures of `runs`; None if no whole jobs were run.

    Args:
        runs: Of whole jobs, in any mode.
        unseen: Those of them simulated by models that never saw their families.
        profiles: Solo profiles by name.
        folder: Holds what was recommended before anything was run; see `recommended_runs`.
    """
    if not runs:
        return None
    sets = panels(runs)
    chosen_from = {id(run) for panel in sets for run in panel}
    lost = regrets(runs, profiles, recommended_runs(folder))
    return WholeJobs(
        modes=_by_mode(runs),
        unseen=_by_mode(unseen),
        mixes=_by_mode([run for run in runs if id(run) not in chosen_from]),
        hosts=_hosts(runs, profiles),
        pauses=_pauses(runs),
        set_sizes=tuple(len(panel[0].work) for panel in sets),
        rules={name: regret_of(each) for name, each in lost.items()},
    )


def finished(runs: Iterable[CompletionComparison], mode: Mode) -> Finished:
    """The runs of `mode` among `runs`."""
    chosen = [run for run in runs if run.mode == mode]
    ends = [abs(error) for run in chosen for error in run.errors]
    makespans = [abs(run.makespan_error) for run in chosen]
    return Finished(
        runs=len(chosen),
        jobs=len(ends),
        makespan=mean(makespans) if chosen else None,
        worst_makespan=max(makespans, default=None),
        completion=mean(ends) if chosen else None,
        p90=float(np.quantile(ends, 0.9)) if chosen else None,
        inside=sum(run.inside for run in chosen) / len(ends) if chosen else None,
    )


def _by_mode(runs: Sequence[CompletionComparison]) -> dict[str, Finished]:
    return {mode: done for mode in MODES if (done := finished(runs, mode)).runs}


def _hosts(runs: Iterable[CompletionComparison], profiles: Mapping[str, Profile]) -> Hosts | None:
    off: dict[bool, list[float]] = {True: [], False: []}
    slower = []
    for run in runs:
        for tenant, error in zip(run.run.tenants, run.errors, strict=True):
            profile = profiles[tenant.workload.name]
            off[is_gpu_bound(profile)].append(abs(error))
            if tenant.host_check_s and profile.host_check_s:
                slower.append(tenant.host_check_s / profile.host_check_s)
    if not (off[True] and off[False] and slower):
        return None
    low, middle, high = map(float, np.quantile(slower, (0.05, 0.5, 0.95)))
    return Hosts(gpu_bound=mean(off[True]), host_bound=mean(off[False]), slower=(low, middle, high))


def _pauses(runs: Iterable[CompletionComparison]) -> Pauses | None:
    took_s = [each for run in runs for each in _changes_s(run)]
    if not took_s:
        return None
    simulated_s = repartition_s(Group((1,), Naive()), Group((2,), Mps()))
    return Pauses(n=len(took_s), median_s=median(took_s), simulated_s=simulated_s)


def _changes_s(run: CompletionComparison) -> list[float]:
    """Seconds of each pause of `run` in which MPS was started or stopped."""
    workloads = tuple(tenant.workload for tenant in run.run.tenants)
    full = CompletionRun(id=run.run.id, sharing=run.sharing, purpose=run.run.purpose,
                   workloads=workloads, steps=run.done.steps)  # fmt: skip
    with_mps = [group.mix.sharing.under_mps for group in full.run_groups]
    return [
        pause_s
        for pause_s, (before, after) in zip(run.done.pauses_s, pairwise(with_mps), strict=True)
        if before != after
    ]


def regrets(
    runs: Iterable[CompletionComparison],
    profiles: Mapping[str, Profile],
    recommended: Collection[str] = (),
) -> dict[str, list[float]]:
    """Of each way to choose, the share of the best speed that it gives away, set by set."""
    lost: dict[str, list[float]] = {
        RECOMMENDED: [],
        SIMULATED: [],
        **{name: [] for name in CHOOSERS},
    }
    for panel in panels(runs):
        best_s = min(run.done.makespan_s for run in panel)
        for name, given_away in lost.items():
            chosen = _choice(name, panel, profiles, recommended)
            if chosen is not None:
                given_away.append(1 - best_s / chosen.done.makespan_s)
    return lost


def _choice(
    name: str,
    panel: Sequence[CompletionComparison],
    profiles: Mapping[str, Profile],
    recommended: Collection[str],
) -> CompletionComparison | None:
    """The run of `panel` that the rule `name` chooses; None if it was not run."""
    if name == RECOMMENDED:
        return next((run for run in panel if run.run.id in recommended), None)
    if name == SIMULATED:
        return min(panel, key=lambda run: run.makespan_s.p50)
    alone = tuple(profiles[each] for each, _ in panel[0].work)
    picked = CHOOSERS[name](Offer(alone, tuple(run.sharing for run in panel)))
    return next((run for run in panel if run.sharing == picked), None)


def recommended_runs(folder: Path = BENCHMARKS) -> frozenset[str]:
    """Ids of the runs that ``benchmarks/recommend_panels.py`` wrote down for sets of whole jobs."""
    documents = [json.loads(f.read_text()) for f in folder.glob("completion-*/recommended.json")]
    return frozenset(each["run"] for document in documents for each in document["sets"])
