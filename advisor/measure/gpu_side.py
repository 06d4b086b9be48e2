"""Measures the GPU's side of a calibration: the cost of taking turns, and the times of operators.

Two processes of endless kernels take turns, alone and together.

Alone, each does a kernel every `alone` seconds; together every `shared` seconds. If turns were
free, ``alone / shared`` of both would add up to 1: the difference from 1 is the overhead.

With kernels far shorter than a slice, the moments at which one tenant's kernels end show slices:
close together while it has the GPU, then a gap while the other has it. A cycle reaches from the
end of one gap to the end of the next. Without its own kernel a gap is the time away, and the rest
of the cycle is the slice. There are two changes of owner a cycle, so one costs
``overhead * cycle / 2``; that contains what refilling caches costs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from statistics import mean, median
from time import monotonic, perf_counter, sleep, time
from typing import Any

import numpy as np

from advisor.errors import AdvisorError
from advisor.hardware.gpus import GpuRates
from advisor.measure.device import Meter
from advisor.measure.inside.clocks import synchronise
from advisor.measure.inside.routines import VERBS, Verb
from advisor.measure.inside.server import Served
from advisor.measure.mps import MpsSession
from advisor.measure.pace import Schedule, Timing, schedule, sleep_until, windows_of
from advisor.measure.tenant import GRACE_S, Tenant, living
from advisor.measure.tenants import ask_all, tenants_on
from advisor.sharing import Naive
from advisor.workload.calibration import (
    GpuSide,
    Operator,
    OperatorPrecision,
    OperatorTime,
    Switching,
)
from advisor.workload.profile import median_step_s

_REMEDY = ". Calibrate again."

# Square matrices of this side to begin with, and in multiples of it: whole tiles of any library.
_TILE, _FIRST_SIDE = 128, 1024

# Time per operation depends on the size, so the size is adjusted several times.
_TRIES, _TIMED = 3, 20

# Work that is queued ahead, in seconds: beyond any slice; and most launches a GPU takes.
_AHEAD_S, _MOST_AHEAD = 0.1, 900


def load_kernel(served: Served, device: str, kernel_s: float) -> dict[str, Any]:
    """Make a step one product of square matrices that takes about `kernel_s`."""
    side, kernel = _FIRST_SIDE, _repeated(device, _FIRST_SIDE, _MOST_AHEAD)
    ahead = max(2, min(_MOST_AHEAD, round(_AHEAD_S / kernel_s)))
    for _ in range(_TRIES):
        kernel()
        synchronise()
        began = perf_counter()
        for _ in range(_TIMED):
            kernel()
        synchronise()
        took_s = (perf_counter() - began) / _TIMED
        if took_s <= 0:
            raise AdvisorError("a matrix product took no time here. Calibrate again.")
        # Its work grows with the cube of its side.
        side = max(1, round(side * (kernel_s / took_s) ** (1 / 3) / _TILE)) * _TILE
        kernel = _repeated(device, side, ahead)
    served.step = kernel
    return {}


class _GpuQueue:
    """Marks work that was queued on the GPU; waits while more than `most` marks are ahead."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ahead: deque[Any] = deque()

    def mark(self) -> None:
        import torch

        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._ahead.append(event)
        if len(self._ahead) > self._most:
            self._ahead.popleft().synchronize()

    def ahead(self) -> int:
        """Marks that the GPU has not reached."""
        while self._ahead and self._ahead[0].query():
            self._ahead.popleft()
        return len(self._ahead)


def _repeated(device: str, side: int, ahead: int) -> Callable[[], None]:
    """A call that enqueues one matrix product, and waits if more than `ahead` are queued."""
    import torch

    factor = torch.ones(side, side, device=device)
    product, queue = torch.empty_like(factor), _GpuQueue(ahead)

    def call() -> None:
        torch.mm(factor, factor, out=product)
        if factor.is_cuda:
            queue.mark()

    return call


def all_answers(tenants: Sequence[Tenant], verb: str, **arguments: Any) -> list[dict[str, Any]]:
    """Send all `tenants` the same request at once; return their answers, in their order."""
    return [living(each, _REMEDY) for each in ask_all(tenants, verb, [arguments] * len(tenants))]


# Far below a slice of some milliseconds, and about as long as one.
_KERNELS_S = (0.1e-3, 2e-3)

_TIMING = Timing(settle_s=0.0, window_s=0.4, windows=3, lead_s=0.4)
_NOTICE_S = 0.05

# From this many kernels alone on, a pause between two ends is a turn of the other's.
_GAP = 2.0

# Fewer gaps show no pattern; with fewer kernels in a slice, kernels and not the driver end it.
_FEWEST_GAPS, _FEWEST_KERNELS = 20, 4

Clocks = tuple[int | None, int | None]


Timed = tuple[Schedule, Sequence[Sequence[float]]]
"""A schedule, and when the kernels of tenants ended in it, shape (tenants, kernels)."""


def switching(session: MpsSession) -> tuple[tuple[Switching, ...], Clocks, dict[str, str | None]]:
    """Measure the cost of turns for each length of kernel.

    Return also the GPU's clocks meanwhile and the versions of the software.
    """
    session.switch_to(Naive())
    setups = session.servers(Naive(), VERBS_FROM, 2)
    meter, costs = Meter(session.device), []
    clocks_mhz: Clocks = (None, None)
    with tenants_on(setups, session.folder) as tenants:
        for kernel_s in _KERNELS_S:
            for tenant in tenants:  # one after another, since each times its kernel
                all_answers([tenant], "load_kernel", device=tenant.setup.device, kernel_s=kernel_s)
            alone = [_timed_kernels([tenant], meter)[0] for tenant in tenants]
            together, clocks_mhz = _timed_kernels(tenants, meter)
            costs.append(switching_of(alone, together))
        versions = tenants[0].versions
    return tuple(costs), clocks_mhz, versions


def _timed_kernels(tenants: Sequence[Tenant], meter: Meter) -> tuple[Timed, Clocks]:
    plan = schedule(time() + _NOTICE_S, _TIMING, 0.0)
    for tenant in tenants:
        tenant.send("run", start_at=plan.start_at, stop_at=plan.stop_at)
    sleep_until((plan.begin_at + plan.end_at) / 2)
    clocks_mhz = meter.clocks_mhz()
    answers = [living(tenant.receive(GRACE_S), _REMEDY) for tenant in tenants]
    return (plan, [each["completed_at"] for each in answers]), clocks_mhz


def switching_of(alone: Sequence[Timed], together: Timed) -> Switching:
    """Compute the cost of turns from two tenants' times, alone and together, in one order."""
    alone_s = [median_step_s(windows_of(plan, ends)) for plan, (ends,) in alone]
    plan, ends_of_each = together
    both = list(zip(ends_of_each, alone_s, strict=True))
    overhead = 1 - sum(lone_s / median_step_s(windows_of(plan, ends)) for ends, lone_s in both)
    turns = [_turns(plan, ends, lone_s) for ends, lone_s in both]
    regular = [each for each in turns if each is not None]
    return Switching(
        kernel_s=mean(alone_s), overhead=overhead,
        slice_s=mean(slice_s for slice_s, _ in regular) if regular else None,
        switch_s=overhead * mean(cycle_s for _, cycle_s in regular) / 2 if regular else None,
    )  # fmt: skip


def _turns(
    plan: Schedule, completed_at: Sequence[float], alone_s: float
) -> tuple[float, float] | None:
    """Median slice and median cycle of one tenant, seconds; None if there is no pattern."""
    ends = np.array([each for each in completed_at if plan.begin_at <= each <= plan.end_at])
    pauses = np.diff(ends)
    gaps = np.flatnonzero(pauses > _GAP * alone_s)
    if len(gaps) < _FEWEST_GAPS:
        return None
    cycle_s = float(np.median(np.diff(ends[gaps + 1])))
    away_s = float(np.median(pauses[gaps])) - alone_s
    slice_s = cycle_s - away_s
    return (slice_s, cycle_s) if slice_s >= _FEWEST_KERNELS * alone_s else None


Call = Callable[[], object]

_WARM_UPS, _LONE, _QUEUES, _MOST_QUEUED = 3, 10, 3, 20

# Calls that take longer need no queue to hide their launch; of these, few tell as much as many.
_LONG_MS, _FEWEST_LONE, _LONE_BUDGET_MS = 5.0, 5, 60.0
_QUEUE_MS = 2.0

# A GPU that does nothing for so many cycles, at most clocks of today's, waits as long as the host
# needs to launch what is behind it; a longer wait does no harm.
_CYCLES_PER_S, _HOLD = 2e9, 2.0

_TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def time_operator(operator: Operator, device: str) -> tuple[float | None, float | None]:
    """Time `operator` on normal numbers, with cudnn's search for the fastest algorithm.

    Returns:
        Its latency, the median of calls on an idle device, from before the launch; and the time of
        a call among others that are queued: without the launch, but with what passes between
        kernels, about a microsecond. In ms; None if it fails.
    """
    import torch

    cudnn: Any = torch.backends.cudnn
    cudnn.benchmark = True
    for switch in (torch.backends.cuda.matmul, cudnn.conv):
        switch.fp32_precision = "tf32" if operator.precision == "tf32" else "ieee"
    try:
        with torch.no_grad():
            call = operator_call(operator, device)
            clock = _GpuStopwatch() if device == "cuda" else _HostStopwatch()
            clock.ms(call, _WARM_UPS)
            lone_ms = [clock.ms(call, 1)]
            while len(lone_ms) < _LONE and (
                len(lone_ms) < _FEWEST_LONE or sum(lone_ms) < _LONE_BUDGET_MS
            ):
                lone_ms.append(clock.ms(call, 1))
            kernel_ms = latency_ms = median(lone_ms)
            if latency_ms <= _LONG_MS:
                count = max(2, min(_MOST_QUEUED, round(_QUEUE_MS / max(latency_ms, 1e-6))))
                queues_ms = [clock.ms(call, count, hold=True) / count for _ in range(_QUEUES)]
                kernel_ms = median(queues_ms)
    except RuntimeError:  # without memory for it, or a kernel in this precision
        return None, None
    return latency_ms, kernel_ms


def operator_call(operator: Operator, device: str) -> Call:
    """Return a call that enqueues `operator` once; torch raises RuntimeError without memory."""
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
        case op, (rows, columns):
            values, of_columns = normal(rows, columns), normal(2, columns)
            other = torch.randn_like(values)
            calls: dict[str, Call] = {
                "ln": lambda: F.layer_norm(values, values.shape[1:], *of_columns),
                "softmax": lambda: F.softmax(values, -1),
                "gelu": lambda: F.gelu(values),
                "add": lambda: torch.add(values, other),
                "copy": lambda: other.copy_(values),
            }
            return calls[op]
    cuda: Any = torch.cuda
    return (lambda: cuda._sleep(1)) if device == "cuda" else (lambda: None)


class _HostStopwatch:
    """The wall clock, for a device whose calls return when the work is done."""

    def ms(self, call: Call, count: int, *, hold: bool = False) -> float:  # noqa: ARG002
        began_s = perf_counter()
        for _ in range(count):
            call()
        return (perf_counter() - began_s) * 1e3


class _GpuStopwatch:
    """A stopwatch of events on the GPU's own clock."""

    def __init__(self) -> None:
        import torch

        self._cuda: Any = torch.cuda
        self._launch_s = 0.0
        self._cuda.synchronize()

    def ms(self, call: Call, count: int, *, hold: bool = False) -> float:
        """Time `count` calls; `hold` keeps the GPU waiting until they are launched."""
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


_ROUNDS, _SEED = 5, 1

# No further round begins later; the first, in which cudnn searches, takes longest.
_LATEST_S = 45.0

# When clocks are read: after the GPU had time to reach those of the sweep.
_CLOCKS_AFTER_S = 1.0

# For the slowest GPU's first round.
_ANSWER_S = 600.0

# Squares, layers of transformers, and grids of one to some blocks. Products reach from one block to
# all SMs, and tensors from those that fit in L2 to some far beyond it.
_PRODUCTS = (
    *(f"1x{side}x{side}x{side}" for side in (128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192)),
    "1x512x768x768", "1x512x768x3072", "1x4096x768x3072", "1x16384x768x768", "1x2048x1024x4096",
    "1x64x4096x64", "1x128x4096x128", "1x256x4096x128", "1x256x2048x512", "1x32x2048x1000",
)  # fmt: skip
_BATCHED = (
    "12x128x64x128", "96x128x64x128", "96x512x64x512", "96x512x512x64", "192x1024x64x1024",
    "512x32x32x32",
)  # fmt: skip
_CONVOLUTIONS = (
    "128x3x64x7x224x2x3", "128x64x64x3x56x1x1", "32x64x64x3x56x1x1", "32x128x128x3x28x1x1",
    "32x256x256x3x14x1x1", "32x512x512x3x7x1x1", "8x256x256x3x14x1x1", "64x256x64x1x56x1x0",
    "128x64x64x3x32x1x1",
)  # fmt: skip
# Of 1024 columns: from 64 KiB to 512 MiB in FP32.
_ROWS = tuple(2**power for power in range(4, 18))

_PRECISIONS: tuple[OperatorPrecision, ...] = ("fp32", "tf32", "fp16", "bf16")


def operators() -> tuple[Operator, ...]:
    """Return the operators that the sweep times."""
    products = [
        Operator(op, shape, precision)
        for op, shapes in (("linear", _PRODUCTS), ("bmm", _BATCHED), ("conv", _CONVOLUTIONS))
        for shape in shapes
        for precision in _PRECISIONS
    ]
    rows = [
        Operator(op, f"{rows}x1024", precision)
        for op in ("ln", "softmax", "gelu", "add", "copy")
        for rows in _ROWS
        for precision in (("fp32", "bf16") if op in ("ln", "softmax") else ("fp32",))
    ]
    return (*products, *rows)


_EMPTY = Operator("empty", "1", "fp32")


def time_operators(
    served: Served,  # noqa: ARG001
    device: str,
    chosen: Sequence[tuple[str, str, OperatorPrecision]],
) -> dict[str, Any]:
    """``latency_ms`` and ``kernel_ms`` of each operator, (operators,); ``l2_mib`` of the device."""
    import torch

    l2_mib = None
    if device == "cuda":
        l2_mib = torch.cuda.get_device_properties(0).L2_cache_size / 2**20
    times_ms = [time_operator(Operator(*each), device) for each in chosen]
    latency_ms, kernel_ms = zip(*times_ms, strict=True)
    return {"latency_ms": latency_ms, "kernel_ms": kernel_ms, "l2_mib": l2_mib}


def sweep(
    tenant: Tenant, meter: Meter, chosen: Sequence[Operator], rounds: int = _ROUNDS
) -> GpuSide:
    """Time `chosen` in at most `rounds`, each in another order; the median of each operator.

    It takes about a minute on a current GPU, where `tenant` is alone. It sets no clocks.
    """
    answer: dict[str, Any] = {}
    clocks_mhz: list[int | None] = []
    launches_ms: list[float | None] = []
    kernels_ms: dict[Operator, list[float | None]] = {each: [] for each in (*chosen, _EMPTY)}
    random, began_s = Random(_SEED), monotonic()
    while len(clocks_mhz) < rounds and monotonic() - began_s < _LATEST_S:
        order = random.sample([*chosen, _EMPTY], len(chosen) + 1)
        tenant.send(
            "time_operators", device=tenant.setup.device,
            chosen=[(each.op, each.shape, each.precision) for each in order],
        )  # fmt: skip
        sleep(_CLOCKS_AFTER_S)
        clocks_mhz.append(meter.clocks_mhz()[0])
        answer = living(tenant.receive(_ANSWER_S))
        launches_ms.append(answer["latency_ms"][order.index(_EMPTY)])
        for operator, ms in zip(order, answer["kernel_ms"], strict=True):
            kernels_ms[operator].append(ms)
    clock_mhz, launch_ms = _median(clocks_mhz), _median(launches_ms)
    return GpuSide(
        l2_mib=answer["l2_mib"],
        sm_clock_mhz=None if clock_mhz is None else round(clock_mhz),
        launch_us=None if launch_ms is None else launch_ms * 1e3,
        times=tuple(OperatorTime(operator, ms) for operator, each_ms in kernels_ms.items()
                    if (ms := _median(each_ms)) is not None),
    )  # fmt: skip


def _median(values: Iterable[float | None]) -> float | None:
    measured = [each for each in values if each is not None]
    return median(measured) if measured else None


def lines_of(side: GpuSide, stated: GpuRates | None) -> tuple[str, ...]:
    """Describe the results of the sweep, with the rates that the GPU's maker states."""
    maker: dict[str, float | None] = {}
    if stated is not None:
        half = {"fp16": stated.fp16_tflops, "bf16": stated.tf32_tflops and stated.fp16_tflops}
        rates = {"fp32": stated.fp32_tflops, "tf32": stated.tf32_tflops, **half}
        maker = rates | {"memory": stated.bandwidth_gb_s}
    attained = [
        f"{each} {_shown(side.tflops(each))} ({_shown(maker.get(each))})" for each in _PRECISIONS
    ]
    squares = {
        precision: ", ".join(
            f"{operator.dimensions[1]}: {rate:.1f}"
            for operator, rate in side.product_tflops(precision)
            if operator.op == "linear" and len(set(operator.dimensions[1:])) == 1
        )
        for precision in _PRECISIONS
    }
    moved = ", ".join(f"{mib:.3g}: {rate:.0f}" for mib, rate in side.traffic_gb_s)
    return (
        f"attained, and stated by its maker, TFLOP/s: {', '.join(attained)}",
        f"the same, GB/s: memory {_shown(side.bandwidth_gb_s)} ({_shown(maker.get('memory'))}), "
        f"inside L2 {_shown(side.l2_bandwidth_gb_s)}",
        f"an empty kernel: {_shown(side.launch_us)} us with its launch, "
        f"{_shown(side.empty_kernel_us)} us queued; SM clock {_shown(side.sm_clock_mhz)} MHz",
        *(f"{each}, TFLOP/s by side of square products: {squares[each]}" for each in _PRECISIONS),
        f"GB/s by MiB moved: {moved}",
    )


def _shown(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.1f}"


CALIBRATION_VERBS: Mapping[str, Verb] = {
    "run": VERBS["run"], "load_kernel": load_kernel, "time_operators": time_operators
}  # fmt: skip
"""The requests of a program that calibrates."""

VERBS_FROM = "advisor.measure.gpu_side:CALIBRATION_VERBS"
