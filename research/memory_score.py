"""The error of predicted memory, and whether mixes run out as often as predicted.

As everywhere, a family's processes are predicted by a model fitted to the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.hardware.catalogue import Gpu
from advisor.prediction.fit.memory_fit import (
    fit_context,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.prediction.fit.observation import ObservedRun, shared_runs
from advisor.prediction.memory import Need, needs
from advisor.sharing import Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.memory_risk import RiskRow, risk_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Memory of measured processes in one mode; errors are shares of what was measured.

    Attributes:
        processes: How many.
        held_mape: Mean absolute error of `memory_mib`.
        held_worst: Largest absolute error of it.
        least_mape: Mean absolute error of `memory_min_mib`.
        runs: How many.
        total_mape: Mean absolute error of what all processes of a run hold together.
    """

    mode: Mode
    processes: int
    held_mape: float
    held_worst: float
    least_mape: float
    runs: int
    total_mape: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScore:
    """All there is to say of memory on one GPU.

    Attributes:
        rows: By mode; modes without measured processes are left out.
        risks: By mode; empty if no trial was made.
    """

    gpu: str
    rows: tuple[MemoryRow, ...]
    risks: tuple[RiskRow, ...]


def evaluate_memory(
    profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu
) -> MemoryScore:  # fmt: skip
    """Score memory on `gpu`, each family by what the others taught.

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`; drawn ones and memory trials are scored.
        gpu: The GPU that all of them ran on.
    """
    shared = shared_runs(profiles, runs, gpu)
    drawn = [each for each in shared if each.run.purpose == "drawn"]
    scored = list(scored_processes(profiles, shared, drawn, gpu))
    modes = sorted({each.mode for each in scored})
    context = fit_context(profiles, shared, gpu)
    tried = trials(profiles, runs, context, gpu)
    logs = [log_memory(each, context) for each in shared]
    sigma = memory_sigma(np.concatenate(logs) if logs else np.zeros(0))
    return MemoryScore(
        gpu=gpu.key,
        rows=tuple(_memory_row(mode, [e for e in scored if e.mode == mode]) for mode in modes),
        risks=risk_rows(tried, sigma),
    )


@dataclass(frozen=True, slots=True)
class ScoredProcess:
    """One process of a run: what others taught to expect of its family, and what was measured."""

    mode: Mode
    run: str
    family: str
    predicted: Need
    held_mib: float
    least_mib: float


def scored_processes(
    profiles: Mapping[str, Profile],
    shared: Sequence[ObservedRun],
    drawn: Sequence[ObservedRun],
    gpu: Gpu,
) -> Iterator[ScoredProcess]:
    """Every process of `drawn`, by a context fitted to those of `shared` without its family."""
    for family in sorted({family for each in drawn for family in each.families}):
        others = {name: each for name, each in profiles.items() if each.workload.family != family}
        context = fit_context(others, [s for s in shared if family not in s.families], gpu)
        for each in drawn:
            found = needs(each.profiles, each.sharing, context, gpu)
            for tenant, its, of in zip(each.run.tenants, found, each.families, strict=True):
                memory = tenant.memory
                if of != family or not memory or memory.allocated_mib is None:
                    continue
                if memory.device_mib and memory.context_mib:
                    least_mib = memory.allocated_mib + memory.context_mib
                    yield ScoredProcess(
                        each.mode, each.run.id, family, its, memory.device_mib, least_mib
                    )  # fmt: skip


def _memory_row(mode: Mode, processes: Sequence[ScoredProcess]) -> MemoryRow:
    held = [abs(each.predicted.held_mib / each.held_mib - 1) for each in processes]
    least = [abs(each.predicted.least_mib / each.least_mib - 1) for each in processes]
    runs: dict[str, list[ScoredProcess]] = {}
    for each in processes:
        runs.setdefault(each.run, []).append(each)
    totals = [
        abs(sum(e.predicted.held_mib for e in group) / sum(e.held_mib for e in group) - 1)
        for group in runs.values()
    ]
    return MemoryRow(
        mode=mode,
        processes=len(processes),
        held_mape=float(np.mean(held)),
        held_worst=max(held),
        least_mape=float(np.mean(least)),
        runs=len(runs),
        total_mape=float(np.mean(totals)),
    )
