"""A simulation as a trace that browsers and Perfetto show."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from advisor.prediction.replayed_kernels import ReplayedKernel
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage, parts

# Beyond so many epochs in all, a trace shows jobs as wholes.
MOST_EPOCHS = 20_000


_Event = dict[str, Any]
_WAITING = 0  # the process of jobs that wait; GPU n is process n + 1


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
    """A track for each waiting job, since many wait at once."""
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
