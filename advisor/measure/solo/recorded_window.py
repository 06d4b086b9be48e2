"""Traces a program in which nobody finds steps, while it goes on: what its GPU does meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from time import sleep
from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.process.worker import TenantState
from advisor.measure.solo.chrome_trace import exported, steps_of_trace
from advisor.measure.solo.trace_events import LAUNCHES, MARK, Event, is_wait
from advisor.measure.solo.traced_step import TracedStep, median_step, sm_limits

_STEPS = 3
_FIRST_S, _SPARE_S = 0.2, 0.05

# As often a step as to be one, the windows' busy times agree this well.
_ALIKE = 1.25


def record(state: TenantState, step_s: float, compute_capability: str) -> dict[str, Any]:
    """What the GPU does for this process in as long as a step takes, wherever in it that begins.

    Returns:
        ``step``: the fields of a `TracedStep` of one phase; empty where this process has not
        touched CUDA.

    Raises:
        AdvisorError: Nothing repeats at that pace.
    """
    if state.device == "cpu":
        return {}
    from torch.profiler import ProfilerActivity, profile

    limits = sm_limits(compute_capability)
    activities = [ProfilerActivity.CUDA]  # the only one that sees other threads
    with profile(activities=activities):  # the first session is slow, and may miss kernels
        sleep(_FIRST_S)
    with profile(activities=activities) as seen:
        sleep(_STEPS * step_s + _SPARE_S)
    document = cut(exported(seen), step_s)
    return {"step": asdict(repeating(steps_of_trace(document, ("0",), limits)))}


def cut(document: Mapping[str, Any], step_s: float) -> dict[str, Any]:
    """`document` with a mark for each step of `step_s` seconds from its first launch on.

    Raises:
        AdvisorError: Nothing was launched.
    """
    events = [each for each in document.get("traceEvents", ()) if each.get("ph") == "X"]
    launched = [float(each["ts"]) for each in events if each.get("cat") in LAUNCHES]
    if not launched:
        raise AdvisorError("torch's profiler saw no launch. May it use CUPTI here?")
    step_us = step_s * 1e6
    bounds = [min(launched) + number * step_us for number in range(_STEPS + 1)]
    marks = [
        {"ph": "X", "cat": "user_annotation", "name": MARK + "0", "ts": bound, "dur": step_us}
        for bound in bounds[:-1]
    ]
    inside = [part for each in events for part in _parts(each, bounds)]
    before_end = [each for each in inside if float(each["ts"]) < bounds[-1]]
    return {**document, "traceEvents": before_end + marks}


def _parts(event: Event, bounds: Sequence[float]) -> Iterator[Event]:
    """A wait cut where it crosses `bounds`, microseconds; any other event as it is."""
    begin, end = float(event["ts"]), float(event["ts"]) + float(event.get("dur", 0.0))
    edges = [begin, *(each for each in bounds if begin < each < end), end]
    if not is_wait(event) or len(edges) == 2:
        yield event
        return
    for at, until in pairwise(edges):
        yield {**event, "ts": at, "dur": until - at}


def repeating(steps: Sequence[TracedStep]) -> TracedStep:
    """The step with the median busy time, if all are about as busy.

    Raises:
        AdvisorError: They are not, so none of them stands for all.
    """
    busy_s = [each.busy_s for each in steps]
    if min(busy_s) <= 0 or max(busy_s) > _ALIKE * min(busy_s):
        raise AdvisorError(
            f"a step of it is no part that repeats on the GPU: it was busy for "
            f"{', '.join(f'{each * 1e3:.2f}' for each in busy_s)} ms in steps in a row. Say the "
            f"examples of a whole round by --batch"
        )
    return median_step(tuple(steps))
