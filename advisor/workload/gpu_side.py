"""What a sweep of operators shows of a GPU: how long each took, and the rates that it attained.

A shape is written as the sweep's files have it, ``x`` between its numbers:

- ``linear`` and ``bmm``: BxMxNxK, a product of (B, M, N) by (N, K), or by (B, N, K)
- ``conv``: batch x channels in x channels out x kernel x side of the image x stride x padding
- ``ln``, ``softmax``, ``gelu``, ``add``, ``copy``: rows x columns; ``empty``: 1, a kernel that does
  nothing
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Literal

from advisor.errors import InvalidInput
from advisor.workload.plausible import MOST_COUNT, check, check_number

OperatorPrecision = Literal["fp32", "tf32", "fp16", "bf16"]

_NUMBERS = {
    "linear": 4, "bmm": 4, "conv": 7, "ln": 2, "softmax": 2, "gelu": 2, "add": 2, "copy": 2,
    "empty": 1,
}  # fmt: skip

# Of a day's kernels, none takes as long: a typing error, or another unit.
_MOST_MS = 1e6

# Where memory's own rate shows, in sizes of the L2 cache: traffic well beyond it, or well inside.
_BEYOND, _INSIDE = 4.0, 0.5


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a network, forward.

    Attributes:
        op: E.g. ``"linear"``.
        shape: E.g. ``"1x512x768x3072"``.
        precision: ``"fp32"`` with TF32 off, ``"tf32"`` with it on.

    Raises:
        InvalidInput: There is no such operator, or its shape has other numbers.
    """

    op: str
    shape: str
    precision: OperatorPrecision

    def __post_init__(self) -> None:
        if self.op not in _NUMBERS:
            raise InvalidInput(f"{self.op!r} is no operator of a sweep: {', '.join(_NUMBERS)}")
        parts = self.shape.split("x")
        if len(parts) != _NUMBERS[self.op] or not all(each.isdecimal() for each in parts):
            raise InvalidInput(
                f"a shape of {self.op} has {_NUMBERS[self.op]} numbers with x between, "
                f"got {self.shape!r}"
            )
        # Only padding may be nothing.
        check_number(f"a product of {self.shape}", prod(self.dimensions[:6]), MOST_COUNT, 1)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The numbers of its shape."""
        return tuple(map(int, self.shape.split("x")))

    @property
    def flops(self) -> int:
        """Floating point operations, of products and convolutions only; else 0."""
        match self.op, self.dimensions:
            case "linear" | "bmm", (batch, rows, inner, columns):
                return 2 * batch * rows * inner * columns
            case "conv", (batch, into, out, kernel, *_):
                return 2 * batch * into * out * kernel**2 * self._image_out**2
        return 0

    @property
    def traffic_mib(self) -> float:
        """Tensors read and written, each once, MiB."""
        elements = 0
        match self.op, self.dimensions:
            case "linear", (batch, rows, inner, columns):
                elements = batch * rows * (inner + columns) + inner * columns
            case "bmm", (batch, rows, inner, columns):
                elements = batch * (rows * inner + inner * columns + rows * columns)
            case "conv", (batch, into, out, kernel, side, *_):
                images = batch * (into * side**2 + out * self._image_out**2)
                elements = images + into * out * kernel**2
            case "add", (rows, columns):
                elements = 3 * rows * columns
            case _, (rows, columns):
                elements = 2 * rows * columns
        return elements * (4 if self.precision in ("fp32", "tf32") else 2) / 2**20

    @property
    def _image_out(self) -> int:
        _, _, _, kernel, side, stride, padding = self.dimensions
        return (side + 2 * padding - kernel) // stride + 1


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """How long an operator takes on the GPU when its kernels are queued, so without launches."""

    operator: Operator
    kernel_ms: float

    def __post_init__(self) -> None:
        check_number("kernel_ms", self.kernel_ms, _MOST_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSide:
    """What a sweep of operators measured on one GPU.

    Attributes:
        l2_mib: The L2 cache, as the driver says; None if it does not.
        sm_clock_mhz: Of SMs during the sweep, whatever it was; None if not read.
        launch_us: An empty kernel on an idle GPU, from before its launch until it ended; None if
            not measured.
        times: Operators that failed, for want of memory for example, are absent.
    """

    l2_mib: float | None
    sm_clock_mhz: int | None
    launch_us: float | None
    times: tuple[OperatorTime, ...]

    def __post_init__(self) -> None:
        check(self, ("l2_mib", "sm_clock_mhz", "launch_us"))

    def tflops(self, precision: OperatorPrecision) -> float | None:
        """Most that a matrix product attained, 1e12 a second; None if none was timed.

        Convolutions are left out: some algorithms need fewer operations than are counted.
        """
        return max((rate for _, rate in self.product_tflops(precision)), default=None)

    def product_tflops(self, precision: OperatorPrecision) -> tuple[tuple[Operator, float], ...]:
        """Each matrix product in `precision` and what it attained, 1e12 operations a second."""
        return tuple(
            (each.operator, each.operator.flops / each.kernel_ms / 1e9)
            for each in self.times
            if each.operator.precision == precision
            and each.operator.op in ("linear", "bmm")
            and each.kernel_ms > 0
        )

    @property
    def empty_kernel_us(self) -> float | None:
        """From the start of an empty kernel to that of the next queued; None if not measured."""
        found = (each.kernel_ms * 1e3 for each in self.times if each.operator.op == "empty")
        return next(found, None)

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Most that adding and copying attained beyond L2, 1e9 bytes a second; None if unknown."""
        l2_mib = self.l2_mib
        return None if l2_mib is None else _most(
            rate for mib, rate in self.traffic_gb_s if mib >= _BEYOND * l2_mib
        )  # fmt: skip

    @property
    def l2_bandwidth_gb_s(self) -> float | None:
        """The same of tensors that fit into L2 together."""
        l2_mib = self.l2_mib
        return None if l2_mib is None else _most(
            rate for mib, rate in self.traffic_gb_s if mib <= _INSIDE * l2_mib
        )  # fmt: skip

    @property
    def traffic_gb_s(self) -> tuple[tuple[float, float], ...]:
        """MiB that each addition and copy moved, and 1e9 bytes a second, least traffic first."""
        return tuple(sorted(
            (each.operator.traffic_mib, each.operator.traffic_mib * 2**20 / each.kernel_ms / 1e6)
            for each in self.times
            if each.operator.op in ("add", "copy") and each.kernel_ms > 0
        ))  # fmt: skip


def _most(rates: Iterable[float]) -> float | None:
    return max(rates, default=None)
