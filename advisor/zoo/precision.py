"""Number formats of a step: torch's own, TF32 where torch would use FP32, bf16 or fp16 autocast."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from advisor.workload.spec import Precision

# The names torch has had since 2.9 for what were `matmul.allow_tf32` and `cudnn.allow_tf32`: the
# old ones warn in some releases, and torch refuses a mixture of both.
_CUDNN: Any = torch.backends.cudnn
_SWITCHES = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn)
_TORCH_OWN = tuple(switch.fp32_precision for switch in _SWITCHES)

_AUTOCAST = {"amp": torch.bfloat16, "fp16": torch.float16}


def set_switches(precision: Precision) -> None:
    """Set torch's process-wide TF32 switches for `precision`.

    All of them are set each time, so that no workload inherits those of the one before.
    """
    wanted = ("tf32",) * len(_SWITCHES) if precision == "tf32" else _TORCH_OWN
    for switch, value in zip(_SWITCHES, wanted, strict=True):
        switch.fp32_precision = value


def autocast(precision: Precision, device: str) -> AbstractContextManager[object]:
    """The context in which forward pass and loss run, fresh for each step."""
    if precision in _AUTOCAST:
        return torch.autocast(device, dtype=_AUTOCAST[precision])
    return nullcontext()
