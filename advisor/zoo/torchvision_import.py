"""Imports torchvision, which timm needs, with a torch that was built without CUDA.

The registry's torchvision is built for CUDA, so its C++ operators cannot load with a torch for
the CPU alone, and its import ends at two operators that it registers in any case (seen in 0.28.0).
No model here calls them: it is enough that they are declared.
"""

import sys
from types import ModuleType

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_timm() -> ModuleType:
    """The module timm, also where only torchvision's C++ operators cannot be loaded."""
    try:
        import torchvision  # noqa: F401 - only to see whether it imports
    except RuntimeError as error:
        if torch.version.cuda is not None or "torchvision::" not in str(error):
            raise
        _forget_torchvision()
        _declare_operators()
    import timm

    return timm


def _forget_torchvision() -> None:
    for name in list(sys.modules):
        if name == "torchvision" or name.startswith("torchvision."):
            del sys.modules[name]


# Declarations vanish with the object that made them, so it gets a lasting name.
_declarations: list[torch.library.Library] = []


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        library.define(operator + _SIGNATURE)  # type: ignore[no-untyped-call]
    _declarations.append(library)
