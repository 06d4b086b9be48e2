"""The result of a simulation: text that fits in 80 columns, a document, and a trace."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.plan.over_time import OverTime
from advisor.prediction.interval import Interval
from advisor.report import units
from advisor.report.documents import SCHEMA, interval_document, standing_document
from advisor.report.headline import basis_notes, estimated, with_estimates_named
from advisor.report.simulation_lanes import lanes
from advisor.timeline.outcome import SimulatedJob, Simulation

if TYPE_CHECKING:
    from rich.console import RenderableType


def simulation_report(found: OverTime) -> "RenderableType":
    """What ``advisor simulate`` prints: figures, then a drawing of the time."""
    from rich.console import Group
    from rich.text import Text

    facts = [f"{name:<20}{said}" for name, said in simulation_facts(found.simulation)]
    lines = [*facts, *basis_notes(found.standing)]
    chart = [Text(lane.text, style=lane.style, no_wrap=True) for lane in lanes(found.simulation)]
    return Group(
        Text(simulation_heading(found), style="bold"),
        *map(Text, lines),
        Text(),
        *chart,
    )


def simulation_heading(found: OverTime) -> str:
    """What is simulated, and what it is estimated from."""
    simulation = found.simulation
    jobs, gpus = len(simulation.jobs), simulation.gpus
    origin = "" if simulation.confirmed_on_hardware else f", {estimated(simulation)}"
    said = (
        f"{counted(jobs, 'job')} under {simulation.sharing} on {gpus:,} {simulation.gpu}, "
        f"{simulation.policy}{origin}."
    )
    return with_estimates_named(found.standing, said)


def simulation_facts(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """The figures of a simulation: name and value."""
    mean_s, wait_s = simulation.mean_completion_s, simulation.mean_wait_s
    waiting = f"{_seconds(wait_s)} of it waiting" if wait_s else "none of it waiting"
    yield "until all are done", units.seconds(simulation.makespan_s)
    yield (
        "from coming to end",
        f"{_seconds(mean_s)} on average, {waiting}; "
        f"{units.number(simulation.jobs_per_hour)} jobs an hour",
    )
    yield (
        "GPU busy",
        f"{units.share(simulation.mean_gract)} of all time; memory at most "
        f"{units.gib_of(simulation.peak_memory_mib)} a GPU",
    )
    yield "energy", units.joules(simulation.energy_j)
    yield "GPU-hours", _gpu_hours(simulation)


def _gpu_hours(simulation: Simulation) -> str:
    said = f"{_around(simulation.gpu_hours)}, with jobs in {_plain(simulation.occupied_gpu_hours)}"
    cost_eur = simulation.cost_eur
    return said if cost_eur is None else f"{said}; {_around(cost_eur)} EUR"


def _around(value: Interval) -> str:
    return units.with_ends(value, _plain)


def _plain(value: float) -> str:
    """A small number with two significant digits."""
    return units.number(value) if value >= 0.1 else f"{value:.2g}"


def _seconds(value: float) -> str:
    unit, size_s = units.time_unit(value) if value else ("s", 1.0)
    return f"{units.number(value / size_s)} {unit}"


def simulation_document(found: OverTime) -> dict[str, Any]:
    """What ``advisor simulate --json`` prints; times in seconds from the start."""
    simulation = found.simulation
    return {
        "schema": SCHEMA,
        **standing_document(found.standing),
        **_asked(simulation),
        **_figures(simulation),
        "jobs": [_job(each) for each in simulation.jobs],
        "over_time": [asdict(each) for each in simulation.usage],
    }


def _asked(simulation: Simulation) -> dict[str, Any]:
    """What was simulated, and what it is based on."""
    return {
        "gpu": simulation.gpu,
        "gpus": simulation.gpus,
        "sharing": str(simulation.sharing),
        "policy": simulation.policy,
        "confirmed_on_hardware": simulation.confirmed_on_hardware,
        "estimated_from": simulation.estimated_from,
    }


def _figures(simulation: Simulation) -> dict[str, Any]:
    return {
        "makespan_s": simulation.makespan_s.p50,
        "makespan_interval_s": interval_document(simulation.makespan_s),
        "jobs_per_hour": simulation.jobs_per_hour,
        "mean_completion_s": simulation.mean_completion_s,
        "mean_wait_s": simulation.mean_wait_s,
        "gract": simulation.mean_gract,
        "peak_memory_mib": simulation.peak_memory_mib,
        "energy_j": interval_document(simulation.energy_j),
        "idle_power_w": simulation.idle_power_w,
        "gpu_hours": interval_document(simulation.gpu_hours),
        "occupied_gpu_hours": simulation.occupied_gpu_hours,
        "price_eur_per_gpu_hour": simulation.price_eur_per_gpu_hour,
        "cost_eur": interval_document(simulation.cost_eur),
    }


def _job(lived: SimulatedJob) -> dict[str, Any]:
    return {
        "job": lived.job.name,
        "epochs": lived.job.epochs,
        "gpu": lived.gpu,
        "place": lived.place,
        "arrival_s": lived.arrival_s,
        "start_s": lived.start_s,
        "end_s": lived.end_s.p50,
        "end_interval_s": interval_document(lived.end_s),
    }
