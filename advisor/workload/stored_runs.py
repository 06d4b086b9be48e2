"""Reads runs: the shipped ones and those of the user, from JSON Lines files."""

import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from advisor.english import counted
from advisor.errors import AdvisorWarning
from advisor.workload.files import read_bytes, shown
from advisor.workload.records import parse_record
from advisor.workload.run import Run
from advisor.workload.store import data_folders

# How a run names MPS client priorities, as runs of earlier versions do.
_PRIORITIES = re.compile(rb'"sharing"\s*:\s*"[^"]*/priority=')


def read_runs(path: Path) -> tuple[Run, ...]:
    """Return the runs in a JSON Lines file, in its order, and skip those with MPS priorities."""
    where, lines = shown(path), enumerate(read_bytes(path).splitlines(), start=1)
    runs = [
        None if _PRIORITIES.search(line) else parse_record(Run, line, f"{where}:{number}")
        for number, line in lines
        if line
    ]
    if skipped := runs.count(None):
        message = (
            f"skipped {counted(skipped, 'run')} with MPS priorities in {where}: the mode was "
            f"removed"
        )
        warnings.warn(message, AdvisorWarning, stacklevel=1)
    return tuple(run for run in runs if run is not None)


def load_runs(gpu: str, given: Path | None = None) -> tuple[Run, ...]:
    """Every run on `gpu`, the shipped ones first, in the order of files and lines."""
    return sum(runs_by_owner(gpu, given), ())


def tenants_of(runs: Iterable[Run]) -> frozenset[str]:
    """Names of the workloads in `runs`."""
    return frozenset(tenant.workload.name for run in runs for tenant in run.tenants)


def runs_by_owner(gpu: str, given: Path | None = None) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The shipped runs on `gpu`, and the user's own from validations and campaigns.

    The user's runs get ids that differ from those of shipped runs of the same plan.
    """
    shipped, own = (
        tuple(run for file in sorted((f / "runs").glob("*.jsonl")) for run in read_runs(file))
        for f in data_folders(gpu, given)
    )
    if {run.id for run in shipped}.isdisjoint(run.id for run in own):
        return shipped, own
    return shipped, tuple(
        replace(run, id=f"own-{run.id}", repeats=run.repeats and f"own-{run.repeats}")
        for run in own
    )
