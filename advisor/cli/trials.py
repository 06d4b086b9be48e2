"""Commands on one job: ``advisor copies``, ``trials`` and ``batch``."""

from typing import Annotated

from typer import Argument, Context, Option

from advisor.cli import options
from advisor.cli.options import option
from advisor.cli.output import show_answer
from advisor.cli.question import Sources, confined, counted_gpus, exclude, on_checked_host
from advisor.hardware import DEFAULT_GPU
from advisor.plan import START_S
from advisor.simulation import START_CPU_S

_Job = Annotated[
    str,
    Argument(
        metavar="JOB",
        autocompletion=options.complete_job,
        help="The job: a profile's name or file, or a measured train.py.",
    ),
]
_Details = Annotated[bool, Option("--details", help="Print all numbers of copies compared.")]


def copies(
    job: _Job,
    gpu: options.GpuKey = DEFAULT_GPU,
    pessimistic: options.Pessimistic = False,
    power_cap: options.PowerCap = None,
    root: options.Root = True,
    mig: options.Mig = "plain",
    memory_margin: options.MemoryMargin = 0.0,
    *,
    sources: Sources,
    check_host: options.CheckHost = None,
    details: _Details = False,
    as_json: options.AsJson = False,
) -> None:
    """Print how many copies of the JOB fit on a GPU, and how many are worthwhile."""
    from advisor.plan.rules import EXACT_JOBS, Conditions
    from advisor.report.copies import copies_report
    from advisor.workload.job import Job

    advisor = sources.advisor(gpu, power_cap)
    advisor = on_checked_host(advisor, [Job(advisor.find_profile(job))], check_host, EXACT_JOBS)
    conditions = Conditions(root=root, memory_margin=memory_margin, mig=mig)
    answer = advisor.recommend_copies(
        job, confined(advisor.card, conditions, whole=root), "p95" if pessimistic else "p50"
    )
    show_answer(answer, as_json, lambda it: copies_report(it, details=details))


def batch(
    names: list[str] = Argument(
        ...,
        metavar="JOB...",
        autocompletion=options.complete_job,
        help="A job's name without its batch size, or its profiles, one for each batch size.",
    ),
    slices: options.Slices = None,
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    *,
    sources: Sources,
    as_json: options.AsJson = False,
) -> None:
    """Print the largest batch that fits each slice of a GPU.

    The JOB needs profiles at two batch sizes or more. --slices accepts whole, too: the whole GPU.
    """
    from advisor.report.copies import slice_batches_report

    advisor = sources.advisor(gpu, power_cap)
    batches = advisor.batches(names, on=slices.split(",") if slices else [])
    show_answer(batches, as_json, slice_batches_report)


def trials(
    context: Context,
    job: _Job,
    epochs: float = option("N", "Train each trial for N epochs.", default=1),
    steps: float | None = option("N", "Train each trial for N steps instead."),
    count: int | None = option("N", "Trials of the whole search; default: no end."),
    start_up: float = option(
        "SECONDS",
        "Start-up time of a trial's process; 0: one process runs all trials.",
        default=START_S,
    ),
    start_cpu: float = option(
        "SECONDS",
        "CPU time of that start, for which the processes of a host share its cores.",
        default=START_CPU_S,
    ),
    memory_margin: options.MemoryMargin = 0.0,
    pessimistic: options.Pessimistic = False,
    gpus: options.Gpus = "1",
    gpu: options.GpuKey = DEFAULT_GPU,
    power_cap: options.PowerCap = None,
    details: _Details = False,
    *,
    sources: Sources,
    as_json: options.AsJson = False,
) -> None:
    """Print how many trials of a search to run at once on each GPU.

    Each trial is a process of its own; the answer includes how they share a GPU.
    """
    from advisor.plan.rules import Conditions
    from advisor.plan.trials import TrialTerms
    from advisor.report.copies import trials_report
    from advisor.workload.job import Job

    exclude(context, "steps", "epochs", why="both set the length of a trial.")
    _, gpu = counted_gpus(gpus, gpu, context)
    advisor = sources.advisor(gpu, power_cap)
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
    show_answer(search, as_json, lambda it: trials_report(it, details=details))
