"""The list of a campaign's runs: written next to the results before anything is measured."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from advisor.english import counted
from advisor.errors import InvalidInput, UnknownName
from advisor.measure.shared.planned_run import PlannedRun
from advisor.sharing import parse_sharing
from advisor.workload.documents import read_json
from advisor.workload.named_workloads import workload
from advisor.workload.spec import Workload
from advisor.workload.writing import write_whole


def write_list(path: Path, gpu: str, plans: Sequence[PlannedRun]) -> None:
    """Write `plans` for `gpu` to `path`, in the form that ``python -m advisor.collocation`` reads.

    Raises:
        InvalidInput: The file exists and its drawn runs differ.
    """
    entries = [plan_entry(plan) for plan in plans]
    if path.exists():
        _refuse_other_draw(path, entries)
    document = {"schema": 1, "gpu": gpu, "plans": entries}
    write_whole(path, json.dumps(document, indent=1) + "\n")


def plan_entry(plan: PlannedRun) -> dict[str, Any]:
    """`plan` as an entry of a plan file; a workload of the zoo by its name."""
    smaller = {} if plan.capacity_mib is None else {"capacity_mib": plan.capacity_mib}
    whole = {} if plan.steps is None else {"steps": list(plan.steps)}
    return {
        "id": plan.id,
        "sharing": plan.sharing,
        "purpose": plan.purpose,
        "repeats": plan.repeats,
        **smaller,
        **whole,
        "workloads": [_entry(each) for each in plan.workloads],
    }


def _entry(each: Workload) -> str | dict[str, Any]:
    try:
        return each.name if workload(each.name) == each else asdict(each)
    except UnknownName:
        return asdict(each)


def _refuse_other_draw(path: Path, entries: Sequence[dict[str, Any]]) -> None:
    remedy = "Choose another --out."
    try:
        before = read_json(path, remedy)["plans"]
        lost = [each["id"] for each in _drawn_entries(before) if each not in entries]
        lost += [each["id"] for each in _drawn_entries(entries) if each not in before]
    except (TypeError, KeyError, AttributeError):
        raise InvalidInput(f"{path}: not a list of runs. {remedy}") from None
    if lost:
        raise InvalidInput(
            f"{path}: the runs drawn before are different ({lost[0]}), and scored runs are fixed "
            f"beforehand. Restore the plan's seed, workloads, counts and limits, or choose another "
            f"name or --out."
        )


def _drawn_entries(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in entries if each["purpose"] == "drawn"]


def counts(plans: Iterable[PlannedRun]) -> str:
    """The number of runs by purpose, mode and number of tenants, a line each."""
    found = Counter((plan.purpose, _mode(plan), len(plan.workloads)) for plan in plans)
    lines = [
        f"  {purpose:10} {mode:12} x{tenants}: {number}"
        for (purpose, mode, tenants), number in sorted(found.items())
    ]
    return "\n".join([counted(found.total(), "run"), *lines])


def _mode(plan: PlannedRun) -> str:
    sharing = parse_sharing(plan.sharing)
    if sharing.mode != "mps-limits":
        return "phases" if sharing.mode == "phases" else str(sharing)
    return "mps equal" if len(set(sharing.limits)) == 1 else "mps unequal"
