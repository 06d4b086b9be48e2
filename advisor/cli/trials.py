"""Commands on one job: ``advisor trials`` and ``batch``."""

import re
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Context, Option

from advisor.cli import options
from advisor.cli.completion import complete_job
from advisor.cli.options import (
    advisor_for,
    counted_gpus,
    exclude,
    passed_options,
)
from advisor.cli.output import show_answer, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.plan import START_S
from advisor.simulation import START_CPU_S

if TYPE_CHECKING:
    pass


def batch(
    names: Annotated[
        list[str],
        Argument(
            metavar="JOB...",
            autocompletion=complete_job,
            help="A job's name without its batch size, or the names or files of its profiles, one "
            "for each batch size.",
        ),
    ],
    slices: options.Slices = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Print the largest batch that fits each slice of a GPU.

    The JOB needs profiles at two batch sizes or more. --slices accepts whole, too: the whole GPU.
    """
    from advisor.report.copies import slice_batches_document, slice_batches_report

    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    batches = advisor.batches(names, on=slices.split(",") if slices else [])
    warn(batches.standing.doubts)
    show_answer(batches, as_json, slice_batches_report, slice_batches_document)


def trials(
    context: Context,
    job: Annotated[
        str,
        Argument(
            metavar="JOB",
            autocompletion=complete_job,
            help="The job of one trial: a profile's name or file, or a measured train.py.",
        ),
    ],
    epochs: Annotated[float, Option(metavar="N", help="Train each trial for N epochs.")] = 1,
    steps: Annotated[
        float | None, Option(metavar="N", help="Train each trial for N steps instead.")
    ] = None,
    count: Annotated[
        int | None, Option(metavar="N", help="Trials of the whole search; default: no end.")
    ] = None,
    start_up: Annotated[
        float,
        Option(
            metavar="SECONDS",
            parser=options.seconds,
            help="Start-up time of a trial's process; 0: one process runs all trials.",
        ),
    ] = START_S,
    start_cpu: Annotated[
        float,
        Option(
            "--start-cpu",
            metavar="SECONDS",
            parser=options.seconds,
            help="CPU time of that start, for which the processes of a host share its cores.",
        ),
    ] = START_CPU_S,
    memory_margin: options.MemoryMargin = 0.0,
    pessimistic: Annotated[
        bool, Option("--pessimistic", help="Rank by the upper ends of the 90 % intervals.")
    ] = False,
    gpus: options.Gpus = "1",
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    details: Annotated[
        bool, Option("--details", help="Print all numbers of trials at once that were compared.")
    ] = False,
    profiles: options.Profiles = None,
    models: options.Models = None,
    calibration: options.Calibration = None,
    host_cores: options.HostCores = None,
    as_json: options.AsJson = False,
) -> None:
    """Print how many trials of a search to run at once on each GPU.

    Each trial is a process of its own; the answer includes how they share a GPU.
    """
    from advisor.plan.rules import Conditions
    from advisor.plan.trials import TrialTerms
    from advisor.report.copies import trials_document, trials_report
    from advisor.workload.job import Job

    exclude(passed_options(context), "steps", ("epochs",), "both set the length of a trial.")
    # A file's path may hold the signs that separate copies and epochs.
    name = re.split("[:@]", job)[0]
    if name != job and not job.endswith((".json", ".py")):
        raise InvalidInput(
            f"{job}: expected the job of one trial. Write {name}. Set its length by --epochs, the "
            f"number of trials by --count."
        )
    _, gpu = counted_gpus(gpus, gpu, context)
    advisor = advisor_for(gpu, power_cap, profiles, models, calibration, host_cores)
    search = advisor.trials(
        Job(advisor.find_profile(job), epochs=epochs),
        TrialTerms(
            count=count,
            steps=steps,
            start_s=start_up,
            start_cpu_s=start_cpu,
            gpus=gpus,
            conditions=Conditions(memory_margin=memory_margin),
            level="p95" if pessimistic else "p50",
        ),
    )
    warn(search.standing.doubts)
    show_answer(
        search, as_json, lambda answer: trials_report(answer, details=details), trials_document
    )
