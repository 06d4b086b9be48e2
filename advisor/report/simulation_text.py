"""The result of a simulation: text that fits in 80 columns, a document, and a trace."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.api import OverTime
from advisor.english import counted
from advisor.prediction.mix_prediction import Interval
from advisor.prediction.replayed_kernels import ReplayedKernel
from advisor.report import units
from advisor.report.documents import SCHEMA, interval_document, standing_document
from advisor.report.headline import estimated, host_note, led
from advisor.report.simulation_drawing import lanes
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage, parts

if TYPE_CHECKING:
    from rich.console import RenderableType

_MIB_PER_GIB = 1024.0

# Beyond so many epochs in all, a trace shows jobs as wholes.
MOST_EPOCHS = 20_000

_Event = dict[str, Any]
_WAITING = 0  # the process of jobs that wait; GPU n is process n + 1


def simulation_report(found: OverTime) -> "RenderableType":
    """What ``advisor simulate`` prints: numbers, then a chart of the time."""
    from rich.console import Group
    from rich.text import Text

    facts = [f"{name:<20}{said}" for name, said in simulation_facts(found.simulation)]
    lines = [*facts, host_note(found.standing)]
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
        f"{simulation.policy}{origin}"
    )
    return led(found.standing, said)


def simulation_facts(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """What it comes down to: the name of each figure, and the figure in words."""
    mean_s, wait_s = simulation.mean_completion_s, simulation.mean_wait_s
    yield "until all are done", units.seconds(simulation.makespan_s)
    yield (
        "from coming to end",
        f"{_seconds(mean_s)} on average, {_seconds(wait_s)} of it waiting; "
        f"{units.number(simulation.jobs_per_hour)} jobs an hour",
    )
    yield (
        "GPU busy",
        f"{units.share(simulation.mean_gract)} of all time; memory at most "
        f"{units.number(simulation.peak_memory_mib / _MIB_PER_GIB)} GiB a GPU",
    )
    yield "energy", units.joules(simulation.energy_j)
    yield "GPU-hours", _gpu_hours(simulation)


def _gpu_hours(simulation: Simulation) -> str:
    said = f"{_around(simulation.gpu_hours)}, with jobs in {_plain(simulation.occupied_gpu_hours)}"
    cost_eur = simulation.cost_eur
    return said if cost_eur is None else f"{said}; {_around(cost_eur)} EUR"


def _around(value: Interval) -> str:
    return f"{_plain(value.p50)} ({_plain(value.p05)}-{_plain(value.p95)})"


def _plain(value: float) -> str:
    """Two digits that mean something where a number is small."""
    return units.number(value) if value >= 0.1 else f"{value:.2g}"


def _seconds(value: float) -> str:
    unit, size_s = units.time_unit(value) if value else ("s", 1.0)
    return f"{units.number(value / size_s)} {unit}"


def simulation_document(found: OverTime) -> dict[str, Any]:
    """What ``advisor simulate --json`` prints; times in seconds from the start."""
    simulation = found.simulation
    energy_j, cost_eur = simulation.energy_j, simulation.cost_eur
    return {
        "schema": SCHEMA,
        **standing_document(found.standing),
        "gpu": simulation.gpu,
        "gpus": simulation.gpus,
        "sharing": str(simulation.sharing),
        "policy": simulation.policy,
        "confirmed_on_hardware": simulation.confirmed_on_hardware,
        "estimated_from": simulation.estimated_from,
        "makespan_s": simulation.makespan_s.p50,
        "makespan_interval_s": interval_document(simulation.makespan_s),
        "jobs_per_hour": simulation.jobs_per_hour,
        "mean_completion_s": simulation.mean_completion_s,
        "mean_wait_s": simulation.mean_wait_s,
        "gract": simulation.mean_gract,
        "peak_memory_mib": simulation.peak_memory_mib,
        "energy_j": interval_document(energy_j),
        "idle_power_w": simulation.idle_power_w,
        "gpu_hours": interval_document(simulation.gpu_hours),
        "occupied_gpu_hours": simulation.occupied_gpu_hours,
        "price_eur_per_gpu_hour": simulation.price_eur_per_gpu_hour,
        "cost_eur": interval_document(cost_eur),
        "jobs": [_job(each) for each in simulation.jobs],
        "over_time": [asdict(each) for each in simulation.usage],
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


def trace_text(simulation: Simulation, kernels: Sequence[ReplayedKernel] = ()) -> str:
    """A trace that Perfetto and chrome://tracing open: jobs over time, and counters.

    The format is the Trace Event Format's JSON: times in microseconds, a process for each GPU, a
    thread for each of its places.

    Args:
        simulation: All of it.
        kernels: Of the jobs of `Simulation.first`, replayed; shown as a process of their own.
    """
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"what": "simulated by advisor, not measured"},
        "traceEvents": [
            *_names(simulation),
            *_jobs(simulation),
            *_counters(simulation),
            *_kernels(simulation, kernels),
        ],
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _names(simulation: Simulation) -> Iterator[_Event]:
    yield _named("process_name", _WAITING, 0, "waiting")
    for gpu in range(simulation.gpus):
        yield _named("process_name", gpu + 1, 0, f"GPU {gpu}, {simulation.gpu}")
    for gpu, place in sorted({(each.gpu, each.place) for each in simulation.jobs}):
        yield _named("thread_name", gpu + 1, place + 1, f"place {place + 1}")


def _named(what: str, process: int, thread: int, name: str) -> _Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _jobs(simulation: Simulation) -> Iterator[_Event]:
    in_detail = sum(each.job.epochs for each in simulation.jobs) <= MOST_EPOCHS
    of_job: dict[int, list[Usage]] = {}
    for use in simulation.usage:
        for number in use.jobs:
            of_job.setdefault(number, []).append(use)
    for number, lived in enumerate(simulation.jobs):
        yield _slice(lived, lived.job.name, "job", lived.start_s, lived.end_s.p50) | {
            "args": {
                "job": number,
                "end_s_p05": lived.end_s.p05,
                "end_s_p95": lived.end_s.p95,
                "wait_s": lived.wait_s,
            }
        }
        if lived.wait_s > 0:
            yield from _waits(number, lived)
        for part in parts(number, lived.job, of_job[number]) if in_detail else ():
            yield _slice(lived, f"{part.kind} {part.epoch}", part.kind, part.start_s, part.end_s)


def _slice(lived: SimulatedJob, name: str, category: str, start_s: float, end_s: float) -> _Event:
    length_us = 1e6 * (end_s - start_s)
    return {
        "name": name, "cat": category, "ph": "X", "ts": 1e6 * start_s, "dur": length_us,
        "pid": lived.gpu + 1, "tid": lived.place + 1,
    }  # fmt: skip


def _waits(number: int, lived: SimulatedJob) -> Iterator[_Event]:
    """Many wait at once, so these are a track each."""
    for phase, at_s in (("b", lived.arrival_s), ("e", lived.start_s)):
        yield {
            "name": lived.job.name, "cat": "waiting", "ph": phase, "id": number, "ts": 1e6 * at_s,
            "pid": _WAITING, "tid": 0,
        }  # fmt: skip


def _kernels(simulation: Simulation, kernels: Sequence[ReplayedKernel]) -> Iterator[_Event]:
    if not kernels:
        return
    process, first = simulation.gpus + 1, simulation.first
    yield _named("process_name", process, 0, "kernels of the jobs that start first, replayed")
    for thread, number in enumerate(first.jobs):
        yield _named("thread_name", process, thread, simulation.jobs[number].job.name)
    for ran in kernels:
        yield {
            "name": ran.kind, "cat": "kernel", "ph": "X", "pid": process, "tid": ran.job,
            "ts": 1e6 * (first.start_s + ran.start_s), "dur": 1e6 * (ran.end_s - ran.start_s),
        }  # fmt: skip


def _counters(simulation: Simulation) -> Iterator[_Event]:
    """Activity, memory and power of each GPU, from each change on."""
    idle_w = simulation.idle_power_w
    ends_s: dict[int, float] = {}
    for use in sorted(simulation.usage, key=lambda each: each.start_s):
        if ends_s.get(use.gpu, use.start_s) < use.start_s:
            yield from _counted(use.gpu, ends_s[use.gpu], 0.0, 0.0, idle_w)
        yield from _counted(use.gpu, use.start_s, use.gract, use.memory_mib, use.power_w)
        ends_s[use.gpu] = use.end_s
    for gpu, end_s in ends_s.items():
        yield from _counted(gpu, end_s, 0.0, 0.0, idle_w)


def _counted(
    gpu: int, at_s: float, gract: float | None, memory_mib: float, power_w: float | None
) -> Iterator[_Event]:
    busy_pct = None if gract is None else 100 * gract
    for name, value in (
        ("GPU busy, %", busy_pct),
        ("memory, MiB", memory_mib),
        ("power, W", power_w),
    ):
        if value is not None:
            yield {
                "name": name, "ph": "C", "ts": 1e6 * at_s, "pid": gpu + 1, "args": {"value": value},
            }  # fmt: skip
