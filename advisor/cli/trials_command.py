"""``advisor trials``: how many trials of a hyper-parameter search to run at once."""

import re
from typing import Annotated

import typer

from advisor.cli.options import AsJson, Files, GpuKey, PowerCap, apart, given_in, grouped
from advisor.cli.output import show_found, warn
from advisor.cli.recommend_options import MemoryMargin, Pessimistic
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.plan import START_S

_Job = Annotated[
    str,
    typer.Argument(help="What a trial trains: NAME, a profile's path, or a measured train.py."),
]
_Epochs = Annotated[float, typer.Option(metavar="N", help="Passes over the data of a trial.")]
_Steps = Annotated[
    float | None, typer.Option(metavar="N", help="Training steps of a trial instead.")
]
_Count = Annotated[
    int | None,
    typer.Option(metavar="N", help="Trials of the whole search; default: it goes on."),
]
_StartUp = Annotated[
    float,
    typer.Option(
        "--start-up", metavar="S",
        help="Seconds that the process of a trial takes to start; 0: it goes on with the next.",
    ),
]  # fmt: skip


@grouped
def trials(
    context: typer.Context,
    *,
    job: _Job,
    epochs: _Epochs = 1,
    steps: _Steps = None,
    count: _Count = None,
    start_up: _StartUp = START_S,
    memory_margin: MemoryMargin = 0.0,
    pessimistic: Pessimistic = False,
    gpu: GpuKey = DEFAULT_GPU,
    power_cap: PowerCap = None,
    details: Annotated[
        bool, typer.Option("--details", help="Every number of trials at once that was looked at.")
    ] = False,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """How many trials of a search fit on a GPU, and pay.

    And how they share it. Each trial is a process of its own.
    """
    from advisor.plan.rules import Conditions
    from advisor.report.trials_text import trials_document, trials_report
    from advisor.workload.job import Job

    apart(given_in(context), "steps", ("epochs",), "both say how long a trial is.")
    _check_one_trial(job)
    advisor = files.advisor(gpu, power_cap)
    found = advisor.trials(
        Job(advisor.find_profile(job), epochs=epochs), steps=steps, count=count, start_s=start_up,
        conditions=Conditions(memory_margin=memory_margin),
        level="p95" if pessimistic else "p50",
    )  # fmt: skip
    warn(found.standing.doubts)
    show_found(found, as_json, lambda each: trials_report(each, details=details), trials_document)


def _check_one_trial(job: str) -> None:
    """Refuse copies and epochs behind a job's name, which a file's path may hold."""
    name = re.split("[:@]", job)[0]
    if name != job and not job.endswith((".json", ".py")):
        raise InvalidInput(
            f"{job}: JOB is one trial, and how many pay is the answer. Write {name}; --epochs N "
            f"says how long it trains, --count N how many trials the whole search has."
        )
