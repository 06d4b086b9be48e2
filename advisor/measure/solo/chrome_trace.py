"""Reads the trace that torch's profiler exports (Chrome's trace format), and classifies kernels.

These events are used: our marks around each phase of a step (category ``user_annotation``),
launches (``cuda_runtime``, ``cuda_driver``) and what they launched (``kernel``, ``gpu_memcpy``,
``gpu_memset``), matched by a correlation number. All work in a CUDA graph is matched to the one
launch of the graph.
"""

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from advisor.errors import AdvisorError
from advisor.measure.solo.trace_events import (
    MARK,
    Event,
    Launch,
    Span,
    correlation_of,
    launches_of,
    marked_spans,
    place_of,
    waits_of,
)
from advisor.measure.solo.traced_step import (
    QUEUE_FREE_LAUNCHES,
    GpuWork,
    Phase,
    SmLimits,
    TracedStep,
    resident_blocks,
)
from advisor.workload.kernel_trace import HOST_COPY

_GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}


def marked(step: int, phase: int, bound: str) -> None:
    """Mark in a running profile of torch where a phase ``"begins"`` or ``"ends"``.

    A moment and not a stretch: a script's phases end inside its own stretches, the optimizer's.
    """
    from torch.profiler import record_function

    with record_function(f"{MARK}{step}/{phase}/{bound}"):
        pass


def exported(profile: Any) -> dict[str, Any]:
    """What a profile of torch recorded, as the document that it exports."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        document: dict[str, Any] = json.loads(path.read_text(errors="replace"))
    return document


def joined(document: Mapping[str, Any], steps: Sequence[int]) -> dict[str, Any]:
    """`document` with a stretch for each phase of `steps` in place of the moments marked."""
    found: dict[str, dict[str, Any]] = {}
    others = []
    for event in document.get("traceEvents", ()):
        name = str(event.get("name"))
        if not name.startswith(MARK):
            others.append(event)
        elif event.get("cat") == "user_annotation":
            found[name.removeprefix(MARK)] = event
    spans = []
    for name, begin in found.items():
        step, _, rest = name.partition("/")
        phase, _, bound = rest.partition("/")
        if bound == "begins" and int(step) in steps:
            from_us = float(begin["ts"]) + float(begin["dur"])
            until_us = float(found[f"{step}/{phase}/ends"]["ts"])
            spans.append(begin | {"name": MARK + phase, "ts": from_us, "dur": until_us - from_us})
    return {**document, "traceEvents": others + spans}


def steps_of_trace(
    document: Mapping[str, Any], phases: Sequence[str], limits: SmLimits
) -> tuple[TracedStep, ...]:
    """The steps that were marked while `document` was recorded.

    Args:
        document: As torch exports it.
        phases: The names of a step's phases in order; each was marked as `MARK` + name.
        limits: Of an SM of the GPU.

    Raises:
        AdvisorError: The marks are not those of complete steps, or it is no trace.
    """
    try:
        return _steps(document, phases, limits)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise AdvisorError(
            f"what torch's profiler recorded is no trace ({type(error).__name__}: {error}). Try "
            f"again; if that does not help, try another torch."
        ) from None


def _steps(
    document: Mapping[str, Any], phases: Sequence[str], limits: SmLimits
) -> tuple[TracedStep, ...]:
    events = [each for each in document.get("traceEvents", ()) if each.get("ph") == "X"]
    spans = marked_spans(events, phases)
    launches, waits = launches_of(events), waits_of(events)
    found = defaultdict(list)
    for event in events:
        if event.get("cat") in _GPU:
            launch = launches.get(correlation_of(event))
            place = place_of(spans, launch.at_us if launch else float(event["ts"]))
            if place is not None:
                found[place].append((event, launch))
    count = len(phases)
    return tuple(
        _step(spans[first : first + count], [found[first + n] for n in range(count)], waits, limits)
        for first in range(0, len(spans), count)
    )


_Found = Sequence[tuple[Event, Launch | None]]


def _step(
    spans: Sequence[Span], found: Sequence[_Found], waits: Sequence[Launch], limits: SmLimits
) -> TracedStep:
    work: list[GpuWork] = []
    phases = []
    for number, (span, events) in enumerate(zip(spans, found, strict=True)):
        launched = [(launch or Launch(span.begin_us, 0.0), event) for event, launch in events]
        launches = sorted({launch for launch, _ in launched}, key=lambda launch: launch.at_us)
        its = [each for each in waits if span.begin_us <= each.at_us < span.end_us]
        host = _HostTime(span, launches, waits)
        for launch, event in launched:
            work.append(_work(event, number, host.until(launch.at_us), limits))
        waits_us = tuple(host.until(each.at_us) for each in its)
        phases.append(Phase(host.until(span.end_us), len(launches), waits_us))
    work.sort(key=lambda each: each.start_us)
    return TracedStep(tuple(work), tuple(phases))


class _HostTime:
    """The time of the host in a phase, less that in which it waited for the GPU."""

    def __init__(self, span: Span, launches: Sequence[Launch], waits: Sequence[Launch]) -> None:
        self._begin_us, self._waits = span.begin_us, waits
        self._launched_us = [each.at_us for each in launches]
        self._queued_us = _waited_us(launches)

    def until(self, at_us: float) -> float:
        """Microseconds from the phase's start to `at_us`, without waits before that."""
        queued_us = self._queued_us[bisect_left(self._launched_us, at_us)]
        waited_us = sum(self._inside_us(each, at_us) for each in self._waits)
        return max(0.0, at_us - self._begin_us - queued_us - waited_us)

    def _inside_us(self, wait: Launch, until_us: float) -> float:
        """Of `wait` what lies in the phase before `until_us`: a window may cut it at both ends."""
        end_us = min(wait.at_us + wait.duration_us, until_us)
        return max(0.0, end_us - max(wait.at_us, self._begin_us))


def _waited_us(launches: Sequence[Launch]) -> list[float]:
    """How long launching had waited for the queue before each launch, and in all.

    The queue was empty when the phase began. Once it may be full, the time of a launch beyond the
    90th percentile of the first ones counts as a wait for the GPU.

    Returns:
        Microseconds, shape (launches + 1,).
    """
    durations_us = [each.duration_us for each in launches]
    first, later = durations_us[:QUEUE_FREE_LAUNCHES], durations_us[QUEUE_FREE_LAUNCHES:]
    usual_us = quantiles(first, n=10)[-1] if later else 0.0
    waits_us = [0.0] * len(first) + [max(0.0, each - usual_us) for each in later]
    return list(accumulate(waits_us, initial=0.0))


_HOST_COPY = re.compile(r"HtoD|DtoH")  # as CUPTI names the directions of copies


def _work(event: Event, phase: int, launch_us: float, limits: SmLimits) -> GpuWork:
    kind, launched = _GPU[event["cat"]], event["args"]
    blocks = threads = resident = 0
    if kind == "copy" and _HOST_COPY.search(str(event["name"])):
        kind = HOST_COPY
    if kind == "kernel":
        kind = kernel_class(str(event["name"]))
        blocks, threads = prod(launched["grid"]), prod(launched["block"])
        resident = resident_blocks(
            limits,
            threads=threads,
            registers=int(launched.get("registers per thread", 0)),
            shared_bytes=int(launched.get("shared memory", 0)),
        )
    return GpuWork(
        kind=kind, phase=phase, launch_us=launch_us,
        start_us=float(event["ts"]), duration_us=float(event["dur"]),
        blocks=blocks, threads=threads, resident_blocks=resident,
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
    """The class of the kernel called `name`, demangled; ``"other"`` if no rule matches."""
    answer = name if _WRAPPERS.search(name) else name.partition("<")[0]
    return next((each for each, pattern in _RULES if pattern.search(answer)), "other")
