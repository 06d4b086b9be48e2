"""One operator of a network as a call on a device, and how long such a call takes."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from advisor.workload.gpu_side import Operator, OperatorPrecision

Call = Callable[[], object]

_WARM_UPS, _LONE, _QUEUES, _MOST_QUEUED = 3, 10, 3, 20

# Calls that take longer need no queue to hide their launch; of these, few tell as much as many.
_LONG_MS, _FEWEST_LONE, _LONE_BUDGET_MS = 5.0, 5, 60.0
_QUEUE_MS = 2.0

# A GPU that does nothing for so many cycles, at most clocks of today's, waits as long as the host
# needs to launch what is behind it; a longer wait does no harm.
_CYCLES_PER_S, _HOLD = 2e9, 2.0

_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class CallTime:
    """How long a call takes.

    Attributes:
        latency_ms: Median of calls on an idle device, from before the launch.
        least_ms: The shortest of them.
        kernel_ms: A call among others that are queued: without the launch, but with what passes
            between kernels, about a microsecond.
    """

    latency_ms: float
    least_ms: float
    kernel_ms: float


def timed(operator: Operator, device: str) -> CallTime | None:
    """The time of `operator`, with cudnn's search for the fastest algorithm; None if it fails.

    Args:
        operator: Its inputs are made here, of normally distributed numbers.
        device: As torch names it.
    """
    import torch

    _set_switches(operator.precision)
    try:
        with torch.no_grad():
            return _timed(operator_call(operator, device), device)
    except RuntimeError:  # for want of memory, or of a kernel in this precision
        return None


def _set_switches(precision: OperatorPrecision) -> None:
    import torch

    cudnn: Any = torch.backends.cudnn
    cudnn.benchmark = True
    for switch in (torch.backends.cuda.matmul, cudnn.conv):
        switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"


def operator_call(operator: Operator, device: str) -> Call:
    """A call that enqueues `operator` once.

    Raises:
        RuntimeError: torch's, if there is no memory for its inputs.
    """
    import torch
    import torch.nn.functional as F

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=getattr(torch, _TYPES[operator.precision]))

    match operator.op, operator.dimensions:
        case "linear", (batch, rows, inner, columns):
            of_linear = normal(batch, rows, inner), normal(columns, inner), normal(columns)
            return lambda: F.linear(*of_linear)
        case "bmm", (batch, rows, inner, columns):
            of_bmm = normal(batch, rows, inner), normal(batch, inner, columns)
            return lambda: torch.bmm(*of_bmm)
        case "conv", (batch, into, out, kernel, side, stride, padding):
            of_conv = normal(batch, into, side, side), normal(out, into, kernel, kernel)
            return lambda: F.conv2d(*of_conv, stride=stride, padding=padding)
        case _, (rows, columns):
            return _by_rows(operator.op, normal(rows, columns), normal(2, columns))
    cuda: Any = torch.cuda
    return (lambda: cuda._sleep(1)) if device == "cuda" else (lambda: None)


def _by_rows(op: str, values: Any, of_columns: Any) -> Call:
    import torch
    import torch.nn.functional as F

    other = torch.randn_like(values)
    calls: dict[str, Call] = {
        "ln": lambda: F.layer_norm(values, values.shape[1:], *of_columns),
        "softmax": lambda: F.softmax(values, -1),
        "gelu": lambda: F.gelu(values),
        "add": lambda: torch.add(values, other),
        "copy": lambda: other.copy_(values),
    }
    return calls[op]


def _timed(call: Call, device: str) -> CallTime:
    clock = _GpuStopwatch() if device == "cuda" else _HostStopwatch()
    clock.ms(call, _WARM_UPS)
    lone_ms = [clock.ms(call, 1)]
    while len(lone_ms) < _LONE and (len(lone_ms) < _FEWEST_LONE or sum(lone_ms) < _LONE_BUDGET_MS):
        lone_ms.append(clock.ms(call, 1))
    latency_ms = median(lone_ms)
    kernel_ms = latency_ms if latency_ms > _LONG_MS else _queued_ms(call, clock, latency_ms)
    return CallTime(latency_ms, min(lone_ms), kernel_ms)


def _queued_ms(call: Call, clock: "_GpuStopwatch | _HostStopwatch", latency_ms: float) -> float:
    count = max(2, min(_MOST_QUEUED, round(_QUEUE_MS / max(latency_ms, 1e-6))))
    return median(clock.ms(call, count, hold=True) / count for _ in range(_QUEUES))


class _HostStopwatch:
    """For a device whose calls return when the work is done."""

    def ms(self, call: Call, count: int, *, hold: bool = False) -> float:  # noqa: ARG002
        began_s = perf_counter()
        for _ in range(count):
            call()
        return (perf_counter() - began_s) * 1e3


class _GpuStopwatch:
    """By events on the GPU's own clock."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._launch_s = 0.0
        self._cuda.synchronize()

    def ms(self, call: Call, count: int, *, hold: bool = False) -> float:
        """Of `count` calls; `hold` keeps the GPU waiting until they are launched."""
        begin, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        if hold:
            self._cuda._sleep(int(_HOLD * count * self._launch_s * _CYCLES_PER_S))
        began_s = perf_counter()
        begin.record()
        for _ in range(count):
            call()
        end.record()
        self._launch_s = (perf_counter() - began_s) / count
        end.synchronize()
        return float(begin.elapsed_time(end))
