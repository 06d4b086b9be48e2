"""The requests that a profiled tenant answers in addition to those of every tenant."""

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError
from advisor.measure.process.tenant_verbs import run, synchronise, training_verbs
from advisor.measure.process.worker import TenantState, Verb
from advisor.measure.solo.chrome_trace import MARK, steps_of_trace
from advisor.measure.solo.traced_step import TracedStep, sm_limits

if TYPE_CHECKING:
    from advisor.zoo.task import Step

_TRACED_STEPS = 3
_FEWEST_TIMED, _MOST_TIMED = 3, 40


def profiling_verbs() -> Mapping[str, Verb]:
    """The training verbs, and `train`, `issue` and `trace`."""
    return {**training_verbs(), "train": train, "issue": issue, "trace": trace}


def train(state: TenantState, start_at: float, stop_at: float) -> dict[str, Any]:
    """As `run`, and returns ``cpu_s``, CPU seconds of this process and its loader's workers."""
    before_s = _cpu_s()
    answer = run(state, start_at, stop_at)
    return answer | {"cpu_s": _cpu_s() - before_s}


def _cpu_s() -> float:
    workers = [each.pid for each in active_children() if each.pid is not None]
    return process_time() + sum(map(_cpu_s_of, workers))


def _cpu_s_of(pid: int) -> float:
    """User and system time of a process (proc(5): fields 14 and 15 of stat)."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def issue(state: TenantState, seconds: float) -> dict[str, Any]:
    """How long the host takes for each phase of a step, with an empty launch queue.

    Returns:
        ``phases_s``, shape (phases,), and ``loader_s``, seconds between batches of the loader
        alone, None without a loader.
    """
    step = _loaded(state)
    wait = partial(synchronise, state)
    rows: list[list[float]] = []
    until = perf_counter() + seconds
    while len(rows) < _FEWEST_TIMED or (perf_counter() < until and len(rows) < _MOST_TIMED):
        rows.append([_timed(phase, wait) for phase in step.phases.values()])
    fetch, *others = zip(*rows, strict=True)
    # A fetch that waits for the loader does not measure the host's own work.
    phases_s = (min(fetch), *map(median, others))
    return {"phases_s": phases_s, "loader_s": _loader_s(step, wait, seconds)}


def _timed(phase: Callable[[], None], wait: Callable[[], None]) -> float:
    began = perf_counter()
    phase()
    took_s = perf_counter() - began
    wait()
    return took_s


def _loader_s(step: "Step", wait: Callable[[], None], seconds: float) -> float | None:
    workers = step.workload.loader_workers
    if workers == 0:
        return None
    for _ in range(3 * workers):  # prefetched batches
        step.next_batch()
    wait()
    batches, began = 0, perf_counter()
    while batches < _FEWEST_TIMED or perf_counter() - began < seconds:
        step.next_batch()
        batches += 1
    wait()
    return (perf_counter() - began) / batches


def trace(state: TenantState, compute_capability: str) -> dict[str, Any]:
    """What the GPU does in a step.

    Returns:
        ``step``: a `TracedStep`, the one with the median busy time of several.
    """
    step, limits = _loaded(state), sm_limits(compute_capability)
    phases = tuple(step.phases)
    steps = steps_of_trace(recorded(step, partial(synchronise, state)), phases, limits)
    return {"step": median_step(steps)}


def median_step(steps: tuple[TracedStep, ...]) -> TracedStep:
    """The one of `steps` with the median busy time."""
    return sorted(steps, key=lambda each: each.busy_s)[len(steps) // 2]


def recorded(step: "Step", wait: Callable[[], None]) -> dict[str, Any]:
    """Torch's profile of some steps, with an empty launch queue before each phase."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities):  # the first session is slow, and may miss kernels
        step()
        wait()
    with profile(activities=activities) as seen:
        for _ in range(_TRACED_STEPS):
            for name, phase in step.phases.items():
                with record_function(MARK + name):
                    phase()
                wait()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        document: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    return document


def _loaded(state: TenantState) -> "Step":
    if state.step is None:
        raise AdvisorError("a tenant must load a workload before it is profiled")
    return state.step
