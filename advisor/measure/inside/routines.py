"""Requests that a program answers between its steps; a routine trains on as far as it needs.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` if the program cannot go on, or
``("refused", exit code, message)`` for an error that the user can correct.
"""

import platform
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from statistics import median, mode
from time import perf_counter, sleep, time
from traceback import print_exc
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from . import MARK, installed_version, lacks_memory
from .clocks import StepClock, allocations, host_check_s, memory_mib, on_gpu, synchronise, used
from .steps import Feeds

Part = Literal["step", "phase"]

Routine = Generator[Part, bool, dict[str, Any]]
"""Yields how far to train, receives whether a step has ended, and returns plain values."""

Verb = Callable[..., "dict[str, Any] | Routine"]
"""Takes a `Feeds` and the arguments of a request; returns plain values, or a routine that does."""


@cache
def versions() -> "dict[str, str | None]":
    """Return the versions of Python, torch, CUDA and timm."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "timm": installed_version("timm"),
    }


def attempt(
    request: "Callable[[], dict[str, Any] | Routine]",
) -> "Generator[Part, bool, tuple[Any, ...]]":
    """Call `request`, and train as far as its routine needs; return the answer, however it ends."""
    try:
        value = request()
        if isinstance(value, Generator):
            value = yield from value
    except Exception as error:  # any error ends this program and not the measurement
        if (code := getattr(error, "exit_code", None)) is not None:
            return ("refused", code, str(error))
        line = (str(error).strip().splitlines() or [""])[0]
        detail = f"{type(error).__name__}: {line}"[:300]
        if isinstance(error, RuntimeError) and lacks_memory(str(error)):
            return ("ended", "out-of-memory", detail)
        print_exc()  # the record holds one line only
        return ("ended", "failed", detail)
    return ("done", value)


class Over(BaseException):
    """The program has come to its end by itself; raised in a routine that trains."""


def run(program: Feeds, start_at: float, stop_at: float, **options: Any) -> Routine:
    """Train between two moments of the wall clock: no step begins after `stop_at`; see `train`."""
    return train(program, start_at, lambda _: time() >= stop_at, **options)


def run_steps(program: Feeds, start_at: float, steps: int) -> Routine:
    """Train so many steps; see `train`."""
    return train(program, start_at, lambda number: number >= steps)


def train(
    program: Feeds,
    start_at: float,
    is_last: "Callable[[int], bool]",
    *,
    checks_at: Sequence[float] = (),
    pieces: int = 0,
    partly: bool = False,
    counting: bool = False,
) -> Routine:
    """Train from `start_at` on, up to the step whose number `is_last`; do not wait for the device.

    At least one step is taken, or if `partly` none where the program ends before. After the first
    step that ends past each of `checks_at`, the core is checked with so many `pieces`.

    Returns:
        ``completed_at``: when each step ended on the device, seconds of the wall clock;
        ``checks``: ``[steps before it, seconds of a piece, seconds that it took]`` of each check;
        ``between``: the step and what `Feeds.between` has, for each step during which the program
        did more than train; ``memory``; what `used` counts, and ``fetched_s``;
        ``over``: whether the program ended before; ``work``: allocations of GPU memory until the
        end of each step, if `counting` and if there are any.
    """
    clock, due = StepClock(), deque(checks_at)
    before, fetched_s, seen = used(), program.fetched_s, program.between.copy()
    checks: list[list[float]] = []
    between: list[list[float]] = []
    work: list[int] = []
    over = False
    sleep(max(0.0, start_at - time()))
    try:
        for number in count(1):
            yield "step"
            clock.mark()
            if program.between != seen:
                gained = (now - seen[name] for name, now in program.between.items())
                between.append([number - 1, *gained])
                seen = program.between.copy()
            if counting and (asks := allocations()) is not None:
                work.append(asks)
            if due and time() >= due[0]:
                while due and time() >= due[0]:
                    due.popleft()
                began = perf_counter()
                check_s = host_check_s(pieces)
                checks.append([number, check_s, perf_counter() - began])
            if is_last(number):
                break
    except Over:
        if not partly:
            raise
        over = True
    completed_at = clock.marked_at()
    gained_use = {
        name: None if use is None or then is None else use - then
        for (name, use), then in zip(used().items(), before.values(), strict=True)
    }
    return {
        "completed_at": completed_at,
        "checks": checks,
        "between": between,
        "work": work,
        "memory": memory_mib(),
        "fetched_s": program.fetched_s - fetched_s,
        **gained_use,
        "over": over,
    }


_FEWEST_TIMED, _MOST_TIMED = 3, 40


def issue(program: Feeds, seconds: float, round_steps: int = 1) -> Routine:
    """Time the host in each phase of a round of steps, with an empty launch queue.

    Rounds during which a new pass of the loader began do not count. Return ``phases_s``, shape
    (phases,), and ``loader_s``, seconds between batches of the loader alone, None without a loader.
    """
    rows: list[list[tuple[float, float]]] = []  # of each phase: its own seconds, and its waits
    fewest = _FEWEST_TIMED if round_steps == 1 else 1
    yield from _aligned(program, round_steps)
    until, late = perf_counter() + seconds, perf_counter() + 10 * seconds
    synchronise()
    while perf_counter() < late and (
        len(rows) < fewest or (perf_counter() < until and len(rows) < _MOST_TIMED)
    ):
        passes, row, steps = program.between["passes"], [], 0
        while steps < round_steps:
            fetched_s, began = program.fetched_s, perf_counter()
            steps += yield "phase"
            took_s = perf_counter() - began
            # A fetch that waits for the loader is not the host's own work.
            waited_s = program.fetched_s - fetched_s if program.loader_workers else 0.0
            row.append((took_s - waited_s, waited_s))
            synchronise()
        if program.between["passes"] == passes or not rows:
            rows.append(row)
    # A script may do more in some rounds: those with the most common number of phases count.
    usual = mode(map(len, rows))
    phases = zip(*(row for row in rows if len(row) == usual), strict=True)
    parts = [zip(*phase, strict=True) for phase in phases]
    phases_s = [median(own_s) + min(waits_s) for own_s, waits_s in parts]
    return {"phases_s": phases_s, "loader_s": _loader_s(program, seconds)}


def _aligned(program: Feeds, round_steps: int) -> "Generator[Part, bool, None]":
    """Train until a round begins: at the same place of the program's rounds each time."""
    while program.steps % round_steps:
        yield "step"


def _loader_s(program: Feeds, seconds: float) -> "float | None":
    if program.loader_workers == 0:
        return None
    batches = 0
    began = perf_counter()
    try:
        for _ in range(3 * program.loader_workers):  # prefetched batches
            program.next_batch()
        synchronise()
        began = perf_counter()
        while batches < _FEWEST_TIMED or perf_counter() - began < seconds:
            program.next_batch()
            batches += 1
    except StopIteration:  # the pass of a script's loader is over
        if batches < _FEWEST_TIMED:
            return None
    synchronise()
    return (perf_counter() - began) / batches


def trace(program: Feeds, path: str, round_steps: int, rounds: int) -> Routine:
    """Write to `path` torch's trace of so many rounds, with an empty queue before each phase.

    Return how many ``phases`` each round had, which marks in the trace bound, and how many new
    ``passes`` of the loader began in each.
    """
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with _session(activities):  # the first session is slow, and may miss kernels
        yield "step"
        synchronise()
    # A hook may stand inside a stretch that torch marked for the first session, the optimizer's:
    # where such a stretch ends in a second session, torch 2.11 writes to memory that it has freed.
    yield "step"
    yield from _aligned(program, round_steps)
    synchronise()
    counts, passes = [], []
    with _session(activities) as seen:
        for number in range(rounds):
            phases, steps, before = 0, 0, program.between["passes"]
            while steps < round_steps:
                _mark(f"{number}/{phases}/begins")
                steps += yield "phase"
                _mark(f"{number}/{phases}/ends")
                synchronise()
                phases += 1
            counts.append(phases)
            passes.append(program.between["passes"] - before)
    seen.export_chrome_trace(path)
    return {"phases": counts, "passes": passes}


def _mark(moment: str) -> None:
    """Mark a moment in a trace, not a stretch: phases end inside stretches of the optimizer's."""
    with record_function(MARK + moment):
        pass


@contextmanager
def _session(activities: "Sequence[Any]") -> "Generator[Any, None, None]":
    """A session of torch's profiler, without its warning that it keeps no earlier session."""
    warnings.filterwarnings("ignore", message=".*Profiler clears events")
    with profile(activities=activities) as session:
        yield session


_FIRST_S = 0.2


def record(program: Feeds, path: str, seconds: float) -> "dict[str, Any]":  # noqa: ARG001
    """Write to `path` torch's trace of all threads for `seconds`; return nothing without CUDA."""
    if not on_gpu():
        return {}
    activities = [ProfilerActivity.CUDA]  # the only one that sees other threads
    with _session(activities):  # the first session is slow, and may miss kernels
        sleep(_FIRST_S)
    with _session(activities) as seen:
        sleep(seconds)
    seen.export_chrome_trace(path)
    return {"path": path}


def check_host(program: Feeds, pieces: int = 40) -> "dict[str, Any]":  # noqa: ARG001
    """Return ``check_s``: `host_check_s` on this program's core, after its GPU work is done."""
    synchronise()
    return {"check_s": host_check_s(pieces)}


VERBS: "dict[str, Verb]" = {
    "run": run,
    "run_steps": run_steps,
    "issue": issue,
    "trace": trace,
    "record": record,
    "check_host": check_host,
}
"""Requests that any measured program answers; it also loads."""
