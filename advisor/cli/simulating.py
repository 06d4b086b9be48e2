"""``advisor simulate``: what comes of jobs over time."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from advisor.cli.advice import chosen_jobs
from advisor.cli.options import (
    DEFAULT_GPU,
    AsJson,
    Calibration,
    GpuKey,
    JobFile,
    Jobs,
    Models,
    PowerCap,
    Profiles,
)
from advisor.cli.output import show, show_json, warn
from advisor.errors import InvalidInput

# Jobs on a GPU at once where many come over time and nothing else is said: more hardly ever pay.
_AT_ONCE_IN_TRACES = 4


def simulate(
    jobs: Jobs = None,
    job_file: JobFile = None,
    trace_in: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A CSV of jobs that come over time: arrival_s,job,..."),
    ] = None,
    sharing: Annotated[
        str, typer.Option(help="As `predict` takes it; places that are free go to who waits.")
    ] = "mps",
    gpu: GpuKey = DEFAULT_GPU,
    gpus: Annotated[int, typer.Option(min=1, max=10_000, help="How many equal GPUs.")] = 1,
    policy: Annotated[
        Literal["first-come", "shortest-first", "best-fit"],
        typer.Option(help="Who starts next; best-fit: who adds most by prediction."),
    ] = "first-come",
    at_once: Annotated[
        int | None,
        typer.Option(min=1, help="Jobs on a GPU at most; default: what fits, of a trace 4."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(metavar="EUR_PER_GPU_HOUR", help="What a GPU's hour costs.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev there.")
    ] = None,
    power_cap: PowerCap = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the JOBs until the last one ends: times, GPU activity, memory, energy, money."""
    from advisor.gpu.catalogue import gpu as known
    from advisor.planning.over_time import simulate as simulated
    from advisor.reporting.over_time import simulation_document, simulation_report
    from advisor.reporting.perfetto import trace_text
    from advisor.running.present import present_machine
    from advisor.simulation.simulate import Fleet
    from advisor.workload.arrivals import Arrival, read_arrivals
    from advisor.workload.writing import write_whole

    key = known(gpu).key
    if trace_in and (jobs or job_file):
        raise InvalidInput("jobs are named, or in a file, or come by --trace-in: one of these")
    if trace_in:
        arrivals = read_arrivals(trace_in, key, profiles)
    else:
        arrivals = tuple(map(Arrival, chosen_jobs(jobs, job_file, key, profiles)))
    found = simulated(
        arrivals,
        sharing,
        Fleet(key, gpus, policy, price),
        at_once=at_once or (_AT_ONCE_IN_TRACES if trace_in else None),
        models=models,
        power_cap_w=power_cap,
        calibration=calibration,
        present=present_machine(key),
    )
    warn(found.standing.stale)
    if trace:
        write_whole(trace, trace_text(found.simulation))
    if as_json:
        show_json(simulation_document(found))
    else:
        show(simulation_report(found))
