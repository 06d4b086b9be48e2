"""Lets tensors without content take the memory that they would take on a GPU.

Torch's meta device has shapes and no numbers, so no GPU is needed. But where torch has kernels of
its own for a GPU, meta tensors go through slower ones that keep other intermediate results. Here
those calls are replaced: dropout keeps a mask of one byte, fused attention never holds its
attention matrix, cuDNN's recurrent layers keep a reserve, and autocast casts what CUDA's would.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# What autocast computes in half precision on CUDA, of the calls that models make.
_HALVED = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear", "matmul", "__matmul__", "mm",
    "bmm", "addmm", "addbmm", "baddbmm", "einsum", "scaled_dot_product_attention", "lstm", "gru",
})  # fmt: skip
# And what in single precision.
_SINGLE = frozenset({
    "layer_norm", "group_norm", "nll_loss", "mse_loss",
    "binary_cross_entropy_with_logits", "cumsum", "prod", "sum", "norm", "exp", "log", "pow",
    "__pow__", "rsqrt", "softplus", "normalize", "cumprod",
})  # fmt: skip

# Either type of two bytes will do for sizes; with this one torch lets softmax read halves and
# write singles without content, as it does on a GPU with both.
_HALF = torch.float16

# Numbers that cuDNN keeps for the way back of each output number of a layer: the gates, and what
# goes from one step to the next.
_KEPT = {"lstm": 6, "gru": 5}


class AsOnGpu(TorchFunctionMode):
    """While active, forward passes on the meta device keep what they would keep on a GPU.

    Args:
        halved: Whether under autocast to a type of two bytes.
    """

    def __init__(self, *, halved: bool) -> None:
        super().__init__()
        self._halved = halved
        self._cast_weights: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self._halved and (name in _HALVED or name in _SINGLE):
            wanted = _HALF if name in _HALVED else torch.float32
            args = [self._cast(each, wanted) for each in args]
            kwargs = {key: self._cast(each, wanted) for key, each in kwargs.items()}
        replacement = _REPLACED.get(name)
        if self._halved and name in _NORMALISED:
            replacement = _NORMALISED[name]
        if replacement is not None:
            return replacement(func, *args, **kwargs)
        return func(*args, **kwargs)

    def __exit__(self, *reason: Any) -> None:
        self._cast_weights.clear()
        super().__exit__(*reason)  # type: ignore[no-untyped-call]

    def _cast(self, value: Any, wanted: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(each, wanted) for each in value)
        floating = isinstance(value, Tensor) and value.is_floating_point()
        if not floating or value.dtype == wanted:
            return value
        if not (value.is_leaf and value.requires_grad):
            return value.to(wanted)
        if id(value) not in self._cast_weights:  # as autocast: weights are cast once a pass
            self._cast_weights[id(value)] = value.to(wanted)
        return self._cast_weights[id(value)]


def _dropout(
    func: Any, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    if not training or p == 0 or inplace:
        return func(input, p, training, inplace)  # type: ignore[no-any-return]
    return torch.native_dropout(input, p, True)[0]


def _softmax(_func: Any, input: Tensor, dim: int = -1, *_rest: Any, **_options: Any) -> Tensor:
    return torch._softmax(input, dim, input.dtype == _HALF)


def _log_softmax(_func: Any, input: Tensor, dim: int = -1, *_rest: Any, **_options: Any) -> Tensor:
    return torch._log_softmax(input, dim, input.dtype == _HALF)


def _cross_entropy(_func: Any, input: Tensor, target: Tensor, **options: Any) -> Tensor:
    logs = _log_softmax(None, input, 1)
    ignored = options.get("ignore_index", -100)
    loss: Tensor = torch.nn.functional.nll_loss(logs, target, ignore_index=ignored)
    return loss


def _attention(_func: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
) -> Tensor:  # fmt: skip
    mask = rest[0] if rest else options.get("attn_mask")
    mixed: Tensor = _FusedAttention.apply(query, key, value, mask)  # type: ignore[no-untyped-call]
    return mixed


class _FusedAttention(torch.autograd.Function):
    """Keeps inputs, output and one number a row, as memory-efficient and flash attention do."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        *batch, heads, length, _ = query.shape
        # Rows of heads lie together, as in (batch, length, heads, width).
        mixed = query.new_empty(*batch, length, heads, value.shape[-1]).transpose(-2, -3)
        row_sums = query.new_empty(*batch, heads, -(-length // 32) * 32, dtype=torch.float32)
        ctx.save_for_backward(query, key, value, mixed, row_sums, mask)
        return mixed

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, _mixed, row_sums, mask = ctx.saved_tensors
        _deltas = torch.empty_like(row_sums)
        sums = None
        if query.element_size() < 4:  # flash attention adds up in single precision
            sums = torch.empty_like(query, dtype=torch.float32)
        found = [torch.empty_like(each) for each in (query, key, value)]
        del sums
        wants_mask = mask is not None and mask.requires_grad
        return (*found, torch.empty_like(mask) if wants_mask else None)


def _recurrent(func: Any, input: Tensor, states: Any, weights: Any, *options: Any) -> Any:
    name = func.__name__
    if not isinstance(weights, (list, tuple)):
        return func(input, states, weights, *options)  # packed sequences; none here has them
    hidden = states[0] if name == "lstm" else states
    mixed, *last = _CudnnRecurrent.apply(input, hidden, _KEPT[name], options[-2], *weights)  # type: ignore[no-untyped-call]
    return (mixed, *last, *last) if name == "lstm" else (mixed, *last)


class _CudnnRecurrent(torch.autograd.Function):
    """Keeps input, output, weights and a reserve.

    Each way takes a workspace meanwhile. cuDNN does not say how large: on an H200 that of a
    three-layer GRU was as large as its reserve, within 2 %.
    """

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, hidden: Tensor, kept: int, bidirectional: bool, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        width = hidden.shape[-1] * (2 if bidirectional else 1)
        mixed = input.new_empty(*input.shape[:-1], width)
        layers = hidden.shape[0] // (2 if bidirectional else 1)
        reserve = input.new_empty(layers, kept, *mixed.shape)
        _workspace = torch.empty_like(reserve)
        ctx.save_for_backward(input, mixed, reserve, *weights)
        return mixed, torch.empty_like(hidden, dtype=input.dtype)

    @staticmethod
    def backward(ctx: Any, *_gradients: Tensor) -> tuple[Tensor | None, ...]:
        input, _mixed, reserve, *weights = ctx.saved_tensors
        found = [torch.empty_like(each) for each in (input, *weights)]
        _workspace = torch.empty_like(reserve)
        return (found[0], None, None, None, *found[1:])


_REPLACED: dict[str, Callable[..., Any]] = {
    "dropout": _dropout,
    "scaled_dot_product_attention": _attention,
    "lstm": _recurrent,
    "gru": _recurrent,
}
_NORMALISED: dict[str, Callable[..., Any]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "cross_entropy": _cross_entropy,
}


def meta_storages(values: Sequence[Any]) -> list[torch.UntypedStorage]:
    """The storages of all meta tensors among `values`, nested or not, sparse ones' parts too."""
    found: list[torch.UntypedStorage] = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += meta_storages(value)
        elif isinstance(value, Tensor) and value.device.type == "meta":
            if value.is_sparse:
                found += meta_storages([value._indices(), value._values()])
            else:
                found.append(value.untyped_storage())
    return found
