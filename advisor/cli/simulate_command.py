"""``advisor simulate``: simulates jobs over time."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli.options import (
    AsJson,
    Files,
    Given,
    GpuKey,
    JobFile,
    Jobs,
    Named,
    PowerCap,
    apart,
    given_in,
    grouped,
    needs,
    to_write,
)
from advisor.cli.output import show_found, warn
from advisor.errors import InvalidInput
from advisor.hardware import DEFAULT_GPU
from advisor.timeline import Policy

if TYPE_CHECKING:
    from advisor.api import Advisor
    from advisor.sharing import Sharing
    from advisor.timeline.outcome import Simulation
    from advisor.timeline.simulate import Fleet
    from advisor.workload.job import Arrival

# Default of `--at-once` for jobs that arrive over time: more hardly ever pay.
_AT_ONCE_IN_TRACES = 4


@dataclass(frozen=True, slots=True)
class Load:
    """Options of what is to run, and how it shares a GPU."""

    jobs: Jobs = None
    job_file: JobFile = None
    trace_in: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A CSV of jobs that come over time: arrival_s,job,..."),
    ] = None
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A plan that `export --format json` wrote, instead of JOBs."
        ),
    ] = None
    sharing: Annotated[
        str, typer.Option(help="As `predict` takes it; the next job takes a place that is free.")
    ] = "mps"

    def arrivals(self, advisor: "Advisor") -> "tuple[Arrival, ...]":
        """The jobs with the times of their arrival; 0 for jobs without one."""
        from advisor.workload.job import Arrival
        from advisor.workload.job_file import read_arrivals

        if self.trace_in:
            return read_arrivals(self.trace_in, advisor.find_profile)
        return tuple(map(Arrival, Named(self.jobs, self.job_file).chosen(advisor)))


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of the GPUs, and of the queue that feeds them."""

    gpus: Annotated[int, typer.Option(min=1, max=10_000, help="How many equal GPUs.")] = 1
    policy: Annotated[
        Policy, typer.Option(help="Which job starts next; best-fit: the one that should add most.")
    ] = "first-come"
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1, help="Most jobs on a GPU at once; default: all that fit, of a trace 4."
        ),
    ] = None
    price: Annotated[
        float | None, typer.Option(metavar="EUR_PER_GPU_HOUR", help="What a GPU's hour costs.")
    ] = None

    def fleet(self, gpu: str) -> "Fleet":
        from advisor.timeline.simulate import Fleet

        return Fleet(gpu, self.gpus, self.policy, self.price)


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Options of the trace to write."""

    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", parser=to_write, help="Write a trace for ui.perfetto.dev there."
        ),
    ] = None
    kernels: Annotated[
        bool, typer.Option(help="Add the first kernels of the mix to the trace, replayed.")
    ] = False

    def check(self) -> None:
        """Check that the trace can be written, before simulating for seconds."""
        from advisor.workload.writing import writable

        if self.trace:
            writable(self.trace)

    def write(self, simulation: "Simulation", advisor: "Advisor") -> None:
        from advisor.report.simulation_trace import trace_text
        from advisor.workload.writing import write_whole

        if self.trace:
            ran = advisor.first_kernels(simulation) if self.kernels else ()
            write_whole(self.trace, trace_text(simulation, ran))


@grouped
def simulate(
    context: typer.Context,
    *,
    load: Load,
    gpu: GpuKey = DEFAULT_GPU,
    queue: QueueOptions,
    traced: TraceFile,
    power_cap: PowerCap = None,
    files: Files,
    as_json: AsJson = False,
) -> None:
    """Simulate the JOBs until the last one ends.

    Times, GPU activity, memory, energy and money.
    """
    from advisor.report.simulation_text import simulation_document, simulation_report
    from advisor.sharing import parse_sharing

    given = given_in(context)
    _check_sources(given)
    traced.check()
    if load.plan:
        advisor, arrivals, sharing = _planned(load.plan, gpu, power_cap, files, given)
    else:
        advisor, sharing = files.advisor(gpu, power_cap), load.sharing
        arrivals = load.arrivals(advisor)
    asked = parse_sharing(sharing)
    _check_queue(given, asked, queue)
    at_once = queue.at_once or (_AT_ONCE_IN_TRACES if load.trace_in else None)
    found = advisor.simulate(arrivals, asked, queue.fleet(advisor.card.key), at_once=at_once)
    warn(found.standing.doubts)
    traced.write(found.simulation, advisor)
    show_found(found, as_json, simulation_report, simulation_document)


def _check_sources(given: Given) -> None:
    needs(given, "kernels", {"trace": "--trace FILE, where kernels are written"})
    why = "jobs come from one of these."
    apart(given, "trace_in", ("jobs", "job_file"), why)
    apart(given, "plan", ("jobs", "job_file", "trace_in"), why)
    apart(given, "plan", ("sharing",), "the plan says how its jobs share.")


def _check_queue(given: Given, sharing: "Sharing", queue: QueueOptions) -> None:
    """Check that the queue options do not contradict what `sharing` itself fixes."""
    from advisor.sharing.traversal import places_named

    places = places_named(sharing)
    if queue.at_once is not None and places > queue.at_once:
        raise InvalidInput(
            f"--sharing {sharing} and --at-once {queue.at_once} do not go together: the first says "
            f"that {places} jobs run at once."
        )
    if "policy" in given and sharing.mode == "phases":
        raise InvalidInput(
            f"--sharing {sharing} and --policy {queue.policy} do not go together: the first says "
            f"who starts next."
        )


def _planned(
    file: Path, gpu: str, power_cap_w: float | None, files: Files, given: Given
) -> "tuple[Advisor, tuple[Arrival, ...], str]":
    """The advisor, jobs and sharing of a plan file; a cap given here overrides the plan's."""
    from advisor.launch.plan_file import check_gpu_of_plan, read_plan
    from advisor.workload.job import Arrival

    planned = read_plan(file, files.profiles)
    check_gpu_of_plan(gpu if "gpu" in given else None, planned.gpu, str(file))
    advisor = files.advisor(planned.gpu, power_cap_w or planned.power_cap_w)
    return advisor, tuple(map(Arrival, planned.jobs)), str(planned.sharing)
