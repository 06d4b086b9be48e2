"""Writes and reads predictions as a file, ours for inspection or others' for scoring.

One JSON object a line: the id of a run, and the predicted step of each tenant in the run's order,
in seconds. A 90 % interval is optional; if one tenant has it, every tenant has.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from advisor.errors import InvalidInput, counted
from advisor.hardware.gpus import Gpu
from advisor.learn.baselines import UNFITTED
from advisor.learn.evaluate import Evaluation, evaluation_of, select
from advisor.learn.scores import (
    RunComparison,
    baseline_steps,
    compared_job,
    profiles_of,
    sharing_of,
)
from advisor.prediction.prediction import Interval
from advisor.workload.profile import Profile
from advisor.workload.reading import DAY_S, LEAST_STEP_S, check_number, read_bytes
from advisor.workload.records import parse_record
from advisor.workload.run import Run

_REMEDY = "Correct the file; profiles/DATA_CARD.md shows a line."


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """The predicted step of one tenant, in seconds.

    Attributes:
        p05: 5 % quantile; None if `p95` is.
        p95: 95 % quantile.

    Raises:
        InvalidInput: The numbers are not positive and increasing, or one bound is missing.
    """

    p50: float
    p05: float | None = None
    p95: float | None = None

    def __post_init__(self) -> None:
        if (self.p05 is None) != (self.p95 is None):
            raise InvalidInput("an interval has both bounds, p05 and p95, or is left out")
        if not 0 < self.interval.p05 <= self.interval.p95 < inf:
            raise InvalidInput(f"a step takes more than 0 s, got {self}")
        check_number("a predicted step in seconds", self.interval.p95, DAY_S, LEAST_STEP_S)

    @property
    def interval(self) -> Interval:
        """From p05 to p95; only p50 where there are no bounds."""
        low = self.p50 if self.p05 is None else self.p05
        return Interval(low, self.p50, self.p50 if self.p95 is None else self.p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a file of predictions.

    Attributes:
        run: The run's id.
        step_s: Predicted step of each tenant, in the run's order.
    """

    run: str
    step_s: tuple[PredictedStep, ...]


def entries_text(evaluation: Evaluation) -> str:
    """What was predicted of every scored run and of every run of a panel, one line each."""
    return "".join(_line(run) for run in (*evaluation.runs, *evaluation.advice))


def _line(run: RunComparison) -> str:
    steps = [
        {"p05": job.predicted_s.p05, "p50": job.predicted_s.p50, "p95": job.predicted_s.p95}
        for job in run.jobs
    ]
    entry = {"run": run.run.id, "step_s": steps}
    return json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n"


def read_entries(path: Path) -> dict[str, Entry]:
    """The predictions in `path`, by run.

    Raises:
        InvalidInput: A line is malformed, a run occurs twice, or some tenants have an interval
            and others none.
    """
    entries: dict[str, Entry] = {}
    for number, line in enumerate(read_bytes(path).splitlines(), start=1):
        if line.strip():
            entry = parse_record(Entry, line, f"{path}:{number}", _REMEDY)
            if entry.run in entries:
                raise InvalidInput(f"{path}:{number}: run {entry.run} occurs twice. {_REMEDY}")
            entries[entry.run] = entry
    if len({step.p05 is None for entry in entries.values() for step in entry.step_s}) > 1:
        raise InvalidInput(
            f"{path}: some tenants have an interval, others none. Give all of them one, or none."
        )
    return entries


def score_entries(
    path: Path, profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu
) -> Evaluation:
    """Scores the predictions in `path` on the fixed splits, as ours are scored.

    Whether a prediction came from a model that saw no run of the family is up to whoever made the
    file. Baselines are those that need no fit.

    Args:
        path: Has every scored run, and either every run of a panel or none.
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.

    Raises:
        InvalidInput: The file is malformed, lacks a run, or has one that is not asked for.
    """
    entries = read_entries(path)
    chosen = select(profiles, runs, gpu)
    asked = {run.id for run in (*chosen.scored, *chosen.advice)}
    _refuse(path, "these runs are not asked for", entries.keys() - asked)
    _refuse(path, "scored runs are missing", {run.id for run in chosen.scored} - entries.keys())
    panels = chosen.advice if any(run.id in entries for run in chosen.advice) else ()
    _refuse(path, "runs of panels are missing", {run.id for run in panels} - entries.keys())
    scored, advice = (
        tuple(_beside(run, entries[run.id], profiles, gpu, path) for run in part)
        for part in (chosen.scored, panels)
    )
    has_intervals = all(step.p05 is not None for each in entries.values() for step in each.step_s)
    return evaluation_of(chosen, profiles, scored, advice, has_intervals)


def _refuse(path: Path, complaint: str, ids: Iterable[str]) -> None:
    if listed := sorted(ids):
        shown = ", ".join(listed[:5]) + (" and others" if len(listed) > 5 else "")
        raise InvalidInput(
            f"{path}: {complaint}: {shown} ({len(listed)} in all). "
            "`advisor evaluate --export FILE` writes a file with exactly the runs asked for."
        )


def _beside(
    run: Run, entry: Entry, profiles: Mapping[str, Profile], gpu: Gpu, path: Path
) -> RunComparison:
    if len(entry.step_s) != len(run.tenants):
        raise InvalidInput(
            f"{path}: run {run.id} has {counted(len(run.tenants), 'tenant')}, but "
            f"{counted(len(entry.step_s), 'step')}. {_REMEDY}"
        )
    alone = profiles_of(run, profiles, "raw")
    rivals = baseline_steps(UNFITTED, alone, sharing_of(run), gpu)
    rows = zip(run.tenants, alone, entry.step_s, rivals, strict=True)
    return RunComparison(
        run, tuple(compared_job(tenant, p, step.interval, steps) for tenant, p, step, steps in rows)
    )
