"""Measures the rates that a GPU attains: products, convolutions and traffic in several sizes.

About a minute on a current GPU. The sizes reach from a grid of one block to products that fill
every SM, and from tensors that L2 holds to some far beyond it; all take part in every round, in
another order each time. Clocks are left alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from time import monotonic, sleep
from typing import Any

from advisor.hardware.gpu_rates import GpuRates
from advisor.measure.operator_calls import timed
from advisor.measure.process.claimed_device import Meter
from advisor.measure.process.tenant_handle import TenantHandle, living
from advisor.measure.process.tenant_verbs import training_verbs
from advisor.measure.process.worker import TenantState, Verb
from advisor.workload.gpu_side import GpuSide, Operator, OperatorPrecision, OperatorTime

_ROUNDS, _SEED = 5, 1

# No further round begins later; the first, in which cudnn searches, takes longest.
_LATEST_S = 45.0

# When clocks are read: after the GPU had time to reach those of the sweep.
_CLOCKS_AFTER_S = 1.0

# For the slowest GPU's first round.
_ANSWER_S = 600.0

# Squares, layers of transformers, and grids of one to some blocks.
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
    """What the sweep times."""
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


def sweep_verbs() -> Mapping[str, Verb]:
    """The training verbs, `time_operators` and `l2_mib`."""
    return {**training_verbs(), "time_operators": time_operators, "l2_mib": l2_mib}


def time_operators(state: TenantState, wanted: Sequence[Operator]) -> dict[str, Any]:
    """Time each operator.

    Returns:
        ``kernel_ms`` and ``latency_ms``, shapes (operators,); None for one that failed.
    """
    found = [timed(each, state.device) for each in wanted]
    return {
        "kernel_ms": [each and each.kernel_ms for each in found],
        "latency_ms": [each and each.latency_ms for each in found],
    }


def l2_mib(state: TenantState) -> dict[str, Any]:
    """``l2_mib``: the L2 cache of the device; None on a CPU."""
    if state.device == "cpu":
        return {"l2_mib": None}
    import torch

    return {"l2_mib": torch.cuda.get_device_properties(0).L2_cache_size / 2**20}


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round measured; of each operator, None if it failed."""

    kernel_ms: dict[Operator, float | None]
    launch_ms: float | None
    sm_clock_mhz: int | None


def sweep(
    tenant: TenantHandle, meter: Meter, wanted: Sequence[Operator], rounds: int = _ROUNDS
) -> GpuSide:
    """Time `wanted` in some rounds, each in another order; the median of each operator.

    Args:
        tenant: Alone on its GPU, with `sweep_verbs`.
        meter: Of that GPU.
        wanted: Usually `operators()`.
        rounds: Fewer if they take long.

    Raises:
        AdvisorError: The tenant died.
    """
    l2_mib = living(tenant.ask("l2_mib"))["l2_mib"]
    found: list[_Round] = []
    order, began_s = Random(_SEED), monotonic()
    while len(found) < rounds and monotonic() - began_s < _LATEST_S:
        found.append(_round(tenant, meter, order.sample([*wanted, _EMPTY], len(wanted) + 1)))
    clock_mhz = _median(each.sm_clock_mhz for each in found)
    launch_ms = _median(each.launch_ms for each in found)
    kernel_ms = {
        operator: _median(each.kernel_ms[operator] for each in found)
        for operator in (*wanted, _EMPTY)
    }
    return GpuSide(
        l2_mib=l2_mib,
        sm_clock_mhz=None if clock_mhz is None else round(clock_mhz),
        launch_us=None if launch_ms is None else launch_ms * 1e3,
        times=tuple(OperatorTime(op, ms) for op, ms in kernel_ms.items() if ms is not None),
    )


def _round(tenant: TenantHandle, meter: Meter, order: Sequence[Operator]) -> _Round:
    tenant.send("time_operators", wanted=order)
    sleep(_CLOCKS_AFTER_S)
    sm_clock_mhz, _ = meter.clocks_mhz()
    answer = living(tenant.receive(_ANSWER_S))
    return _Round(
        kernel_ms=dict(zip(order, answer["kernel_ms"], strict=True)),
        launch_ms=answer["latency_ms"][order.index(_EMPTY)],
        sm_clock_mhz=sm_clock_mhz,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def lines_of(side: GpuSide, stated: GpuRates | None) -> tuple[str, ...]:
    """What the sweep found, for a person, beside the rates that the GPU's maker states."""
    maker: dict[str, float | None] = {}
    if stated is not None:
        half = {"fp16": stated.fp16_tflops, "bf16": stated.tf32_tflops and stated.fp16_tflops}
        rates = {"fp32": stated.fp32_tflops, "tf32": stated.tf32_tflops, **half}
        maker = rates | {"memory": stated.bandwidth_gb_s}
    attained = [
        f"{each} {_shown(side.tflops(each))} ({_shown(maker.get(each))})" for each in _PRECISIONS
    ]
    moved = ", ".join(f"{mib:.3g}: {rate:.0f}" for mib, rate in side.traffic_gb_s)
    return (
        f"attained, and stated by its maker, TFLOP/s: {', '.join(attained)}",
        f"the same, GB/s: memory {_shown(side.bandwidth_gb_s)} "
        f"({_shown(maker.get('memory'))}), inside L2 "
        f"{_shown(side.l2_bandwidth_gb_s)}",
        f"an empty kernel: {_shown(side.launch_us)} us with its launch, "
        f"{_shown(side.empty_kernel_us)} us queued; SM clock {_shown(side.sm_clock_mhz)} MHz",
        *(f"{each}, TFLOP/s by side of square products: {_by_side(side, each)}"
          for each in _PRECISIONS),
        f"GB/s by MiB moved: {moved}",
    )  # fmt: skip


def _by_side(side: GpuSide, precision: OperatorPrecision) -> str:
    return ", ".join(
        f"{operator.dimensions[1]}: {rate:.1f}"
        for operator, rate in side.product_tflops(precision)
        if operator.op == "linear" and len(set(operator.dimensions[1:])) == 1
    )


def _shown(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.1f}"
