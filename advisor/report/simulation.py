"""A simulation over time: as text, and as a trace."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from math import fsum
from typing import Any, get_args

from rich.console import Group, RenderableType
from rich.text import Text

from advisor.errors import counted
from advisor.plan.forecast import OverTime
from advisor.plan.objectives import joint_ratio
from advisor.prediction.prediction import Interval
from advisor.prediction.replay import ReplayedKernel
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import csv_text, plain_table, range_columns
from advisor.sharing.groups import chooses_layouts
from advisor.simulation import RoundPolicy
from advisor.simulation.results import Simulation, Usage, parts

_MOST_JOBS = 24  # with more, the answer has no table of jobs


def simulation_heading(over_time: OverTime) -> str:
    """Return the jobs, their sharing, GPUs and policy, and what was estimated, as a sentence."""
    simulation = over_time.simulation
    gpus = " and ".join(map(str, simulation.counts))
    if simulation.at_once is not None:
        gpus += f", at most {simulation.at_once} at once{' on each' if simulation.gpus > 1 else ''}"
    origin = "" if simulation.confirmed_on_hardware else f", {forecast.estimated(simulation)}"
    heading = (
        f"{counted(len(simulation.jobs), 'job')} under {simulation.sharing} on {gpus}, "
        f"{simulation.policy}{origin}."
    )
    return forecast.with_estimates_named(over_time.standing, heading)


def simulation_report(over_time: OverTime) -> Group:
    """Return what ``advisor simulate`` prints: figures, then a few jobs one by one."""
    simulation = over_time.simulation
    facts = chain(simulation_facts(simulation), savings_facts(over_time))
    parts: list[RenderableType] = [
        Text(simulation_heading(over_time), style="bold"),
        *(Text(f"{name:<20}{value}") for name, value in facts),
        *map(Text, forecast.basis_notes(over_time.standing)),
    ]
    if len(simulation.jobs) <= _MOST_JOBS:
        table = plain_table("job", "arrives", "starts", "ends")
        for number, run in enumerate(simulation.jobs, start=1):
            starts = units.duration(run.arrival_s), units.duration(run.start_s)
            table.add_row(f"{number} · {run.job.name}", *starts, units.seconds(run.end_s))
        parts += [Text(), table]
    return Group(*parts)


def simulation_facts(simulation: Simulation) -> Iterator[tuple[str, str]]:
    """Yield the figures of a simulation: name and value."""
    wait_s, mean_s = simulation.mean_wait_s, units.duration(simulation.mean_completion_s)
    waiting = f"{units.duration(wait_s)} of it waiting" if wait_s else "none of it waiting"
    rate = f"{units.number(simulation.jobs_per_hour)} jobs an hour"
    memory = units.gib_of(simulation.peak_memory_mib)
    yield "total time", units.seconds(simulation.makespan_s)
    yield "mean completion", f"{mean_s} after arrival, {waiting}; {rate}"
    most, nearly_all = map(
        units.duration, (simulation.p95_completion_s, simulation.p99_completion_s)
    )
    yield "completion", f"95 % of jobs end within {most}, 99 % within {nearly_all}"
    mean, worst = simulation.mean_unfairness, simulation.worst_unfairness
    yield (
        "fairness",
        f"{mean:.2f}x the completion time with an equal part of the GPUs; worst {worst:.2f}x",
    )
    if simulation.policy in get_args(RoundPolicy):
        yield "preemptions", counted(simulation.preemptions, "stop")
    if chooses_layouts(simulation.sharing):
        yield "MIG layouts", f"{counted(simulation.layout_changes, 'change')}, on idle GPUs"
    if any(each.job.deadline_s is not None for each in simulation.jobs):
        late = ", ".join(map(str, simulation.late))
        yield "deadlines", f"late: job {late}" if late else "all kept"
    busy = units.share(simulation.mean_gract)
    yield "GPU busy", f"{busy} of all time; memory at most {memory} a GPU"
    yield "energy", units.joules(simulation.energy_j)
    hours = (
        f"{_around(simulation.gpu_hours)}, of which {_plain(simulation.occupied_gpu_hours)} with "
        "jobs"
    )
    hours += f" ({units.share(simulation.utilisation)})"
    cost_eur = simulation.cost_eur
    yield "GPU-hours", hours if cost_eur is None else f"{hours}; {_around(cost_eur)} EUR"


def savings_facts(over_time: OverTime) -> Iterator[tuple[str, str]]:
    """Yield the figures of one job a GPU, and the shares of them that sharing saves."""
    if (unshared := over_time.unshared) is None:
        return
    simulation = over_time.simulation
    mean_s = units.duration(unshared.mean_completion_s)
    yield (
        "one job a GPU",
        f"{units.seconds(unshared.makespan_s)}; mean completion time {mean_s}; "
        f"{units.joules(unshared.energy_j)}",
    )
    shorter = 1 - simulation.mean_completion_s / unshared.mean_completion_s
    saved = [
        f"{_saved(simulation.makespan_s, unshared.makespan_s)} of the time",
        (
            f"mean completion time {units.share(abs(shorter))} "
            f"{'shorter' if shorter >= 0 else 'longer'}"
        ),
    ]
    if simulation.energy_j is not None and unshared.energy_j is not None:
        saved.insert(1, f"{_saved(simulation.energy_j, unshared.energy_j)} of the energy")
    yield "sharing saves", "; ".join(saved)


def _saved(shared: Interval, unshared: Interval) -> str:
    share = saving(shared, unshared)
    low, middle, high = map(units.share, (share.p05, share.p50, share.p95))
    return f"{middle} ({low} to {high})"


def saving(shared: Interval, unshared: Interval) -> Interval:
    """Return the share by which `shared` is less than `unshared`; see `joint_ratio`."""
    ratio = joint_ratio(shared, unshared, same_way=shared == unshared)
    return Interval(1 - ratio.p95, 1 - ratio.p50, 1 - ratio.p05)


def _around(value: Interval) -> str:
    return units.with_ends(value, _plain)


def _plain(value: float) -> str:
    """A small number with two significant digits."""
    return units.number(value) if value >= 0.1 else f"{value:.2g}"


_MOST_EPOCHS = 20_000  # with more in all, a trace shows jobs without their epochs
_Event = dict[str, Any]
_WAITING = 0  # the process of jobs that wait; GPU n is process n + 1


def trace_text(simulation: Simulation, kernels: Sequence[ReplayedKernel] = ()) -> str:
    """Return a trace for Perfetto and chrome://tracing: jobs over time, and counters.

    The format is the Trace Event Format's JSON: times in microseconds, a process for each GPU, a
    thread for each of its places. Another process shows the `kernels`, replayed, of the jobs of
    `Simulation.first`.
    """
    places = sorted({(use.gpu, place) for use in simulation.usage for place in use.places})
    names = [_named("process_name", _WAITING, 0, "waiting")]
    names += (
        _named("process_name", gpu + 1, 0, f"GPU {gpu}, {model}")
        for gpu, model in enumerate(simulation.models)
    )
    names += (_named("thread_name", gpu + 1, at + 1, f"place {at + 1}") for gpu, at in places)
    events = (names, _jobs(simulation), _counters(simulation), _kernels(simulation, kernels))
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"what": "simulated by advisor, not measured"},
        "traceEvents": list(chain(*events)),
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _named(kind: str, process: int, thread: int, name: str) -> _Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _jobs(simulation: Simulation) -> Iterator[_Event]:
    in_detail = sum(each.job.epochs for each in simulation.jobs) <= _MOST_EPOCHS
    of_job, spans_of = _usage_of_jobs(simulation), spans_of_jobs(simulation)
    for number, run in enumerate(simulation.jobs):
        numbers = {"job": number, "end_s_p05": run.end_s.p05, "end_s_p95": run.end_s.p95}
        spans = spans_of[number]
        for gpu, place, start_s, end_s in spans:
            yield _slice(gpu, place, run.job.name, "job", start_s, end_s) | {
                "args": numbers | {"wait_s": run.wait_s}
            }
        if run.wait_s > 0:  # a track for each waiting job, because many wait at once
            for phase, at_s in (("b", run.arrival_s), ("e", run.start_s)):
                yield {
                    "name": run.job.name,
                    "cat": "waiting",
                    "ph": phase,
                    "id": number,
                    "ts": 1e6 * at_s,
                    "pid": _WAITING,
                    "tid": 0,
                }
        if not in_detail or len(spans) > len(run.gpus):
            continue  # a stopped job does a part of its work again
        own = [use for use in of_job[number] if use.gpu == run.gpu]
        for part in parts(number, run.job, own):
            name = f"{part.kind} {part.epoch}"
            for gpu in run.gpus:
                yield _slice(gpu, run.place, name, part.kind, part.start_s, part.end_s)


def _usage_of_jobs(simulation: Simulation) -> list[list[Usage]]:
    """The usage in which each job runs."""
    of_job: list[list[Usage]] = [[] for _ in simulation.jobs]
    for use in simulation.usage:
        for number in use.jobs:
            of_job[number].append(use)
    return of_job


def jobs_csv(simulation: Simulation) -> str:
    """Return a row of CSV for each job; its mean slowdown is over its work, while it runs."""
    rows, late = [], {*simulation.late}
    for number, (run, usage) in enumerate(
        zip(simulation.jobs, _usage_of_jobs(simulation), strict=True)
    ):
        job, per_epoch = run.job, run.job.profile.workload.steps_per_epoch
        ran_s = fsum(use.seconds for use in usage) / job.gpus
        done = fsum(use.seconds * use.speeds[use.jobs.index(number)] for use in usage) / job.gpus
        rows.append(
            {
                "number": number + 1,
                "job": job.name,
                "gpus": " ".join(map(str, run.gpus)),
                "arrival_s": run.arrival_s,
                "start_s": run.start_s,
                **range_columns("end", "s", run.end_s),
                "wait_s": run.wait_s,
                "completion_s": run.completion_s,
                "running_s": ran_s,
                "epochs": job.epochs,
                "steps": None if per_epoch is None else job.epochs * per_epoch / job.gpus,
                "mean_slowdown": ran_s / (done * job.alone_step_s),
                "unfairness": run.unfairness,
                "late": number + 1 in late,
                "estimated": not simulation.confirmed_on_hardware,
            }
        )
    return csv_text(rows)


def spans_of_jobs(simulation: Simulation) -> list[list[tuple[int, int, float, float]]]:
    """Return GPU, place, start and end of each time in which a job runs without a stop, by job."""
    return [_spans(*numbered) for numbered in enumerate(_usage_of_jobs(simulation))]


def _spans(number: int, usage: Sequence[Usage]) -> list[tuple[int, int, float, float]]:
    spans: list[tuple[int, int, float, float]] = []
    last: dict[int, int] = {}  # number of the last span, by GPU
    for use in usage:
        place = use.places[use.jobs.index(number)]
        at = last.get(use.gpu)
        if at is not None and spans[at][1] == place and spans[at][3] == use.start_s:
            spans[at] = (*spans[at][:3], use.end_s)
        else:
            last[use.gpu] = len(spans)
            spans.append((use.gpu, place, use.start_s, use.end_s))
    return spans


def _slice(gpu: int, place: int, name: str, category: str, start_s: float, end_s: float) -> _Event:
    length_us = 1e6 * (end_s - start_s)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": 1e6 * start_s,
        "dur": length_us,
        "pid": gpu + 1,
        "tid": place + 1,
    }


def _kernels(simulation: Simulation, kernels: Sequence[ReplayedKernel]) -> Iterator[_Event]:
    if not kernels:
        return
    process, first = simulation.gpus + 1, simulation.first
    yield _named("process_name", process, 0, "kernels of the jobs that start first, replayed")
    for thread, number in enumerate(first.jobs):
        yield _named("thread_name", process, thread, simulation.jobs[number].job.name)
    for ran in kernels:
        yield {
            "name": ran.kind,
            "cat": "kernel",
            "ph": "X",
            "pid": process,
            "tid": ran.job,
            "ts": 1e6 * (first.start_s + ran.start_s),
            "dur": 1e6 * (ran.end_s - ran.start_s),
        }


def _counters(simulation: Simulation) -> Iterator[_Event]:
    """Activity, memory and power of each GPU, from each change on."""
    nothing: dict[int, dict[str, float | None]] = {
        gpu: {"GPU busy, %": 0.0, "memory, MiB": 0.0, "power, W": idle_w}
        for gpu, idle_w in enumerate(simulation.idle_powers_w)
    }
    ends_s: dict[int, float] = {}
    changes = list[tuple[int, float, dict[str, float | None]]]()
    for use in sorted(simulation.usage, key=lambda each: each.start_s):
        if ends_s.get(use.gpu, use.start_s) < use.start_s:
            changes.append((use.gpu, ends_s[use.gpu], nothing[use.gpu]))
        busy_percent = None if use.gract is None else 100 * use.gract
        values = {"memory, MiB": use.memory_mib, "power, W": use.power_w}
        changes.append((use.gpu, use.start_s, {"GPU busy, %": busy_percent, **values}))
        ends_s[use.gpu] = use.end_s
    changes += [(gpu, end_s, nothing[gpu]) for gpu, end_s in ends_s.items()]
    for gpu, at_s, named in changes:
        event = {"ph": "C", "ts": 1e6 * at_s, "pid": gpu + 1}
        for name, value in named.items():
            if value is not None:
                yield {"name": name, **event, "args": {"value": value}}
