"""A CSV for radT, which trains several models at once and tracks the hardware meanwhile.

Columns as in radT's README and examples; rows of one Workload run at once, Workloads one after
another. Collocation is ``-``, ``mps`` or a MIG profile, each row of which gets an instance of its
own. Params ``-`` is what radT takes where nothing is passed on. radT runs the Python script File in
its folder, puts Params between double quotes, and divides it at blanks.
"""

import csv
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.launch.launch_plan import LaunchPartition, LaunchPlan, Start
from advisor.workload.job import Job

_COLUMNS = (
    "Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File", "Listeners",
    "Params",
)  # fmt: skip

_PYTHON = re.compile(r"python[\d.]*")
_WORD = re.compile(r"[\w@%+=:,./-]+")
# Of Params that begin with a dash, `radt run` takes others for options of its own.
_BEGINNING = re.compile(r"[^-]|--[^\s=]+ |-[^-chlp\s]\S* ")


def radt_text(plan: LaunchPlan) -> str:
    """`plan` as a CSV; ``NAME.py`` stands for a script of the user's that a row cannot say.

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


def radt_wants(plan: LaunchPlan) -> Iterator[str]:
    """Which scripts in `radt_text` only stand for others, and why; nothing if none do."""
    names = [_placeholder(start) for start in plan.starts if _said(start.job) is None]
    if names:
        yield (
            f"{', '.join(dict.fromkeys(names))}: placeholders. Put your own scripts in their "
            f"place: a row can only say `python SCRIPT.py --option WORD...`, run in the script's "
            f"folder, without variables, blanks or quotes."
        )


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
    file, params = _said(start.job) or (_placeholder(start), "-")
    return 1, workload, "", "", 0, collocation, file, "smi+top+dcgmi", params


def _placeholder(start: Start) -> str:
    return f"{start.job.name}.py"


def _said(job: Job) -> tuple[str, str] | None:
    """File and Params of the command of `job`; None where a row cannot say it."""
    script = job.profile.workload.script
    if script is None or script.environment or len(script.command) < 2:
        return None
    program, name, *words = script.command
    file = Path(script.folder, name)
    params = " ".join(words) or "-"
    can_be_said = (
        _PYTHON.fullmatch(Path(program).name)
        and file.suffix == ".py"
        and file.parent == Path(script.folder)
        and all(map(_WORD.fullmatch, (file.name, *words)))
        and (not words or _BEGINNING.match(params))
    )
    return (str(file), params) if can_be_said else None


def _lacking(plan: LaunchPlan) -> str | None:
    """The part of `plan` that radT cannot express; None if it can express all."""
    on_mig = [part for part in plan.partitions if part.instance]
    reasons = {
        "MPS limits": any(start.limit is not None for start in plan.starts),
        "memory caps": any(start.memory_cap_mib is not None for start in plan.starts),
        "power cap": plan.power_cap_w is not None,
        "compute instances": any(part.slices is not None for part in on_mig),
        "several jobs on one instance": any(len(part.starts) > 1 for part in on_mig),
        "MPS on an instance": any(part.under_mps for part in on_mig),
    }
    return next((what for what, lacking in reasons.items() if lacking), None)
