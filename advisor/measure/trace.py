"""Measures the parts of a step, and traces its work on the GPU; runs in scripts too.

Of the trace that torch's profiler exports (Chrome's trace format), it reads our marks around each
phase of a step (category ``user_annotation``), launches (``cuda_runtime``, ``cuda_driver``) and
what they launched (``kernel``, ``gpu_memcpy``, ``gpu_memset``), matched by a correlation number.
All work in a CUDA graph is matched to the one launch of the graph.
"""

import json
import re
import warnings
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from multiprocessing import active_children
from pathlib import Path
from statistics import median, mode, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, sleep
from typing import Any, NamedTuple

from advisor.errors import AdvisorError, counted
from advisor.hardware.partition import SmLimits, resident_blocks, sm_limits
from advisor.measure.process import cpu_s_of
from advisor.measure.worker import (
    Part,
    Routine,
    TenantState,
    Trainable,
    Verb,
    run,
    synchronise,
    training_verbs,
)
from advisor.workload.profile import HOST_COPY

# Prefix of the name of a phase's mark.
MARK = "advisor:"
LAUNCHES = ("cuda_runtime", "cuda_driver")

Event = Mapping[str, Any]


class Stretch(NamedTuple):
    """A phase, or a call by the host, on the profiler's clock."""

    begin_us: float
    duration_us: float

    @property
    def end_us(self) -> float:
        return self.begin_us + self.duration_us


def _stretch(event: Event) -> Stretch:
    return Stretch(float(event["ts"]), float(event["dur"]))


def _marked_phases(events: Sequence[Event], phases: Sequence[str]) -> list[Stretch]:
    marks = sorted(
        (_stretch(each), str(each["name"]))
        for each in events
        if each.get("cat") == "user_annotation" and str(each["name"]).startswith(MARK)
    )
    names = [name.removeprefix(MARK) for _, name in marks]
    if not names or names != list(phases) * (len(names) // len(phases)):
        raise AdvisorError(
            f"torch's profiler recorded {counted(len(names), 'part')} of steps, and not complete "
            f"steps of {', '.join(phases)}. Try again; if that does not help, try another torch."
        )
    return [stretch for stretch, _ in marks]


def _correlation(event: Event) -> Any:
    return event.get("args", {}).get("correlation")


def _launches(events: Sequence[Event]) -> dict[Any, Stretch]:
    """Launches by correlation; the outer one of a runtime call and the driver call inside it."""
    launches: dict[Any, Stretch] = {}
    for event in sorted(events, key=lambda each: float(each["ts"])):
        if event.get("cat") in LAUNCHES and _correlation(event) is not None:
            launches.setdefault(_correlation(event), _stretch(event))
    return launches


def _is_wait(event: Event) -> bool:
    """A call in which a script's host waits for the GPU, for example to read a loss."""
    return event.get("cat") in LAUNCHES and str(event["name"]).endswith("Synchronize")


# A stream queues about 1,024 launches before the host has to wait, and some calls count for more
# than one: with at most this many, the host never waits.
QUEUE_FREE_LAUNCHES = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """A kernel, copy or memset.

    Attributes:
        kind: A kernel's class by its name, else ``"copy"``, `HOST_COPY` or ``"memset"``.
        phase: Index of the step's part that launched it.
        launch_us: Time of the launch from that part's start, without waits.
        start_us: Start by the profiler's clock.
        blocks: Blocks of the grid; 0 for a copy or memset, as the next two.
        threads: Threads of a block.
        resident_blocks: Blocks that fit on an SM at once.
    """

    kind: str
    phase: int
    launch_us: float
    start_us: float
    duration_us: float
    blocks: int
    threads: int
    resident_blocks: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step, as the profiler recorded it on the host.

    Attributes:
        host_us: Time in which the host issued work, without waits for the launch queue.
        launches: A whole CUDA graph counts as one.
        waits_us: Starts of the host's waits for the GPU, from the phase's start, without waits.
    """

    host_us: float
    launches: int
    waits_us: tuple[float, ...] = ()

    @property
    def timed(self) -> bool:
        """True if the host can be timed from outside, because it never waited for the GPU."""
        return self.launches <= QUEUE_FREE_LAUNCHES and not self.waits_us


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step; `work` in the order in which it ran, `phases` in theirs."""

    work: tuple[GpuWork, ...]
    phases: tuple[Phase, ...]

    @property
    def busy_s(self) -> float:
        """Seconds in which anything ran on the GPU: the length of the union of all intervals."""
        busy_us, until_us = 0.0, float("-inf")
        for each in sorted(self.work, key=lambda each: each.start_us):
            end_us = each.start_us + each.duration_us
            busy_us += max(0.0, end_us - max(each.start_us, until_us))
            until_us = max(until_us, end_us)
        return busy_us * 1e-6


def median_step(steps: Sequence[TracedStep]) -> TracedStep:
    """Return the one of `steps` with the median busy time."""
    return sorted(steps, key=lambda each: each.busy_s)[len(steps) // 2]


_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}


def mark(step: int, phase: int, bound: str) -> None:
    """Mark in a running profile where a phase ``"begins"`` or ``"ends"``.

    A moment and not a stretch: a script's phases end inside its own stretches, the optimizer's.
    """
    from torch.profiler import record_function

    with record_function(f"{MARK}{step}/{phase}/{bound}"):
        pass


def _session(activities: Sequence[Any]) -> Any:
    """A session of torch's profiler, without its warning that it keeps no earlier session."""
    from torch.profiler import profile

    warnings.filterwarnings("ignore", message=".*Profiler clears events")
    return profile(activities=activities)


def export_trace(profile: Any) -> dict[str, Any]:
    """Return the document that a profile of torch exports."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        document: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    return document


def join_marks(document: Mapping[str, Any], steps: Sequence[int]) -> dict[str, Any]:
    """Return `document` with a stretch for each phase of `steps` in place of its two marks."""
    marks: dict[tuple[str, ...], dict[str, Any]] = {}
    others, spans = [], []
    for event in document.get("traceEvents", ()):
        name = str(event.get("name"))
        if not name.startswith(MARK):
            others.append(event)
        elif event.get("cat") == "user_annotation":
            marks[tuple(name.removeprefix(MARK).split("/"))] = event
    for (step, phase, bound), begin in marks.items():
        if bound == "begins" and int(step) in steps:
            from_us = _stretch(begin).end_us
            until_us = float(marks[step, phase, "ends"]["ts"])
            spans.append(begin | {"name": MARK + phase, "ts": from_us, "dur": until_us - from_us})
    return {**document, "traceEvents": others + spans}


def steps_of_trace(
    document: Mapping[str, Any], phases: Sequence[str], limits: SmLimits
) -> tuple[TracedStep, ...]:
    """Return the steps of which each phase, by name and in order, was marked in `document`."""
    try:
        return _steps(document, phases, limits)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AdvisorError(
            f"torch's profiler recorded no trace ({type(error).__name__}: {error}). Try again; if "
            f"that does not help, try another torch."
        ) from None


def _steps(
    document: Mapping[str, Any], phases: Sequence[str], limits: SmLimits
) -> tuple[TracedStep, ...]:
    events = [each for each in document.get("traceEvents", ()) if each.get("ph") == "X"]
    spans = _marked_phases(events, phases)
    begins_us = [span.begin_us for span in spans]
    launches = _launches(events)
    waits = [_stretch(each) for each in events if _is_wait(each)]
    work = defaultdict(list)  # by the phase that launched it, with the pause after that
    for event in events:
        if event.get("cat") in _GPU:
            launch = launches.get(_correlation(event))
            at_us = launch.begin_us if launch else float(event["ts"])
            work[bisect_right(begins_us, at_us) - 1].append((event, launch))
    count = len(phases)
    return tuple(
        _step(spans[first : first + count], [work[first + n] for n in range(count)], waits, limits)
        for first in range(0, len(spans), count)
    )


_Launched = Sequence[tuple[Event, Stretch | None]]


def _step(
    spans: Sequence[Stretch], parts: Sequence[_Launched], waits: Sequence[Stretch], limits: SmLimits
) -> TracedStep:
    work: list[GpuWork] = []
    phases = []
    for number, (span, events) in enumerate(zip(spans, parts, strict=True)):
        launched = [(launch or Stretch(span.begin_us, 0.0), event) for event, launch in events]
        launches = sorted({launch for launch, _ in launched}, key=lambda launch: launch.begin_us)
        waited = [each.begin_us for each in waits if span.begin_us <= each.begin_us < span.end_us]
        host = _HostTime(span, launches, waits)
        for launch, event in launched:
            work.append(_work(event, number, host.until(launch.begin_us), limits))
        phases.append(Phase(host.until(span.end_us), len(launches), tuple(map(host.until, waited))))
    work.sort(key=lambda each: each.start_us)
    return TracedStep(tuple(work), tuple(phases))


class _HostTime:
    """The time of the host in a phase, less that in which it waited for the GPU.

    The launch queue was empty when the phase began. Once it may be full, the time of a launch
    beyond the 90th percentile of the first ones counts as a wait.
    """

    def __init__(
        self, phase: Stretch, launches: Sequence[Stretch], waits: Sequence[Stretch]
    ) -> None:
        self._begin_us, self._waits = phase.begin_us, waits
        self._launched_us = [each.begin_us for each in launches]
        took_us = [each.duration_us for each in launches]
        first, later = took_us[:QUEUE_FREE_LAUNCHES], took_us[QUEUE_FREE_LAUNCHES:]
        usual_us = quantiles(first, n=10)[-1] if later else 0.0
        queued_us = [0.0] * len(first) + [max(0.0, each - usual_us) for each in later]
        self._queued_us = list(accumulate(queued_us, initial=0.0))

    def until(self, at_us: float) -> float:
        """Microseconds from the phase's start to `at_us`, without waits before that."""
        queued_us = self._queued_us[bisect_left(self._launched_us, at_us)]
        waited_us = sum(  # in the phase and before `at_us`: a window may cut both ends of a wait
            max(0.0, min(each.end_us, at_us) - max(each.begin_us, self._begin_us))
            for each in self._waits
        )
        return max(0.0, at_us - self._begin_us - queued_us - waited_us)


_HOST_COPY = re.compile(r"HtoD|DtoH")  # as CUPTI names the directions of copies


def _work(event: Event, phase: int, launch_us: float, limits: SmLimits) -> GpuWork:
    kind, launched = _GPU[event["cat"]], event["args"]
    blocks = threads = resident = 0
    if kind == "copy" and _HOST_COPY.search(str(event["name"])):
        kind = HOST_COPY
    if kind == "kernel":
        kind = kernel_class(str(event["name"]))
        blocks, threads = prod(launched["grid"]), prod(launched["block"])
        registers = int(launched.get("registers per thread", 0))
        shared = int(launched.get("shared memory", 0))
        resident = resident_blocks(limits, threads=threads, registers=registers,
                                   shared_bytes=shared)  # fmt: skip
    return GpuWork(
        kind=kind, phase=phase, launch_us=launch_us, start_us=float(event["ts"]),
        duration_us=float(event["dur"]), blocks=blocks, threads=threads, resident_blocks=resident,
        stream=int(launched.get("stream", 0)),
    )  # fmt: skip


# The first match decides. Inductor names its kernels after how they are made and all that was
# fused: the former decides. Layout comes before conv, whose helpers say "convert"; conv before
# gemm, since convolutions are often implicit matrix products; loss and norm before reduce.
_RULES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("elementwise", r"^triton_(poi|for)_"),
        ("reduce", r"^triton_(red|per|mix|split_scan)_"),
        ("gemm", r"^triton_(tem|mm|bmm)"),
        ("optimizer", r"multi_tensor_apply|fused_?(adam|sgd|lamb)|amp_(update_scale|non_finite)"),
        ("recurrent", r"rnn|lstm|gru_"),
        ("attention", r"flash_?(fwd|bwd|fprop|bprop|attention)|fmha|attention|sdpa"),
        ("softmax", r"softmax"),
        ("loss", r"nll_loss|cross_entropy"),
        ("norm", r"batch_?norm|layer_?norm|group_?norm|rms_?norm|\bbn_|rowwisemoments|gammabeta"
                 r"|fusedparams|internalgradients"),
        ("pooling", r"pool"),
        ("sort", r"sort|thrust.*unique|adjacent_difference"),
        ("embedding", r"embedding|index(?!ed)|gather|scatter|krn_partial|grad_weight_bags"),
        ("layout", r"nchwtonhwc|nhwctonchw|converttensor|transpose|permute|tensor_?reorder"),
        ("conv", r"conv(?!ert)|[fdw]grad|fprop|bprop|winograd|\bfft|im2col|col2im|implicit"),
        ("gemm", r"gemm|gemv|cutlass|cublas|splitk|nvjet|xmma|dot_kernel|\bmma"),
        ("reduce", r"reduce|scan|\bsum_"),
        ("elementwise", r"elementwise|catarray|dropout|fill|copy|distribution|random|triu_tril"
                        r"|arange|unrolled|pointwise|dot_product|axpy|scal_"),
    )
)  # fmt: skip

# Names that show what the kernel does only in their template arguments.
_WRAPPERS = re.compile(r"cutlass|xmma|cudnn::.*kernel\d?<|cublas|thrust|cub::|device_kernel", re.I)


def kernel_class(name: str) -> str:
    """Classify the kernel called `name`, demangled; ``"other"`` if no rule matches."""
    words = name if _WRAPPERS.search(name) else name.partition("<")[0]
    return next((each for each, pattern in _RULES if pattern.search(words)), "other")


# So many steps are traced.
_STEPS = 3
_FIRST_S, _SPARE_S = 0.2, 0.05

# If each window is one step, their busy times agree within this ratio.
_MOST_RATIO = 1.25


def record(state: TenantState, step_s: float, compute_capability: str) -> dict[str, Any]:
    """Record the GPU's work for this process for as long as a step takes, from any moment of it.

    Returns:
        ``step``: the fields of a `TracedStep` of one phase; empty if this process has not touched
        CUDA.
    """
    if state.device == "cpu":
        return {}
    from torch.profiler import ProfilerActivity

    limits = sm_limits(compute_capability)
    activities = [ProfilerActivity.CUDA]  # the only one that sees other threads
    with _session(activities):  # the first session is slow, and may miss kernels
        sleep(_FIRST_S)
    with _session(activities) as seen:
        sleep(_STEPS * step_s + _SPARE_S)
    document = cut_into_steps(export_trace(seen), step_s)
    return {"step": asdict(repeated_step(steps_of_trace(document, ("0",), limits)))}


def cut_into_steps(document: Mapping[str, Any], step_s: float) -> dict[str, Any]:
    """Mark in `document` each step of `step_s` seconds from its first launch on."""
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
    if not _is_wait(event) or len(edges) == 2:
        yield event
        return
    for at, until in pairwise(edges):
        yield {**event, "ts": at, "dur": until - at}


def repeated_step(steps: Sequence[TracedStep]) -> TracedStep:
    """Return the step with the median busy time, if these times differ so little that it can."""
    busy_s = [each.busy_s for each in steps]
    if min(busy_s) <= 0 or max(busy_s) > _MOST_RATIO * min(busy_s):
        raise AdvisorError(
            f"a step of it is no part that repeats on the GPU: it was busy for "
            f"{', '.join(f'{each * 1e3:.2f}' for each in busy_s)} ms in steps in a row. Give "
            f"the examples of a whole round by --batch"
        )
    return median_step(tuple(steps))


_FEWEST_TIMED, _MOST_TIMED = 3, 40


def profiling_verbs() -> Mapping[str, Verb]:
    """The training verbs, and `train`, `issue`, `trace` and `record`."""
    own: dict[str, Verb] = {"train": train, "issue": issue, "trace": trace, "record": record}
    return {**training_verbs(), **own}


def train(state: TenantState, start_at: float, stop_at: float) -> Routine:
    """Train as `run` does, and measure the host's work.

    Returns:
        Also ``cpu_s``, CPU seconds of this process and its loader's workers; of the workers alone
        ``loader_cpu_s``, and ``read_mib``, None if the system does not report it; and
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
        "cpu_s": process_time() + loader_cpu_s, "loader_cpu_s": loader_cpu_s,
        "read_mib": read_mib, "fetched_s": _loaded(state).fetched_s,
    }  # fmt: skip


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
    document, phases = yield from record_steps(partial(synchronise, state))
    steps = steps_of_trace(document, phases, sm_limits(compute_capability))
    return {"step": asdict(median_step(steps))}


def record_steps(
    wait: Callable[[], None],
) -> Generator[Part, bool, tuple[dict[str, Any], tuple[str, ...]]]:
    """Profile some steps, with an empty launch queue before each phase.

    Returns:
        The profile, and the names of a step's phases, marked in it.
    """
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with _session(activities):  # the first session is slow, and may miss kernels
        yield "step"
        wait()
    # A hook may stand inside a stretch that torch marked for the first session, the optimizer's:
    # where such a stretch ends in a second session, torch 2.11 writes to memory that it has freed.
    yield "step"
    with _session(activities) as seen:
        counts = []
        for number in range(_STEPS):
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
