"""Image classifiers out of timm, randomly initialised; nothing is downloaded."""

import sys
from types import ModuleType
from typing import Self

import torch
from torch import Tensor, nn

from advisor.errors import InvalidInput, UnknownName
from advisor.workload.spec import Workload

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


# Declarations vanish with the object that made them, so it gets a lasting name.
_declarations: list[torch.library.Library] = []


def import_timm() -> ModuleType:
    """Import timm, also where only torchvision's C++ operators cannot be loaded.

    The registry's torchvision is built for CUDA, so its C++ operators cannot load with a torch for
    the CPU alone. Its import then fails at two operators that it registers in any case (seen in
    0.28.0). No model here calls them, so it is enough to declare them.
    """
    try:
        import torchvision  # noqa: F401 - only to see whether it imports
    except RuntimeError as error:
        if torch.version.cuda is not None or "torchvision::" not in str(error):
            raise
        for name in list(sys.modules):
            if name == "torchvision" or name.startswith("torchvision."):
                del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for operator in ("nms", "qnms"):
            library.define(operator + _SIGNATURE)  # type: ignore[no-untyped-call]
        _declarations.append(library)
    import timm

    return timm


class KeptStatistics(nn.Module):
    """A network that is trained in `eval()` mode: batch norms keep the statistics they have."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.eval()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)
        return logits

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - it stays in eval mode
        return self


def timm_network(workload: Workload) -> nn.Module:
    """Build the classifier on torch's default device.

    Raises:
        UnknownName: timm has no such model.
        InvalidInput: timm cannot build it at this resolution.
    """
    timm = import_timm()
    if not timm.is_model(workload.model):
        raise UnknownName(
            "timm model", workload.model, timm.list_models(), "`timm.list_models()` lists all."
        )
    # Models with learnt positions are built for one size; the others take any.
    fixed = timm.get_pretrained_cfg(workload.model)
    fixed_size = fixed is not None and fixed.fixed_input_size
    size = {"img_size": workload.resolution} if fixed_size else {}
    try:
        network: nn.Module = timm.create_model(
            workload.model, pretrained=False, num_classes=workload.classes, **size
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise InvalidInput(
            f"{workload.name}: timm cannot build {workload.model} for {workload.resolution} px "
            f"({error}). Try another resolution."
        ) from None
    return network


_COLUMNS = 6
_WIDTHS = (32, 64, 128, 256)


class MultiColumn(nn.Module):
    """Logits, shape (batch, classes), from images of shape (batch, 3, side, side).

    A multi-column network (MCDNN, Ciresan et al. 2012), each column on a CUDA stream of its own.
    The columns are independent until their logits are averaged, so a GPU may run them side by side,
    and no kernel is large. The sizes are ours, for images of 32 pixels.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.columns = nn.ModuleList(_column(classes) for _ in range(_COLUMNS))
        self._streams: list[torch.cuda.Stream] = []

    def forward(self, images: Tensor) -> Tensor:
        columns = self._in_streams(images) if images.is_cuda else [c(images) for c in self.columns]
        return torch.stack(columns).mean(0)

    def _in_streams(self, images: Tensor) -> list[Tensor]:
        """Autograd runs each column's backward pass on the stream of its forward pass."""
        if not self._streams:
            self._streams = [torch.cuda.Stream(images.device) for _ in self.columns]  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(images.device)
        logits = []
        for column, stream in zip(self.columns, self._streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                logits.append(column(images))
        for each, stream in zip(logits, self._streams, strict=True):
            current.wait_stream(stream)
            images.record_stream(stream)
            each.record_stream(current)
        return logits


def _column(classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip((3, *_WIDTHS), _WIDTHS, strict=False):
        layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(after, classes))


MLP_INPUTS = 784
_MLP_WIDTH = 512
_CNN_WIDTHS = (32, 64, 128)


def mlp(classes: int) -> nn.Module:
    """Two hidden layers over inputs of shape (batch, `MLP_INPUTS`)."""
    return nn.Sequential(
        nn.Linear(MLP_INPUTS, _MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, _MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, classes),
    )


class Cnn(nn.Module):
    """Three convolutions, each halving the side, over images of shape (batch, 3, side, side)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *_CNN_WIDTHS), _CNN_WIDTHS, strict=False):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after)]
            layers += [nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(_CNN_WIDTHS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)  # (batch, 128, side / 8, side / 8)
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits
