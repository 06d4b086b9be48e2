"""Errors for profiles that lack the MPS probe, the counters of SMs and memory, or both."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from advisor.learn.observations import ReplayCache
from advisor.learn.scores import JobComparison, sharing_of
from advisor.prediction.host import is_gpu_bound
from advisor.report.format import percent
from advisor.sharing import Mode
from advisor.workload.profile import Profile
from research.evaluate import Evaluation, predict_folds
from research.score_tables import MODE_HEADINGS, MODE_WORDS, markdown
from research.steps import joined

_COUNTERS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")
_MODES: tuple[Mode, ...] = ("mps", "mps-limits")


def without_probe(profile: Profile) -> Profile:
    """Return `profile` as `advisor profile` makes it without ``--probe``."""
    return replace(profile, mps=None, sm_exponent=None)


def without_counters(profile: Profile) -> Profile:
    """Return `profile` as of a GPU without GPM, and without DCGM's host engine."""
    nothing: dict[str, Any] = dict.fromkeys(_COUNTERS)
    return replace(profile, counters=profile.counters and replace(profile.counters, **nothing))


WAYS: Mapping[str, Callable[[Profile], Profile]] = {
    "nothing": lambda profile: profile,
    "counters": without_counters,
    "probe": without_probe,
    "both": lambda profile: without_counters(without_probe(profile)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Errors of the drawn jobs from profiles that lack something, as shares of the measured step.

    Attributes:
        lacks: One of `WAYS`.
        gpu_bound: MAPE of the jobs that keep the GPU busy alone; None without any.
        inside: Share of the measured steps in their 90 % intervals.
    """

    lacks: str
    mode: Mode
    n: int
    mape: float
    gpu_bound: float | None
    inside: float


def lacking_scores(evaluation: Evaluation, processes: int = 1) -> tuple[Lacking, ...]:
    """Predict the drawn runs again, by the same models without the jobs' families."""
    chosen, rows = evaluation.chosen, []
    folds = {family: (family,) for family in evaluation.models}
    full = chosen.profiles
    for lacks, way in WAYS.items():
        stripped = {name: way(profile) for name, profile in full.items()}
        scored = replace(chosen, profiles=stripped, advice=())
        parts = predict_folds(folds, scored, ReplayCache(), processes, models=evaluation.models)
        held = {key: job for _, of_fold in parts.values() for key, job in of_fold.items()}
        jobs: dict[Mode, list[JobComparison]] = {}
        for run in chosen.scored:
            jobs.setdefault(sharing_of(run).mode, []).extend(
                held["raw", run.id, place] for place in range(len(run.tenants))
            )
        rows += [
            Lacking(
                lacks=lacks,
                mode=mode,
                n=len(jobs[mode]),
                mape=mean(abs(job.error) for job in jobs[mode]),
                gpu_bound=mean(busy) if busy else None,
                inside=mean(job.inside for job in jobs[mode]),
            )
            for mode in _MODES
            if mode in jobs
            for busy in [[abs(j.error) for j in jobs[mode] if is_gpu_bound(full[j.job])]]
        ]
    return tuple(rows)


def lacking_table(rows: Iterable[Lacking]) -> str:
    """Return a line for each mode and missing part, in Markdown."""
    cells = [
        (
            MODE_HEADINGS[MODE_WORDS[row.mode]],
            row.lacks,
            str(row.n),
            *map(percent, (row.mape, row.gpu_bound, row.inside)),
        )
        for row in sorted(rows, key=lambda row: _MODES.index(row.mode))
    ]
    headings = ("sharing", "profile lacks", "n", "MAPE", "GPU-bound jobs", "in 90 % interval")
    return markdown(headings, cells)


def lacking_section(rows: Iterable[Lacking]) -> str:
    """Return the table with a heading."""
    return joined(
        "## Profiles that lack a part",
        "Counters of SMs and memory come from GPM or DCGM, and the MPS probe from `--probe`. Where "
        "a profile lacks one, the advisor estimates it from the kernel trace. Drawn runs:",
        lacking_table(rows),
    )
