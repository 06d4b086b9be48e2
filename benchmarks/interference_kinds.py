"""The kernels that `kernel_interference.py` runs against each other, after the classes of traces.

Over the profiles of an H200, kernels spend 34 % of their time in gemm, 14 % in elementwise, 14 % in
conv, 13 % in norm, 6 % in optimizer, 5 % in layout, 4 % in reduce, 3 % each in attention and
embedding, and under 1 % in every other class. Half of the time of gemm and conv goes to grids of at
most one block an SM, a third of that of norm and reduce to grids of half as many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Op = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kernel and the sizes in which it is tried.

    Attributes:
        name: E.g. ``"gemm-bf16"``.
        stands_for: The class of `advisor.measure.solo.chrome_trace.kernel_class` it stands for.
        dtype: Of what it computes with.
        build: From a device and a size, a call that enqueues the kernel once.
        sizes: The first fills the GPU; the others are candidates for smaller grids.
        shares: Shares of the SMs that its grid shall have blocks for; 1 takes the first size.
    """

    name: str
    stands_for: str
    dtype: str
    build: Callable[[str, int], Op]
    sizes: tuple[int, ...]
    shares: tuple[float, ...] = (1.0,)


def _normal(device: str, *shape: int, dtype: str = "float32") -> Any:
    import torch

    return torch.randn(*shape, device=device).to(getattr(torch, dtype))


def _gemm(dtype: str, depth: int, tf32: bool, rows: int | None = None) -> Callable[[str, int], Op]:
    def build(device: str, side: int) -> Op:
        import torch

        left = _normal(device, rows or side, depth, dtype=dtype)
        right = _normal(device, depth, side, dtype=dtype)

        def multiply() -> object:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            return torch.mm(left, right)

        return multiply

    return build


def _conv(
    dtype: str, channels: int, *, last: bool = False, groups: int = 1
) -> Callable[[str, int], Op]:
    def build(device: str, batch: int) -> Op:
        import torch

        layout = torch.channels_last if last else torch.contiguous_format
        images = _normal(device, batch, channels, 28, 28, dtype=dtype).to(memory_format=layout)
        weight = _normal(device, channels, channels // groups, 3, 3, dtype=dtype)
        weight = weight.to(memory_format=layout)
        return lambda: torch.nn.functional.conv2d(images, weight, padding=1, groups=groups)

    return build


def _weight_gradient(device: str, batch: int) -> Op:
    import torch

    images, weight = _normal(device, batch, 128, 28, 28), _normal(device, 128, 128, 3, 3)
    gradient = _normal(device, batch, 128, 28, 28)
    wanted = (False, True, False)  # of images, weight and bias
    return lambda: torch.ops.aten.convolution_backward(
        gradient, images, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, wanted
    )


def _attention(dtype: str) -> Callable[[str, int], Op]:
    def build(device: str, heads: int) -> Op:
        import torch

        query, key, value = (_normal(device, 1, heads, 1024, 64, dtype=dtype) for _ in range(3))
        return lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value)

    return build


def _add(device: str, elements: int) -> Op:
    import torch

    left, right = _normal(device, elements), _normal(device, elements)
    total = torch.empty_like(left)
    return lambda: torch.add(left, right, out=total)


def _layer_norm(device: str, rows: int) -> Op:
    import torch

    values, scale, shift = (_normal(device, *shape) for shape in ((rows, 768), (768,), (768,)))
    return lambda: torch.nn.functional.layer_norm(values, (768,), scale, shift)


def _layer_norm_gradient(device: str, rows: int) -> Op:
    import torch

    values, gradient = _normal(device, rows, 768), _normal(device, rows, 768)
    scale, shift = _normal(device, 768), _normal(device, 768)
    _, mean, spread = torch.ops.aten.native_layer_norm(values, (768,), scale, shift, 1e-5)
    return lambda: torch.ops.aten.native_layer_norm_backward(
        gradient, values, (768,), mean, spread, scale, shift, (True, True, True)
    )


def _batch_norm(device: str, channels: int) -> Op:
    import torch

    images = _normal(device, 64, channels, 28, 28)
    scale, shift = _normal(device, channels), _normal(device, channels)
    mean, variance = torch.zeros_like(scale), torch.ones_like(scale)
    return lambda: torch.nn.functional.batch_norm(images, mean, variance, scale, shift, True)


def _softmax(device: str, rows: int) -> Op:
    values = _normal(device, rows, 1024)
    return lambda: values.softmax(-1)


def _sum(device: str, rows: int) -> Op:
    values = _normal(device, rows, 1024)
    return lambda: values.sum(0)


def _gather(device: str, indices: int) -> Op:
    import torch

    table = _normal(device, 4 * indices, 64)
    chosen = torch.randint(len(table), (indices,), device=device)
    return lambda: torch.nn.functional.embedding(chosen, table)


def _scatter(device: str, indices: int) -> Op:
    import torch

    table, added = _normal(device, 4 * indices, 64), _normal(device, indices, 64)
    chosen = torch.randint(len(table), (indices,), device=device)
    return lambda: table.index_add_(0, chosen, added)


def _optimizer(device: str, elements: int) -> Op:
    import torch

    lists = [[torch.zeros(elements, device=device) for _ in range(32)] for _ in range(3)]
    return lambda: torch._foreach_addcmul_(*lists, value=1e-3)


def _layout(device: str, batch: int) -> Op:
    import torch

    images = _normal(device, batch, 256, 56, 56)
    return lambda: images.contiguous(memory_format=torch.channels_last)


def _copy(device: str, elements: int) -> Op:
    source, target = _normal(device, elements), _normal(device, elements)
    return lambda: target.copy_(source)


_MI = 2**20
_SIDES = (4096, 2048, 1536, 1280, 1024, 768, 512, 256)

# 36 of them with their shares: 666 pairs.
KINDS = (
    Kind("gemm-bf16", "gemm", "bfloat16", _gemm("bfloat16", 4096, True), _SIDES, (1.0, 0.5, 0.25)),
    Kind("gemm-tf32", "gemm", "tf32", _gemm("float32", 2048, True), _SIDES, (1.0, 0.5)),
    Kind("gemm-fp32", "gemm", "float32", _gemm("float32", 1024, False), _SIDES, (1.0, 0.5, 0.25)),
    Kind("gemm-skinny", "gemm", "float32", _gemm("float32", 650, False, 32), (2600,)),
    Kind("conv-amp", "conv", "bfloat16", _conv("bfloat16", 256, last=True),
         (64, 32, 16, 8, 4, 2, 1), (1.0, 0.5)),
    Kind("conv-tf32", "conv", "tf32", _conv("float32", 128), (128, 32, 16, 8, 4, 2), (1.0, 0.5)),
    Kind("conv-weights", "conv", "tf32", _weight_gradient, (64, 2)),
    Kind("conv-depthwise", "conv", "float32", _conv("float32", 256, groups=256), (64, 2)),
    Kind("attention-bf16", "attention", "bfloat16", _attention("bfloat16"),
         (192, 16, 8, 4, 2), (1.0, 0.5)),
    Kind("attention-fp32", "attention", "float32", _attention("float32"), (96, 2)),
    Kind("add-dram", "elementwise", "float32", _add, (64 * _MI, 4096)),
    Kind("add-l2", "elementwise", "float32", _add,
         (2 * _MI, 2**18, 2**17, 2**16, 2**15, 2**14), (1.0, 0.5, 0.25)),
    Kind("layer-norm", "norm", "float32", _layer_norm, (65536, 64)),
    Kind("layer-norm-gradient", "norm", "float32", _layer_norm_gradient, (65536, 64)),
    Kind("batch-norm", "norm", "float32", _batch_norm, (512, 132, 64, 32, 16), (1.0, 0.5, 0.25)),
    Kind("softmax", "softmax", "float32", _softmax, (65536, 64)),
    Kind("sum", "reduce", "float32", _sum, (65536, 16384, 4096, 1024, 256, 64), (1.0, 0.25)),
    Kind("gather", "embedding", "float32", _gather, (2**18, 256)),
    Kind("scatter", "embedding", "float32", _scatter, (2**18, 256)),
    Kind("foreach", "optimizer", "float32", _optimizer, (_MI, 2**17, 2**16, 2**10), (1.0, 0.25)),
    Kind("to-channels-last", "layout", "float32", _layout, (64, 1)),
    Kind("copy", "copy", "float32", _copy, (64 * _MI, 4096)),
)  # fmt: skip

BY_NAME = {each.name: each for each in KINDS}
