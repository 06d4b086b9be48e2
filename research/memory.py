"""Errors of predicted memory, and how often mixes run out of memory as predicted.

Each family is predicted by a model that was fitted without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.learn.memory_power import (
    Trial,
    fit_context,
    fit_edges,
    log_memory,
    memory_sigma,
    trials,
)
from advisor.learn.observations import ObservedRun, shared_runs
from advisor.prediction.memory import cautious_edge, needs
from advisor.report.format import percent
from advisor.sharing import Mode
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

# A misfit is predicted from this risk on.
_MISFIT = 0.5

_MEMORY_HEADINGS = (
    "sharing",
    "processes",
    "held, MAPE",
    "held, worst",
    "least, MAPE",
    "runs",
    "total, MAPE",
)
_RISK_HEADINGS = (
    "sharing",
    "trials",
    "ran out",
    "misfits predicted",
    "false alarms",
    "Brier score",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Memory of measured processes in one mode; errors are shares of what was measured.

    Attributes:
        held_mape: Mean absolute error of what a process holds if nothing stops it.
        held_worst: Largest absolute error of it.
        least_mape: Mean absolute error of what suffices if its allocator is capped.
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
class RiskRow:
    """Trials of one mode on a GPU made to look smaller.

    Attributes:
        misfits: Trials that ran out of memory.
        recall: Share of misfits that were predicted; None without misfits.
        false_alarms: Share of the others that were predicted to run out; None without others.
        brier: Mean squared difference of risk and outcome.
    """

    mode: Mode
    trials: int
    misfits: int
    recall: float | None
    false_alarms: float | None
    brier: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScore:
    """Errors of memory and of its risk, by mode."""

    rows: tuple[MemoryRow, ...]
    risks: tuple[RiskRow, ...]


@dataclass(frozen=True, slots=True)
class _Process:
    """One process of a run: predicted and measured MiB."""

    mode: Mode
    run: str
    held_mib: float
    least_mib: float
    measured_held_mib: float
    measured_least_mib: float


def memory_score(profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu) -> MemoryScore:
    """Score memory of the drawn runs and the memory trials among `runs`."""
    shared = shared_runs(profiles, runs, gpu)
    processes = _processes(profiles, shared, gpu)
    context = fit_context(profiles, shared, gpu)
    logs = [log_memory(observed, context) for observed in shared]
    sigma = memory_sigma(np.concatenate(logs) if logs else np.zeros(0))
    return MemoryScore(
        rows=tuple(
            _memory_row(mode, [process for process in processes if process.mode == mode])
            for mode in sorted({process.mode for process in processes})
        ),
        risks=_risk_rows(trials(profiles, runs, context, gpu), sigma),
    )


def _processes(
    profiles: Mapping[str, Profile], shared: Sequence[ObservedRun], gpu: Gpu
) -> list[_Process]:
    """Predict every process of the drawn runs, by a context fitted without its family."""
    drawn = [observed for observed in shared if observed.run.purpose == "drawn"]
    processes = []
    for family in sorted({family for observed in drawn for family in observed.families}):
        others = {name: p for name, p in profiles.items() if p.workload.family != family}
        context = fit_context(others, [o for o in shared if family not in o.families], gpu)
        for observed in drawn:
            predicted = needs(observed.profiles, observed.sharing, context, gpu)
            rows = zip(observed.run.tenants, predicted, observed.families, strict=True)
            for tenant, need, of_family in rows:
                memory = tenant.memory
                if of_family != family or not memory or memory.allocated_mib is None:
                    continue
                if memory.device_mib and memory.context_mib:
                    least_mib = memory.allocated_mib + memory.context_mib
                    processes.append(
                        _Process(
                            observed.mode,
                            observed.run.id,
                            need.held_mib,
                            need.least_mib,
                            memory.device_mib,
                            least_mib,
                        )
                    )
    return processes


def _memory_row(mode: Mode, processes: Sequence[_Process]) -> MemoryRow:
    held = [abs(p.held_mib / p.measured_held_mib - 1) for p in processes]
    least = [abs(p.least_mib / p.measured_least_mib - 1) for p in processes]
    runs: dict[str, list[_Process]] = {}
    for process in processes:
        runs.setdefault(process.run, []).append(process)
    totals = [
        abs(sum(p.held_mib for p in group) / sum(p.measured_held_mib for p in group) - 1)
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


def _risk_rows(tried: Sequence[Trial], sigma: float) -> tuple[RiskRow, ...]:
    """Score each trial once for each of its families, by an edge fitted without that family."""
    judged: dict[Mode, list[tuple[float, float, float]]] = {}  # risk, outcome, weight
    fallback = cautious_edge(sigma)
    for family in sorted({family for trial in tried for family in trial.families}):
        edges = fit_edges([trial for trial in tried if family not in trial.families])
        for trial in tried:
            if family in trial.families:
                risk = edges.get(trial.mode, fallback).risk(trial.needs, trial.capacity_mib)
                row = (risk, float(trial.refused > 0), 1 / len(trial.families))
                judged.setdefault(trial.mode, []).append(row)
    rows = []
    for mode in sorted(judged):
        risk, ran_out, weight = np.array(judged[mode]).T
        outcomes = [trial.refused > 0 for trial in tried if trial.mode == mode]
        alarm = risk >= _MISFIT
        misfit, fit = weight * ran_out, weight * (1 - ran_out)
        rows.append(
            RiskRow(
                mode=mode,
                trials=len(outcomes),
                misfits=sum(outcomes),
                recall=float(misfit[alarm].sum() / misfit.sum()) if misfit.sum() else None,
                false_alarms=float(fit[alarm].sum() / fit.sum()) if fit.sum() else None,
                brier=float(np.average((risk - ran_out) ** 2, weights=weight)),
            )
        )
    return tuple(rows)


def memory_section(score: MemoryScore) -> str:
    """Return the tables in Markdown; empty if nothing was measured."""
    parts = []
    if score.rows:
        rows = [
            (
                MODE_WORDS[row.mode],
                str(row.processes),
                percent(row.held_mape),
                percent(row.held_worst),
                percent(row.least_mape),
                str(row.runs),
                percent(row.total_mape),
            )
            for row in score.rows
        ]
        parts += [
            "## Memory",
            markdown(_MEMORY_HEADINGS, rows),
            "Held is what a process has on the device if nothing stops it, least what suffices if "
            "its allocator is capped.",
        ]
    if score.risks:
        trial_rows = [
            (
                MODE_WORDS[row.mode],
                str(row.trials),
                str(row.misfits),
                percent(row.recall),
                percent(row.false_alarms),
                f"{row.brier:.3f}",
            )
            for row in score.risks
        ]
        parts += [
            "## Running out of memory",
            markdown(_RISK_HEADINGS, trial_rows),
            "Trials ran on the GPU made to look like smaller cards. A misfit is predicted from "
            "a risk of 50 % on. A trial of several families counts in parts, once for each family "
            "left out.",
        ]
    return joined(*parts)
