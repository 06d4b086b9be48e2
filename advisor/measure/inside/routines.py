"""Requests that a program answers between its steps; a routine trains on as far as it needs.

An answer is ``("done", value)``, ``("ended", outcome, detail)`` if the program cannot go on, or
``("refused", exit code, message)`` for an error that the user can correct.
"""

import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from statistics import median, mode
from time import perf_counter, sleep, time
from traceback import print_exc
from typing import Any, Literal

from .clocks import allocations, host_check_s, memory_mib, on_gpu, step_clock, synchronise, used
from .feeds import Feeds

Part = Literal["step", "phase"]

Routine = Generator[Part, bool, dict[str, Any]]
"""Yields how far to train, receives whether a step has ended, and returns plain values."""

Verb = Callable[..., "dict[str, Any] | Routine"]
"""Takes a `Feeds` and the arguments of a request; returns plain values, or a routine that does."""


def versions() -> dict[str, Any]:
    """Return the versions of torch, CUDA and timm."""
    import torch

    timm = installed_version("timm")
    return {"torch": str(torch.__version__), "cuda": torch.version.cuda, "timm": timm}


def installed_version(package: str) -> "str | None":
    """Return the version of `package` without importing it; None if it is not installed here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def attempt(request: "Callable[[], dict[str, Any]]") -> "tuple[Any, ...]":
    """Call `request`; return the answer, however that ends."""
    try:
        return ("done", request())
    except Exception as error:  # any error ends this program and not the measurement
        if (code := getattr(error, "exit_code", None)) is not None:
            return ("refused", code, str(error))
        import torch

        line = (str(error).strip().splitlines() or [""])[0]
        detail = f"{type(error).__name__}: {line}"[:300]
        lacking = isinstance(error, RuntimeError) and lacks_memory(str(error))
        if lacking or isinstance(error, torch.cuda.OutOfMemoryError):
            return ("ended", "out-of-memory", detail)
        print_exc()  # the record holds one line only
        return ("ended", "died", detail)


# Messages of CUDA's libraries when the device has no memory left and torch does not raise its own.
_NO_MEMORY = (
    "out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY"
)  # fmt: skip


def lacks_memory(printed: str) -> bool:
    """Return whether an error message means that the device has no memory left."""
    return any(sign in printed for sign in _NO_MEMORY)


class Over(Exception):
    """The program has come to its end by itself; raised in a routine that trains."""


def run(
    program: Feeds, start_at: float, stop_at: float, checks_at: Sequence[float] = (),
    pieces: int = 0, *, partly: bool = False, counting: bool = False,
) -> Routine:  # fmt: skip
    """Train without waiting for the device, between two moments of the wall clock.

    No step begins after `stop_at`; at least one is taken, or if `partly` none where the program
    ends before. After the first step that ends past each of `checks_at`, the core is checked with
    so many `pieces`.

    Returns:
        ``completed_at``: when each step ended on the device, seconds of the wall clock;
        ``checks``: ``[steps before it, seconds of a piece, seconds that it took]`` of each check;
        ``between``: the step and what `feeds.Between` names, for each step during which the program
        did more than train; ``memory``; what `used` counts, and ``fetched_s``;
        ``over``: whether the program ended before; ``work``: allocations of GPU memory until the
        end of each step, if `counting` and if there are any.
    """
    due = deque(checks_at)
    work: list[int] = []

    def check(number: int) -> "list[float] | None":
        if counting and (asks := allocations()) is not None:
            work.append(asks)
        if not due or time() < due[0]:
            return None
        while due and time() >= due[0]:
            due.popleft()
        began = perf_counter()
        check_s = host_check_s(pieces)
        return [number, check_s, perf_counter() - began]

    is_last = lambda _: time() >= stop_at  # noqa: E731
    answer = yield from train(program, start_at, is_last, check, partly=partly)
    return {**answer, "work": work}


def run_steps(program: Feeds, start_at: float, steps: int) -> Routine:
    """Train so many steps without waiting for the device; the answer is that of `run`."""
    return (yield from train(program, start_at, lambda number: number >= steps))


def train(
    program: Feeds, start_at: float, is_last: "Callable[[int], bool]",
    check: "Callable[[int], list[float] | None]" = lambda _: None, *, partly: bool = False,
) -> Routine:  # fmt: skip
    """Wait for `start_at`, then train up to the step whose number `is_last`; see `run`."""
    clock = step_clock()
    before, fetched_s, seen = used(), program.fetched_s, program.between
    checks: list[list[float]] = []
    between: list[list[float]] = []
    over = False
    sleep(max(0.0, start_at - time()))
    try:
        for number in count(1):
            yield "step"
            clock.mark()
            if program.between is not seen:
                gained = (now - then for now, then in zip(program.between, seen, strict=True))
                between.append([number - 1, *gained])
                seen = program.between
            if (checked := check(number)) is not None:
                checks.append(checked)
            if is_last(number):
                break
    except Over:
        if not partly:
            raise
        over = True
    completed_at = clock.marked_at()
    after = used()
    gained_use = {
        name: None if use is None or then is None else use - then
        for (name, use), then in zip(after.items(), before.values(), strict=True)
    }
    return {
        "completed_at": completed_at, "checks": checks, "between": between,
        "memory": memory_mib(), "fetched_s": program.fetched_s - fetched_s, **gained_use,
        "over": over,
    }  # fmt: skip


_FEWEST_TIMED, _MOST_TIMED = 3, 40


def issue(program: Feeds, seconds: float, round_steps: int = 1) -> Routine:
    """Time the host in each phase of a round of steps, with an empty launch queue.

    Rounds during which a new pass of the loader began do not count.

    Returns:
        ``phases_s``, shape (phases,), and ``loader_s``, seconds between batches of the loader
        alone, None without a loader.
    """
    rows: list[list[tuple[float, float]]] = []  # seconds of each phase, and of its batches
    fewest = _FEWEST_TIMED if round_steps == 1 else 1
    yield from _aligned(program, round_steps)
    until, late = perf_counter() + seconds, perf_counter() + 10 * seconds
    synchronise()
    while perf_counter() < late and (
        len(rows) < fewest or (perf_counter() < until and len(rows) < _MOST_TIMED)
    ):
        passes, row, steps = program.between.passes, [], 0
        while steps < round_steps:
            fetched_s, began = program.fetched_s, perf_counter()
            steps += yield "phase"
            row.append((perf_counter() - began, program.fetched_s - fetched_s))
            synchronise()
        if program.between.passes == passes or not rows:
            rows.append(row)
    # A script may do more in some rounds: those with the most common number of phases count.
    usual = mode(map(len, rows))
    phases = zip(*(row for row in rows if len(row) == usual), strict=True)
    if program.loader_workers:  # a fetch that waits for the loader is not the host's own work
        phases_s = [
            median(took_s - fetched_s for took_s, fetched_s in phase)
            + min(fetched_s for _, fetched_s in phase)
            for phase in phases
        ]
    else:
        phases_s = [median(took_s for took_s, _ in phase) for phase in phases]
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


MARK = "advisor:"
"""Prefix of the name of a phase's marks in a trace."""


def trace(program: Feeds, path: str, round_steps: int, rounds: int) -> Routine:
    """Write to `path` torch's trace of so many rounds, with an empty queue before each phase.

    Returns:
        ``phases``: how many phases each round had, marked in the trace; ``passes``: how many new
        passes of the loader began in each. Both have shape (rounds,).
    """
    import torch
    from torch.profiler import ProfilerActivity

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
            phases, steps, before = 0, 0, program.between.passes
            while steps < round_steps:
                _mark(number, phases, "begins")
                steps += yield "phase"
                _mark(number, phases, "ends")
                synchronise()
                phases += 1
            counts.append(phases)
            passes.append(program.between.passes - before)
    seen.export_chrome_trace(path)
    return {"phases": counts, "passes": passes}


def _mark(number: int, phase: int, bound: str) -> None:
    """Mark in a running profile where a phase ``"begins"`` or ``"ends"``.

    A moment and not a stretch: a script's phases end inside its own stretches, the optimizer's.
    """
    from torch.profiler import record_function

    with record_function(f"{MARK}{number}/{phase}/{bound}"):
        pass


@contextmanager
def _session(activities: "Sequence[Any]") -> "Generator[Any, None, None]":
    """A session of torch's profiler, without its warning that it keeps no earlier session."""
    from torch.profiler import profile

    warnings.filterwarnings("ignore", message=".*Profiler clears events")
    with profile(activities=activities) as session:
        yield session


_FIRST_S = 0.2


def record(program: Feeds, path: str, seconds: float) -> "dict[str, Any]":  # noqa: ARG001
    """Write to `path` torch's trace of all threads for `seconds`, from any moment on.

    Returns:
        ``path``; empty if this process has not touched CUDA.
    """
    if not on_gpu():
        return {}
    from torch.profiler import ProfilerActivity

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
    "run": run, "run_steps": run_steps, "issue": issue, "trace": trace, "record": record,
    "check_host": check_host,
}  # fmt: skip
"""Requests that any measured program answers; it also loads."""
