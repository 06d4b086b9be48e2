"""``advisor export``: a plan as a file for the tool that applies it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from advisor.cli.advice import chosen_jobs
from advisor.cli.combinations import apart, given_in
from advisor.cli.options import (
    DEFAULT_GPU,
    By,
    Calibration,
    GpuKey,
    JobFile,
    Jobs,
    Models,
    PowerCap,
    Profiles,
)
from advisor.cli.output import show_text, warn

# Words of this command alone.
_Sharing = Annotated[
    str | None, typer.Option(help="As `predict` takes it; default: the best plan's.")
]
_Form = Annotated[
    Literal["commands", "mps", "mig-parted", "slurm", "radt", "json"],
    typer.Option("--format", help="For a shell, or the tool of that name."),
]
_Out = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Where to write it; default: stdout.")
]


def export(
    context: typer.Context,
    jobs: Jobs = None,
    sharing: _Sharing = None,
    form: _Form = "commands",
    out: _Out = None,
    job_file: JobFile = None,
    gpu: GpuKey = DEFAULT_GPU,
    objective: By = "makespan",
    power_cap: PowerCap = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
) -> None:
    """Write the plan for the JOBs as a file: shell lines, MPS, MIG, Slurm, radT, or JSON."""
    from advisor.api.advice import predict, recommend
    from advisor.hardware.catalogue import gpu as known
    from advisor.launch.exports import exported
    from advisor.measure.process.provenance import present_machine
    from advisor.workload.writing import write_whole

    why = "--objective chooses a plan, and --sharing is one."
    apart(given_in(context), "objective", ("sharing",), why)
    chosen = chosen_jobs(jobs, job_file, gpu, profiles)
    present = present_machine(gpu)
    if sharing is None:
        prediction = recommend(
            chosen, gpu, objective, models=models, power_cap_w=power_cap,
            calibration=calibration, present=present,
        ).best.prediction  # fmt: skip
    else:
        prediction = predict(
            chosen, sharing, gpu, models=models, power_cap_w=power_cap,
            calibration=calibration, present=present,
        ).prediction  # fmt: skip
    file = exported(chosen, known(gpu), prediction, form)
    if file.note:
        warn([file.note])
    if out is None:
        show_text(file.text, end="")
    else:
        write_whole(out, file.text)
