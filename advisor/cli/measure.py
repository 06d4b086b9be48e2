"""Commands that measure many jobs, or this machine: their processes run under a supervisor."""

import json
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Exit, Option

from advisor.cli import options
from advisor.cli.output import aside, show_json, show_text
from advisor.documents import answer_document
from advisor.errors import GpuUnavailable
from advisor.hardware import DEFAULT_DEVICE


def supervised(entry: str, context: Context, **passed: Any) -> int:
    """Run `entry` of a measuring module under a supervisor; return the exit code.

    It gets one JSON document: the options `passed`, and the words of the command.
    """
    from advisor.measure.process import supervise

    document = {"words": context.obj or (), **passed}
    return supervise(entry, json.dumps(document, default=_plain))


def _plain(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def campaign(
    context: Context,
    plan: Annotated[
        Path,
        Argument(metavar="FILE", help="Plan of a campaign, as `advisor init campaign` writes it."),
    ],
    out: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            parser=options.folder_to_write,
            help="Add the runs to this folder; default: your own, which every command reads.",
        ),
    ] = None,
    profiles: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Read profiles from this folder, and write missing ones to it; default: your own, "
            "which every command reads.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        Option(
            metavar="LIST",
            help="Use these GPUs, by index or UUID, e.g. 0-7 or 0,2; or cpu,cpu to try it out with "
            "two runners; default: 0; on Ray, all that are free.",
        ),
    ] = None,
    cores: Annotated[
        str | None,
        Option(
            metavar="CORES",
            help="Split these host cores evenly among the devices, e.g. 0-63; default: all.",
        ),
    ] = None,
    deadline: options.Deadline = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Write the list of runs and count them; measure nothing.")
    ] = False,
    as_json: options.AsJson = False,
    ray: options.Ray = None,
) -> None:
    """Measure a plan of many mixes on one or more GPUs.

    All GPUs measure from one queue. Runs that the folder has are left out. The exit code is 0 if
    all were measured or the deadline is near.
    """
    code = supervised(
        "advisor.measure.campaign:run_campaign",
        context,
        plan=plan,
        out=out,
        profiles=profiles,
        device=device,
        cores=cores,
        deadline=deadline,
        dry_run=dry_run,
        as_json=as_json,
        ray=ray,
    )
    raise Exit(code)


def runs(
    context: Context,
    plans: Annotated[
        Path,
        Argument(
            metavar="PLANS",
            help="JSON file of plans, or an answer of `advisor recommend --json`, whose plans on "
            "MIG are left out.",
        ),
    ],
    out: Annotated[
        Path,
        Option(
            metavar="FILE",
            parser=options.folder_to_write,
            help="Add the runs to this JSON Lines file.",
        ),
    ],
    device: options.DeviceOrCpu = DEFAULT_DEVICE,
    cores: options.Cores = None,
    settle: Annotated[
        float, options.in_seconds("Train for this long before the first window.")
    ] = 0.7,
    window: Annotated[
        float, options.in_seconds("Measure at least for this long in a window.")
    ] = 1.0,
    windows: Annotated[int, Option(metavar="N", help="Measure N windows of a run.")] = 3,
    skip_existing: Annotated[
        bool, Option("--skip-existing", help="Skip the runs that the file has.")
    ] = False,
    deadline: options.Deadline = None,
) -> None:
    """Measure the plans in a file of `recommend --json`.

    They run together on one GPU, and each job is recorded.
    """
    code = supervised(
        "advisor.measure.shared_run:run_list",
        context,
        plans=plans,
        out=out,
        device=device,
        cores=cores,
        settle_s=settle,
        window_s=window,
        windows=windows,
        skip_existing=skip_existing,
        deadline=deadline,
    )
    raise Exit(code)


def calibrate(
    context: Context,
    device: options.Device = DEFAULT_DEVICE,
    out: Annotated[
        Path | None,
        options.file_to_write("Write to this file; default: your own, which every command reads."),
    ] = None,
    gpu: options.OnlyGpu = None,
    cores: options.Cores = None,
) -> None:
    """Measure what advice needs about this machine.

    A minute shows the sizes of CUDA contexts, the cost of taking turns, and idle power. Advice for
    this GPU then accounts for this machine.
    """
    code = supervised(
        "advisor.measure.calibrate:run_calibrate",
        context,
        device=device,
        out=out,
        gpu=gpu,
        cores=cores,
    )
    if code == GpuUnavailable.exit_code:
        aside("Advice needs no calibration: without one, it uses the fitted model's constants.")
    raise Exit(code)


def doctor(
    undo: Annotated[
        bool, Option("--undo", help="First undo what killed scripts and measurements left.")
    ] = False,
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
    if as_json:
        show_json(answer_document(Findings(tuple(findings))))
    else:
        show_text(findings_text(findings))
    blocked = any(each.severity == "blocks" for each in findings)
    raise Exit(GpuUnavailable.exit_code if blocked else 0)
