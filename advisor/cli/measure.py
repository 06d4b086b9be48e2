"""Commands that measure many jobs, or this machine: their processes run under a supervisor."""

import json
from pathlib import Path
from typing import Any

from typer import Argument, Context, Exit

from advisor.cli import options
from advisor.cli.options import flag, option
from advisor.cli.output import aside, show_answer
from advisor.errors import GpuUnavailable
from advisor.files.writing import new_path
from advisor.hardware import DEFAULT_DEVICE


def supervised(entry: str, context: Context, **passed: Any) -> int:
    """Run `entry` of a measuring module under a supervisor; return the exit code.

    It gets one JSON document: the words of the command, and its options or what is `passed`.
    """
    from advisor.measure.process import supervise

    document = {"words": context.obj or (), **(passed or context.params)}
    return supervise(entry, json.dumps(document, default=str))


def campaign(
    context: Context,
    plan: Path = Argument(
        ..., metavar="FILE", help="Plan of a campaign, as `advisor init campaign` writes it."
    ),
    out: Path | None = option(
        "DIR",
        "Add the runs to this folder; default: your own, which every command reads.",
        parser=new_path,
    ),
    profiles: Path | None = option(
        "DIR",
        "Read profiles from this folder, and write missing ones to it; default: your own.",
    ),
    device: str | None = option(
        "LIST",
        "Use these GPUs, by index or UUID, e.g. 0-7 or 0,2; or cpu,cpu to try it out with "
        "two runners; default: 0; on Ray, all that are free.",
    ),
    cores: str | None = option(
        "CORES", "Split these host cores evenly among the devices, e.g. 0-63; default: all."
    ),
    deadline: options.Deadline = None,
    dry_run: bool = flag("Write the list of runs and count them; measure nothing.", "--dry-run"),
    as_json: options.AsJson = False,
    ray: options.Ray = None,
) -> None:
    """Measure a plan of many mixes on one or more GPUs.

    All GPUs measure from one queue. Runs that the folder has are left out. The exit code is 0 if
    all were measured or the deadline is near.
    """
    raise Exit(supervised("advisor.measure.campaign:run_campaign", context))


def runs(
    context: Context,
    plans: Path = Argument(
        ...,
        metavar="PLANS",
        help="JSON file of plans, or an answer of `recommend --json`, without its plans on MIG.",
    ),
    out: Path = option(
        "FILE", "Add the runs to this JSON Lines file.", default=..., parser=new_path
    ),
    device: options.DeviceOrCpu = DEFAULT_DEVICE,
    cores: options.Cores = None,
    settle_s: float = option(
        "SECONDS", "Train for this long before the first window.", "--settle", default=0.7
    ),
    window_s: float = option(
        "SECONDS", "Measure at least for this long in a window.", "--window", default=1.0
    ),
    windows: int = option("N", "Measure N windows of a run.", default=3),
    skip_existing: bool = flag("Skip the runs that the file has.", "--skip-existing"),
    deadline: options.Deadline = None,
) -> None:
    """Measure the plans in a file of `recommend --json`.

    They run together on one GPU, and each job is recorded.
    """
    raise Exit(supervised("advisor.measure.shared_run:run_list", context))


def calibrate(
    context: Context,
    device: options.Device = DEFAULT_DEVICE,
    out: Path | None = option(
        "FILE",
        "Write to this file; default: your own, which every command reads.",
        parser=options.to_write,
    ),
    gpu: options.OnlyGpu = None,
    cores: options.Cores = None,
) -> None:
    """Measure what advice needs about this machine.

    A minute shows the sizes of CUDA contexts, the cost of taking turns, and idle power. Advice for
    this GPU then accounts for this machine.
    """
    code = supervised("advisor.measure.calibrate:run_calibrate", context)
    if code == GpuUnavailable.exit_code:
        aside("Advice needs no calibration: without one, it uses the fitted model's constants.")
    raise Exit(code)


def doctor(
    undo: bool = flag("First undo what killed scripts and measurements left.", "--undo"),
    as_json: options.AsJson = False,
) -> None:
    """Check this machine for what spoils measuring or sharing.

    The answer has a remedy for each finding. blocks: something cannot be done here. spoils: it can,
    but the numbers are off. note: good to know. The exit code is 4 if something blocks.
    """
    from advisor.run.doctor import Findings, examine, findings_text
    from advisor.run.start import undo_left

    for line in undo_left() if undo else ():
        aside(line)
    findings = examine()
    show_answer(Findings(tuple(findings)), as_json, lambda it: findings_text(it.findings))
    blocked = any(each.severity == "blocks" for each in findings)
    raise Exit(GpuUnavailable.exit_code if blocked else 0)
