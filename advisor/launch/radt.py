"""Plans as a CSV for radT, which runs each row as a training of its own and logs it to MLflow."""

import csv
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.launch.launch_plan import LaunchPlan
from advisor.workload.job import Job

_HEAD = "Experiment,Workload,Status,Run,Devices,Collocation,File,Listeners,Params\n"
_PYTHON = re.compile(r"python[\d.]*")
_WORD = re.compile(r"[\w@%+=:,./-]+")
# Of Params that begin with a dash, `radt run` takes others for options of its own.
_BEGINNING = re.compile(r"[^-]|--[^\s=]+ |-[^-chlp\s]\S* ")


def radt_text(plans: Sequence[LaunchPlan]) -> str:
    """Return the plan of a GPU as a CSV; ``NAME.py`` replaces a script that a row cannot express.

    The columns are those of radT's README and examples. Rows of one Workload run at once, and
    Workloads run one after another. Collocation is ``-``, ``mps`` or a MIG profile; each row with a
    profile gets an instance of its own. Experiment 0 is MLflow's own. radT runs the Python script
    File in its folder, puts Params between double quotes, and splits the text at blanks; it has no
    word for no Params (tried with radT 0.2.30).

    Raises:
        InvalidInput: radT cannot express part of the plan.
    """
    (plan,) = plans
    on_mig = [part for part in plan.partitions if part.instance]
    reasons = {
        "MPS limits": any(start.limit is not None for start in plan.starts),
        "memory caps": any(start.memory_cap_mib is not None for start in plan.starts),
        "power cap": plan.power_cap_w is not None,
        "compute instances": any(part.slices is not None for part in on_mig),
        "several jobs on one instance": any(len(part.starts) > 1 for part in on_mig),
        "MPS on an instance": any(part.under_mps for part in on_mig),
        "a data loader for several jobs": plan.shares_loader,
        "queue of jobs": any(part.at_once for part in plan.partitions),
    }
    if lacking := next((what for what, lacks in reasons.items() if lacks), None):
        raise InvalidInput(
            f"{plan.sharing}: radT cannot express {lacking}. Export it as commands instead."
        )
    text = StringIO()
    text.write(_HEAD)
    rows = csv.writer(text, lineterminator="\n")
    workload = 0
    for stage in plan.stages:
        workload += 1
        for part in stage.partitions:
            for position, start in enumerate(part.starts):
                workload += stage.one_by_one and position > 0
                collocation = part.profile or ("mps" if part.under_mps else "-")
                file, params = _file_and_params(start.job) or (f"{start.job.name}.py", "-")
                rows.writerow((0, workload, "", "", 0, collocation, file, "smi+top+dcgmi", params))
    return text.getvalue()


def radt_wants(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return notes on scripts in `radt_text` that are placeholders, or that get a dash."""
    jobs = list(dict.fromkeys(start.job for plan in plans for start in plan.starts))
    rows = {f"{job.name}.py": _file_and_params(job) for job in jobs}
    notes = []
    if placeholders := [name for name, row in rows.items() if row is None]:
        notes.append(
            f"{', '.join(placeholders)}: placeholders. Replace them by your own scripts: a row "
            f"can only have `python SCRIPT.py --option WORD...`, run in the script's folder, "
            f"without variables, blanks or quotes."
        )
    if without := dict.fromkeys(row[0] for row in rows.values() if row and row[1] == "-"):
        notes.append(
            f"{', '.join(without)}: radT passes the word - to a script without options. Name an "
            f"option in Params if the script refuses it."
        )
    return tuple(notes)


def _file_and_params(job: Job) -> tuple[str, str] | None:
    """File and Params of the command of `job`; None if a row cannot express it."""
    script = job.profile.workload.script
    if script is None or script.environment or len(script.command) < 2:
        return None
    program, name, *words = script.command
    file = Path(script.folder, name)
    params = " ".join(words) or "-"
    expressible = (
        _PYTHON.fullmatch(Path(program).name)
        and file.suffix == ".py"
        and file.parent == Path(script.folder)
        and all(map(_WORD.fullmatch, (file.name, *words)))
        and (not words or _BEGINNING.match(params))
    )
    return (str(file), params) if expressible else None
