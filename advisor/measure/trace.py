"""Traces a step by torch's profiler, and reads its kernels in the order in which they ran.

Launches and what they launched are matched by their correlation; a CUDA graph is one launch.
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, prod
from pathlib import Path
from statistics import mode, quantiles
from typing import Any, NamedTuple

from advisor.errors import AdvisorError
from advisor.hardware.gpus import Capability, gpu
from advisor.hardware.partition import resident_blocks, sm_limits
from advisor.measure.device import Device
from advisor.measure.inside import MARK
from advisor.measure.pace import SoloPace, Stopwatch, mean_step_s
from advisor.measure.process import say
from advisor.measure.tenant import Ended, Tenant, living
from advisor.workload.profile import HOST_COPY, QUEUED_COPY, KernelTrace

_LAUNCHES = ("cuda_runtime", "cuda_driver")
_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}

Span = tuple[float, float]
"""Begin and end of a phase, microseconds on the profiler's clock."""


class Event(NamedTuple):
    """A call by the host, work on the GPU, or a mark, on the profiler's clock."""

    begin_us: float
    duration_us: float
    category: str | None
    name: str
    arguments: Mapping[str, Any]

    @property
    def end_us(self) -> float:
        return self.begin_us + self.duration_us


# A stream queues about 1,024 launches before the host has to wait, and some calls count for more
# than one: with at most this many, the host never waits.
QUEUE_FREE_LAUNCHES = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """A kernel, copy or memset.

    Attributes:
        kind: A kernel's class by its name, else ``"copy"``, `HOST_COPY`, `QUEUED_COPY` or
            ``"memset"``.
        launch_us: Time of the launch from the start of the phase with index `phase`, without waits.
        blocks: 0 for a copy or memset, as `threads` of a block and `resident_blocks` of an SM.
    """

    kind: str
    phase: int
    launch_us: float
    start_us: float
    duration_us: float
    blocks: int
    threads: int
    resident_blocks: int
    stream: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step on the host, which issued work for `host_us` and waited for `waited_us`.

    A CUDA graph counts as one of `launches`. `waits_us` are the starts of waits for the GPU from
    the phase's start, without earlier waits.
    """

    host_us: float
    launches: int
    waits_us: tuple[float, ...] = ()
    waited_us: float = 0.0

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
        busy_us, until_us = 0.0, -inf
        for each in self.work:
            end_us = each.start_us + each.duration_us
            busy_us += max(0.0, end_us - max(each.start_us, until_us))
            until_us = max(until_us, end_us)
        return busy_us * 1e-6


@contextmanager
def events_in(path: Path) -> Iterator[list[Event]]:
    """Read the events in the trace at `path`, and remove it; AdvisorError if it is damaged."""
    try:
        document = json.loads(path.read_bytes().decode(errors="replace"))
        yield [
            Event(
                float(each["ts"]),
                float(each["dur"]),
                each.get("cat"),
                str(each["name"]),
                each.get("args", {}),
            )
            for each in document["traceEvents"]
            if each.get("ph") == "X"
        ]
    except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AdvisorError(
            f"torch's profiler recorded no trace ({type(error).__name__}: {error}). Try again, or "
            "try another version of torch."
        ) from None
    finally:
        path.unlink(missing_ok=True)


def traced_round(
    events: Sequence[Event], phases: Sequence[int], passes: Sequence[int], limits: Capability
) -> TracedStep:
    """Return the round with the median busy time.

    Rounds of another number of phases than most do not count, nor those in which a new pass of the
    loader began, as long as others are left. `phases` and `passes` are the numbers of both in each
    round, from `advisor.measure.inside.routines.trace`, which marks both ends of each phase.
    """
    calm = [number for number, new_pass in enumerate(passes) if not new_pass] or range(len(phases))
    usual = mode(phases[number] for number in calm)
    marks = {each.name: each for each in events if each.category == "user_annotation"}
    rounds: list[list[Span]] = []
    for number in calm:
        if phases[number] == usual:
            names = [f"{MARK}{number}/{phase}" for phase in range(usual)]
            rounds.append(
                [(marks[f"{each}/begins"].end_us, marks[f"{each}/ends"].begin_us) for each in names]
            )
    return median_step(traced_steps(events, rounds, limits))


def median_step(steps: Sequence[TracedStep]) -> TracedStep:
    """Return the one of `steps` with the median busy time."""
    return sorted(steps, key=lambda each: each.busy_s)[len(steps) // 2]


# So many steps of a program whose steps are not found are recorded. If each window is one step,
# their busy times agree within this ratio.
RECORDED_STEPS, _MOST_RATIO = 3, 1.25


def recorded_step(events: Sequence[Event], step_s: float, limits: Capability) -> TracedStep:
    """Return the median of the steps of `step_s` seconds, the first from the first launch on."""
    launched_us = [each.begin_us for each in events if each.category in _LAUNCHES]
    if not launched_us:
        raise AdvisorError("torch's profiler saw no launch. May it use CUPTI here?")
    bounds_us = [min(launched_us) + at * step_s * 1e6 for at in range(RECORDED_STEPS + 1)]
    inside = [each for each in events if each.begin_us < bounds_us[-1]]
    steps = traced_steps(inside, [[span] for span in pairwise(bounds_us)], limits)
    busy_s = [each.busy_s for each in steps]
    if min(busy_s) <= 0 or max(busy_s) > _MOST_RATIO * min(busy_s):
        raise AdvisorError(
            "its steps do not repeat on the GPU: it was busy for "
            f"{', '.join(f'{each * 1000.0:.2f}' for each in busy_s)} ms in steps in a row. Pass "
            "the examples of a whole round by --batch-size"
        )
    return median_step(steps)


def traced_steps(
    events: Sequence[Event], steps: Sequence[Sequence[Span]], limits: Capability
) -> list[TracedStep]:
    """Return each of `steps`, given by its phases, with the work that these launched."""
    launches: dict[Any, _Launch] = {}
    waits, work = [], defaultdict(list)  # work by the begin of the phase that launched it
    begins_us = [-inf, *(begin_us for spans in steps for begin_us, _ in spans)]
    for event in sorted(events, key=lambda each: each.begin_us):  # an outer call comes first
        if event.category in _LAUNCHES:
            launches.setdefault(event.arguments.get("correlation"), event[:2])
            if event.name.endswith("Synchronize"):  # for example to read a loss
                waits.append(event)
    for event in events:
        if event.category in _GPU:
            launch = launches.get(event.arguments.get("correlation"))
            at = bisect_right(begins_us, launch[0] if launch else event.begin_us) - 1
            work[begins_us[at]].append((event, launch or (begins_us[at], 0.0)))
    traced = []
    for spans in steps:
        parts = [_phase(at, span, work[span[0]], waits, limits) for at, span in enumerate(spans)]
        works = sorted((each for its, _ in parts for each in its), key=lambda it: it.start_us)
        traced.append(TracedStep(tuple(works), tuple(phase for _, phase in parts)))
    return traced


_Launch = tuple[float, float]  # begin and duration, microseconds


def _phase(
    number: int,
    span: Span,
    launched: Sequence[tuple[Event, _Launch]],
    waits: Sequence[Event],
    limits: Capability,
) -> tuple[list[GpuWork], Phase]:
    """Return the work of the phase with this number in a step, and how its host issued that."""
    begin_us, end_us = span
    launches = sorted({launch for _, launch in launched})
    # A window may cut both ends of a wait.
    waited = [each for each in waits if each.end_us > begin_us and each.begin_us < end_us]
    host_us = _host_time(begin_us, launches, waited)
    work = [_work(event, number, host_us(launch[0]), limits) for event, launch in launched]
    whole_us = host_us(end_us)
    waits_us = tuple(host_us(each.begin_us) for each in waited)
    return work, Phase(whole_us, len(launches), waits_us, end_us - begin_us - whole_us)


def _host_time(
    begin_us: float, launches: Sequence[_Launch], waits: Sequence[Event]
) -> Callable[[float], float]:
    """Return a function of the host's time in a phase until a moment, without waits for the GPU.

    The launch queue was empty when the phase began. Once it may be full, the time of a launch
    beyond the 90th percentile of the first ones counts as a wait.
    """
    launched_us = [launched_us for launched_us, _ in launches]
    took_us = [took_us for _, took_us in launches]
    first, later = took_us[:QUEUE_FREE_LAUNCHES], took_us[QUEUE_FREE_LAUNCHES:]
    usual_us = quantiles(first, n=10)[-1] if later else 0.0
    waits_us = [0.0] * len(first) + [max(0.0, each - usual_us) for each in later]
    queued_us = list(accumulate(waits_us, initial=0.0))

    def until(at_us: float) -> float:
        waited_us = sum(  # in the phase and before `at_us`
            max(0.0, min(each.end_us, at_us) - max(each.begin_us, begin_us)) for each in waits
        )
        queue_us = queued_us[bisect_left(launched_us, at_us)]
        return max(0.0, at_us - begin_us - queue_us - waited_us)

    return until


# As CUPTI names the directions of copies, and their kinds of memory.
_HOST_COPY, _TO_GPU = re.compile(r"HtoD|DtoH"), re.compile(r"HtoD \((Pageable|Pinned)?")
# Copies to the GPU of at most so many bytes are written into the kernels' queue. On an H100 that
# another process kept busy, copies of 1, 16 and 60 KiB from paged memory took a turn of 2.35 ms,
# and of 70 KiB none; from pinned memory those of 1 and 16 KiB did, and of 60 KiB none. Copies to
# the host never did.
_QUEUED_BYTES = {"Pageable": 64 * 2**10, "Pinned": 32 * 2**10}


def _work(event: Event, phase: int, launch_us: float, limits: Capability) -> GpuWork:
    kind, launched = _GPU[event.category or ""], event.arguments
    blocks = threads = resident = 0
    if kind == "copy" and _HOST_COPY.search(event.name):
        to_gpu = _TO_GPU.search(event.name)
        most = _QUEUED_BYTES.get(to_gpu[1] or "", 0) if to_gpu else 0
        kind = QUEUED_COPY if 0 < int(launched.get("bytes", 0)) <= most else HOST_COPY
    if kind == "kernel":
        kind = kernel_class(event.name)
        blocks, threads = prod(launched["grid"]), prod(launched["block"])
        registers = int(launched.get("registers per thread", 0))
        shared = int(launched.get("shared memory", 0))
        resident = resident_blocks(
            limits, threads=threads, registers=registers, shared_bytes=shared
        )
    return GpuWork(
        kind=kind,
        phase=phase,
        launch_us=launch_us,
        start_us=event.begin_us,
        duration_us=event.duration_us,
        blocks=blocks,
        threads=threads,
        resident_blocks=resident,
        stream=int(launched.get("stream", 0)),
    )


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
        (
            "norm",
            r"batch_?norm|layer_?norm|group_?norm|rms_?norm|\bbn_|rowwisemoments|gammabeta"
            r"|fusedparams|internalgradients",
        ),
        ("pooling", r"pool"),
        ("sort", r"sort|thrust.*unique|adjacent_difference"),
        ("embedding", r"embedding|index(?!ed)|gather|scatter|krn_partial|grad_weight_bags"),
        ("layout", r"nchwtonhwc|nhwctonchw|converttensor|transpose|permute|tensor_?reorder"),
        ("conv", r"conv(?!ert)|[fdw]grad|fprop|bprop|winograd|\bfft|im2col|col2im|implicit"),
        ("gemm", r"gemm|gemv|cutlass|cublas|splitk|nvjet|xmma|dot_kernel|\bmma"),
        ("reduce", r"reduce|scan|\bsum_"),
        (
            "elementwise",
            r"elementwise|catarray|dropout|fill|copy|distribution|random|triu_tril"
            r"|arange|unrolled|pointwise|dot_product|axpy|scal_",
        ),
    )
)

# Names that show what the kernel does only in their template arguments.
_WRAPPERS = re.compile(r"cutlass|xmma|cudnn::.*kernel\d?<|cublas|thrust|cub::|device_kernel", re.I)


def kernel_class(name: str) -> str:
    """Classify the kernel called `name`, demangled; ``"other"`` if no rule matches."""
    words = name if _WRAPPERS.search(name) else name.partition("<")[0]
    return next((each for each, pattern in _RULES if pattern.search(words)), "other")


def kernel_trace(step: TracedStep, phases_s: tuple[float, ...], steps: int) -> KernelTrace:
    """Return a round of `steps` in compact form, at the pace of an unprofiled host.

    `phases_s` are the seconds that such a host takes for each phase, shape (phases,).
    """
    if not step.work:
        raise AdvisorError("torch's profiler saw no kernel. May it use CUPTI here?")
    begins_us = [1e6 * seconds for seconds in accumulate(phases_s, initial=0.0)]
    paces = [
        1e6 * seconds / phase.host_us if phase.host_us else 0.0
        for seconds, phase in zip(phases_s, step.phases, strict=True)
    ]

    def at_pace(at: int, us: float) -> float:
        """Microseconds from the step's start, unprofiled, for those in phase `at`, profiled."""
        return begins_us[at] + min(us * paces[at], 1e6 * phases_s[at])

    launched = [at_pace(work.phase, work.launch_us) for work in step.work]
    waits = [at_pace(at, us) for at, phase in enumerate(step.phases) for us in phase.waits_us]
    classes = tuple(dict.fromkeys(work.kind for work in step.work))
    index = {kind: number for number, kind in enumerate(classes)}
    streams = list(dict.fromkeys(work.stream for work in step.work))  # in order of first use
    stream_of = tuple(streams.index(work.stream) for work in step.work)
    return KernelTrace(
        classes=classes,
        class_of=tuple(index[work.kind] for work in step.work),
        # Streams may overtake each other; work that ran later counts as launched no earlier.
        launch_us=tuple(round(us, 2) for us in accumulate(launched, max)),
        duration_us=tuple(round(work.duration_us, 2) for work in step.work),
        blocks=tuple(work.blocks for work in step.work),
        threads=tuple(work.threads for work in step.work),
        resident_blocks=tuple(work.resident_blocks for work in step.work),
        stream_of=None if len(streams) == 1 else stream_of,
        waits_us=tuple(round(us, 2) for us in sorted(waits)),
        steps=steps,
    )


def phases_without_waits(
    measured_s: Sequence[float], profiled: Sequence[Phase]
) -> tuple[float, ...]:
    """Compute seconds of an unprofiled host for each phase, from `measured_s` with waits.

    Each phase was timed with an empty launch queue, so a phase with few launches was timed
    correctly. One with many launches may have waited for room in the queue: it counts its profiled
    time without waits, at the pace of the other phases since the profiler slows the host, if that
    is less. Where the host waited for results, as to read a loss, a second value is what was
    measured less the profiled waits; the less of the phase was waited, the more it counts.
    """
    if len(measured_s) != len(profiled):
        raise AdvisorError(
            f"its steps differ: {len(measured_s)} parts were timed, and {len(profiled)} traced"
        )
    pairs = list(zip(measured_s, profiled, strict=True))
    free = [(seconds, phase) for seconds, phase in pairs if phase.timed]
    profiled_s = sum(phase.host_us for _, phase in free) * 1e-6
    pace = min(1.0, sum(seconds for seconds, _ in free) / profiled_s) if profiled_s else 1.0

    def host_s(seconds: float, phase: Phase) -> float:
        at_pace_s = min(seconds, phase.host_us * 1e-6 * pace)
        if not phase.waits_us:
            return at_pace_s
        waited = min(1.0, phase.waited_us * 1e-6 / seconds)
        without_s = min(phase.host_us * 1e-6, seconds * (1 - waited))
        return without_s * (1 - waited) + min(without_s, at_pace_s) * waited

    return tuple(seconds if phase.timed else host_s(seconds, phase) for seconds, phase in pairs)


# For the host's path; and rounds that are traced, fewer of those that take long.
_ISSUE_S, _TRACED, _TRACED_IF_LONG, _LONG_S = 1.0, 3, 1, 0.5

# A trace of all kernels of longer steps would fill megabytes.
_LONGEST_S = 4.0

# Kernels take longer in the profiler, short ones most; beyond this ratio they are traced again.
_TRACE_MAY_EXCEED = 1.05

# A program whose steps are not found is recorded for so much longer than its steps.
_SPARE_S = 0.05


@dataclass(frozen=True, slots=True)
class StepParts:
    """Host path and GPU path of a step, and the kernel trace of a round; all None on a CPU."""

    host_s: float | None = None
    gpu_s: float | None = None
    trace: KernelTrace | None = None
    main_s: float | None = None
    loader_s: float | None = None


def step_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    """Measure the host path of a step of `tenant`, and trace its kernels."""
    if not tenant.setup.script.by_steps:
        return _recorded_parts(tenant, pace, device, watch)
    round_s, steps = sum(pace.rounds.steps_s), pace.rounds.steps
    if round_s > _LONGEST_S:
        say(f"  a round of {steps} steps takes {round_s:.1f} s, so one step of it is traced")
        round_s, steps = round_s / steps, 1
    issued = tenant.ask("issue", seconds=_ISSUE_S, round_steps=steps)
    watch.lap("host_path_s")
    if isinstance(issued, Ended) and tenant.running.exit_code == 0:
        say("  the job ended before its host path and its kernels were measured")
        return StepParts()
    issued = living(issued)
    phases_s, gpu_s, trace = tuple(issued["phases_s"]), None, None
    count = _TRACED if round_s < _LONG_S else _TRACED_IF_LONG
    try:
        traced = _traced(tenant, device, steps, count)
        if traced.busy_s > _TRACE_MAY_EXCEED * steps * mean_step_s(pace.windows):
            say("  its kernels add up to more than the step without a profiler; tracing it again")
            traced = min(traced, _traced(tenant, device, steps, count), key=lambda it: it.busy_s)
        phases_s = phases_without_waits(issued["phases_s"], traced.phases)
        gpu_s, trace = traced.busy_s / steps, kernel_trace(traced, phases_s, steps)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
    finally:
        watch.lap("trace_s")
    main_s, loader_s = sum(phases_s) / steps, issued["loader_s"]
    # The host path is at least that of the loader it waits for.
    return StepParts(max(main_s, loader_s or 0.0), gpu_s, trace, main_s, loader_s)


def _traced(tenant: Tenant, device: Device, steps: int, count: int) -> TracedStep:
    path = tenant.folder / "trace.json"
    answer = living(tenant.ask("trace", path=str(path), round_steps=steps, rounds=count))
    limits = sm_limits(gpu(device.key).compute_capability)
    with events_in(path) as events:
        return traced_round(events, answer["phases"], answer["passes"], limits)


def _recorded_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    """Return the parts of a program whose steps are not found: by a window as long as one."""
    step_s = mean_step_s(pace.windows)
    try:
        step = _recorded(tenant, device, step_s)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        counters = pace.activity.counters  # of the whole GPU, as its driver counted
        return StepParts(gpu_s=None if counters is None else counters.gract * step_s)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits((step_s,), step.phases)
    return StepParts(sum(phases_s), step.busy_s, kernel_trace(step, phases_s, 1))


def _recorded(tenant: Tenant, device: Device, step_s: float) -> TracedStep:
    if step_s > _LONGEST_S / 2:
        raise AdvisorError(f"a step of {step_s:.1f} s is too long to record")
    path, seconds = tenant.folder / "trace.json", RECORDED_STEPS * step_s + _SPARE_S
    if not living(tenant.ask("record", path=str(path), seconds=seconds)):
        raise AdvisorError("no process of the job uses the GPU by torch")
    with events_in(path) as events:
        return recorded_step(events, step_s, sm_limits(gpu(device.key).compute_capability))
