"""Schedules windows of a measurement, counts the steps in each, and measures parts of a step."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from statistics import median, mode
from time import perf_counter, process_time, sleep, time
from typing import Any

import numpy as np

from advisor.errors import AdvisorError
from advisor.hardware.partition import sm_limits
from advisor.measure.process import cpu_s_of
from advisor.measure.tenant_verbs import run, synchronise, training_verbs
from advisor.measure.trace import (
    export_trace,
    join_marks,
    mark,
    median_step,
    record,
    steps_of_trace,
)
from advisor.measure.worker import Part, Routine, TenantState, Trainable, Verb
from advisor.workload.profile import Window

# With fewer steps of the slowest tenant, where a window cuts a step affects its figure.
_FEWEST_STEPS = 6

# Training goes on this long after the last window, so that clock differences cut no window short.
_MARGIN_S = 0.05

_LONGEST_LEAD_S = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the parts of a measurement.

    Attributes:
        settle_s: Seconds that all tenants train together before anything counts.
        window_s: Least length of a window.
        windows: Number of windows.
        lead_s: Least seconds before the first window, in which launch queues fill.
        longest_s: Most seconds of all windows together.
    """

    settle_s: float = 0.7
    window_s: float = 1.0
    windows: int = 3
    lead_s: float = 0.2
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments of one run.

    Attributes:
        start_at: When all tenants take their first step; seconds of the wall clock.
        bounds_s: Where windows begin and end, seconds after `start_at`, shape (windows + 1,).
    """

    start_at: float
    bounds_s: tuple[float, ...]

    @property
    def begin_at(self) -> float:
        """When the first window begins."""
        return self.start_at + self.bounds_s[0]

    @property
    def end_at(self) -> float:
        """When the last window ends."""
        return self.start_at + self.bounds_s[-1]

    @property
    def stop_at(self) -> float:
        """When tenants begin no further step."""
        return self.end_at + _MARGIN_S


def schedule(start_at: float, timing: Timing, slowest_step_s: float) -> Schedule:
    """Schedule windows if all start at `start_at` and the slowest step takes `slowest_step_s`."""
    least_s = timing.windows * timing.window_s
    length_s = max(least_s, min(_FEWEST_STEPS * slowest_step_s, timing.longest_s))
    first_s = min(max(timing.lead_s, slowest_step_s), _LONGEST_LEAD_S)
    bounds_s = np.linspace(first_s, first_s + length_s, timing.windows + 1)
    return Schedule(start_at, tuple(bounds_s.tolist()))


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; returns at once if it is past."""
    sleep(max(0.0, moment - time()))


def step_s_of(start_at: float, completed_at: Sequence[float]) -> float:
    """Return the mean seconds of a step of a tenant that began at `start_at`."""
    return (completed_at[-1] - start_at) / len(completed_at)


def windows_of(plan: Schedule, completed_at: Sequence[float]) -> tuple[Window, ...]:
    """Count one tenant's steps in each window; a step cut by a bound counts in part on both sides.

    Args:
        plan: The schedule of the windows.
        completed_at: Ends of its steps, never decreasing, shape (steps,).
    """
    ends_s = np.array([plan.start_at, *completed_at]) - plan.start_at
    done = np.interp(plan.bounds_s, ends_s, np.arange(len(ends_s)))
    lengths_s = np.diff(plan.bounds_s)
    return tuple(
        Window(float(seconds), float(steps))
        for seconds, steps in zip(lengths_s, np.diff(done), strict=True)
    )


_TRACED_STEPS = 3
_FEWEST_TIMED, _MOST_TIMED = 3, 40


def profiling_verbs() -> Mapping[str, Verb]:
    """The training verbs, and `train`, `issue`, `trace` and `record`."""
    own: dict[str, Verb] = {"train": train, "issue": issue, "trace": trace, "record": record}
    return {**training_verbs(), **own}


def train(state: TenantState, start_at: float, stop_at: float) -> Routine:
    """Train as `run` does, and measure the host's work.

    Returns:
        As `run`; and ``cpu_s``, CPU seconds of this process and its loader's workers; of the
        workers alone ``loader_cpu_s``, and ``read_mib``, None if the system does not report it; and
        ``fetched_s``, seconds spent on taking batches.
    """
    before = _used(state)
    answer = yield from run(state, start_at, stop_at)
    after = _used(state)
    return answer | {
        name: None if used is None or before[name] is None else used - before[name]
        for name, used in after.items()
    }


def _used(state: TenantState) -> dict[str, Any]:
    """The host's work so far by this process and its loader's workers, by name."""
    workers = [each.pid for each in active_children() if each.pid is not None]
    loader_cpu_s = sum(map(cpu_s_of, workers))
    read_mib = None
    try:  # proc(5): rchar of io, cached files included
        texts = [Path(f"/proc/{pid}/io").read_text() for pid in workers]
        read_mib = sum(int(text.split("rchar:", 1)[1].split()[0]) for text in texts) / 2**20
    except (OSError, IndexError, ValueError):
        pass
    return {
        "cpu_s": process_time() + loader_cpu_s,
        "loader_cpu_s": loader_cpu_s,
        "read_mib": read_mib,
        "fetched_s": _loaded(state).fetched_s,
    }


def issue(state: TenantState, seconds: float) -> Routine:
    """Time the host in each phase of a step, with an empty launch queue.

    Returns:
        ``phases_s``, shape (phases,), and ``loader_s``, seconds between batches of the loader
        alone, None without a loader.
    """
    trainable, wait = _loaded(state), partial(synchronise, state)
    rows: list[list[float]] = []
    fetches_s: list[float] = []
    until = perf_counter() + seconds
    wait()
    while len(rows) < _FEWEST_TIMED or (perf_counter() < until and len(rows) < _MOST_TIMED):
        step_fetched_s, row, ended = trainable.fetched_s, [], False
        while not ended:
            fetched_s, began = trainable.fetched_s, perf_counter()
            ended = yield "phase"
            row.append(perf_counter() - began - (trainable.fetched_s - fetched_s))
            wait()
        rows.append(row)
        fetches_s.append(trainable.fetched_s - step_fetched_s)
    # A script may do more in some steps: those with the most common number of phases count.
    count = mode(map(len, rows))
    usual = [row for row in rows if len(row) == count]
    phases_s = [median(each) for each in zip(*usual, strict=True)]
    # A fetch that waits for the loader does not measure the host's own work.
    phases_s[0] += min(fetches_s)
    return {"phases_s": phases_s, "loader_s": _loader_s(trainable, wait, seconds)}


def _loader_s(trainable: Trainable, wait: Callable[[], None], seconds: float) -> float | None:
    workers = trainable.loader_workers
    if workers == 0:
        return None
    batches = 0
    try:
        for _ in range(3 * workers):  # prefetched batches
            trainable.next_batch()
        wait()
        began = perf_counter()
        while batches < _FEWEST_TIMED or perf_counter() - began < seconds:
            trainable.next_batch()
            batches += 1
    except StopIteration:  # the pass of a script's loader is over
        if batches < _FEWEST_TIMED:
            return None
    wait()
    return (perf_counter() - began) / batches


def trace(state: TenantState, compute_capability: str) -> Routine:
    """Trace the GPU's work in a step.

    Returns:
        ``step``: the fields of a `TracedStep`, the one with the median busy time of several.
    """
    _loaded(state)
    limits = sm_limits(compute_capability)
    document, phases = yield from record_steps(partial(synchronise, state))
    return {"step": asdict(median_step(steps_of_trace(document, phases, limits)))}


def record_steps(
    wait: Callable[[], None],
) -> Generator[Part, bool, tuple[dict[str, Any], tuple[str, ...]]]:
    """Profile some steps, with an empty launch queue before each phase.

    Returns:
        The profile, and the names of a step's phases, marked in it.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities):  # the first session is slow, and may miss kernels
        yield "step"
        wait()
    # A hook may stand inside a stretch that torch marked for the first session, the optimizer's:
    # where such a stretch ends in a second session, torch 2.11 writes to memory that it has freed.
    yield "step"
    with profile(activities=activities) as seen:
        counts = []
        for number in range(_TRACED_STEPS):
            phases, ended = 0, False
            while not ended:
                mark(number, phases, "begins")
                ended = yield "phase"
                mark(number, phases, "ends")
                wait()
                phases += 1
            counts.append(phases)
    usual = mode(counts)
    steps = [number for number, count in enumerate(counts) if count == usual]
    return join_marks(export_trace(seen), steps), tuple(map(str, range(usual)))


def _loaded(state: TenantState) -> Trainable:
    if state.trainable is None:
        raise AdvisorError("a tenant must load a workload before it is profiled")
    return state.trainable
