"""``advisor simulate``: what comes of jobs over time."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from advisor.cli.advice import chosen_jobs
from advisor.cli.combinations import check_simulate, given_in
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

if TYPE_CHECKING:
    from advisor.timeline.outcome import Simulation
    from advisor.workload.arrivals import Arrival

# Jobs on a GPU at once where many come over time and nothing else is said: more hardly ever pay.
_AT_ONCE_IN_TRACES = 4


# Words of this command alone.
_TraceIn = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A CSV of jobs that come over time: arrival_s,job,..."),
]
_Plan = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A plan that `export --format json` wrote, instead of JOBs."),
]
_Sharing = Annotated[
    str, typer.Option(help="As `predict` takes it; places that are free go to who waits.")
]
_Gpus = Annotated[int, typer.Option(min=1, max=10_000, help="How many equal GPUs.")]
_Policy = Annotated[
    Literal["first-come", "shortest-first", "best-fit"],
    typer.Option(help="Who starts next; best-fit: who adds most by prediction."),
]
_AtOnce = Annotated[
    int | None,
    typer.Option(min=1, help="Jobs on a GPU at most; default: what fits, of a trace 4."),
]
_Price = Annotated[
    float | None, typer.Option(metavar="EUR_PER_GPU_HOUR", help="What a GPU's hour costs.")
]
_Trace = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev there.")
]
_Kernels = Annotated[
    bool, typer.Option(help="Add the first kernels of the mix to the trace, replayed.")
]


def simulate(
    context: typer.Context,
    jobs: Jobs = None,
    job_file: JobFile = None,
    trace_in: _TraceIn = None,
    plan: _Plan = None,
    sharing: _Sharing = "mps",
    gpu: GpuKey = DEFAULT_GPU,
    gpus: _Gpus = 1,
    policy: _Policy = "first-come",
    at_once: _AtOnce = None,
    price: _Price = None,
    trace: _Trace = None,
    kernels: _Kernels = False,
    power_cap: PowerCap = None,
    profiles: Profiles = None,
    models: Models = None,
    calibration: Calibration = None,
    as_json: AsJson = False,
) -> None:
    """Simulate the JOBs until the last one ends: times, GPU activity, memory, energy, money."""
    from advisor.api.over_time import check_queue
    from advisor.api.over_time import simulate as simulated
    from advisor.measure.process.provenance import present_machine
    from advisor.report.simulation_text import simulation_document, simulation_report
    from advisor.sharing import parse_sharing
    from advisor.timeline.simulate import Fleet
    from advisor.workload.writing import writable

    check_simulate(given := given_in(context))
    if trace:
        writable(trace)  # before a simulation of seconds
    if plan:
        asked = gpu if "gpu" in given else None
        arrivals, sharing, gpu, power_cap = _planned(plan, profiles, power_cap, asked)
    else:
        arrivals = _arrivals(jobs, job_file, trace_in, gpu, profiles)
    check_queue(
        parse_sharing(sharing),
        at_once if "at_once" in given else None,
        policy if "policy" in given else None,
    )
    found = simulated(
        arrivals,
        sharing,
        Fleet(gpu, gpus, policy, price),
        at_once=at_once or (_AT_ONCE_IN_TRACES if trace_in else None),
        models=models,
        power_cap_w=power_cap,
        calibration=calibration,
        present=present_machine(gpu),
    )
    warn(found.standing.stale)
    if trace:
        _write_trace(trace, found.simulation, kernels, models)
    if as_json:
        show_json(simulation_document(found))
    else:
        show(simulation_report(found))


def _planned(
    file: Path, profiles: Path | None, power_cap_w: float | None, gpu: str | None
) -> "tuple[tuple[Arrival, ...], str, str, float | None]":
    """Jobs, sharing, GPU and power cap of a plan; a cap on the command line goes before its own."""
    from advisor.api.explain import check_gpu_of_plan
    from advisor.launch.plan_file import read_plan
    from advisor.workload.arrivals import Arrival

    planned = read_plan(file, profiles)
    check_gpu_of_plan(gpu, planned.gpu, str(file))
    arrivals = tuple(map(Arrival, planned.jobs))
    return arrivals, str(planned.sharing), planned.gpu, power_cap_w or planned.power_cap_w


def _write_trace(trace: Path, simulation: "Simulation", kernels: bool, models: Path | None) -> None:
    from advisor.api.over_time import first_kernels
    from advisor.report.perfetto import trace_text
    from advisor.workload.writing import write_whole

    ran = first_kernels(simulation, models) if kernels else ()
    write_whole(trace, trace_text(simulation, ran))


def _arrivals(
    jobs: list[str] | None,
    job_file: Path | None,
    trace_in: Path | None,
    gpu: str,
    profiles: Path | None,
) -> "tuple[Arrival, ...]":
    from advisor.hardware.catalogue import gpu as known
    from advisor.workload.arrivals import Arrival, read_arrivals

    if trace_in:
        return read_arrivals(trace_in, known(gpu).key, profiles)
    return tuple(map(Arrival, chosen_jobs(jobs, job_file, gpu, profiles)))
