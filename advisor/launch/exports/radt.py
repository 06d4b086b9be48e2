"""A CSV for radT, which trains several models at once and tracks the hardware meanwhile.

Columns as in radT's README and examples; rows of one Workload run at once, Workloads one after
another. Collocation is ``-``, ``mps`` or a MIG profile, each row of which gets an instance of its
own. Params ``-`` is what radT takes where nothing is passed on.
"""

import csv
from collections.abc import Iterator
from io import StringIO

from advisor.errors import InvalidInput
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start

_COLUMNS = (
    "Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners",
    "Params",
)  # fmt: skip


def radt_text(plan: LaunchPlan) -> str:
    """`plan` as a CSV; ``NAME.py`` stands for the user's own script of each job.

    Raises:
        InvalidInput: radT cannot express part of the plan.
    """
    if lacking := _lacking(plan):
        raise InvalidInput(f"{plan.sharing}: radT has no {lacking}. Export it as commands instead.")
    text = StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(_COLUMNS)
    rows.writerows(_rows(plan))
    return text.getvalue()


def _rows(plan: LaunchPlan) -> Iterator[tuple[object, ...]]:
    workload = 0
    for stage in plan.stages:
        workload += 1
        for part in stage.partitions:
            for position, start in enumerate(part.starts):
                workload += part.sharing.mode == "serial" and position > 0
                yield _row(workload, part, start)


def _row(workload: int, part: LaunchPartition, start: Start) -> tuple[object, ...]:
    collocation = part.profile or ("mps" if part.under_mps else "-")
    return 1, workload, "", "", 0, collocation, f"{start.job.name}.py", "smi+top+dcgmi", "-"


def _lacking(plan: LaunchPlan) -> str | None:
    """The part of `plan` that radT cannot express; None if it can express all."""
    on_mig = [part for part in plan.partitions if part.instance]
    reasons = {
        "MPS limits": any(start.limit is not None for start in plan.starts),
        "MPS client priorities": any(start.priority is not None for start in plan.starts),
        "memory caps": any(start.memory_cap_mib is not None for start in plan.starts),
        "power cap": plan.power_cap_w is not None,
        "compute instances": any(part.slices is not None for part in on_mig),
        "several jobs on one instance": any(len(part.starts) > 1 for part in on_mig),
        "MPS on an instance": any(part.under_mps for part in on_mig),
    }
    return next((what for what, lacking in reasons.items() if lacking), None)
