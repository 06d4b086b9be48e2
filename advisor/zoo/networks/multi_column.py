"""A multi-column network (MCDNN, Ciresan et al. 2012), each column on a CUDA stream of its own.

Its columns are independent until their logits are averaged, so that a GPU may run them side by
side, and no kernel is large. The sizes are ours, for images of 32 pixels.
"""

import torch
from torch import Tensor, nn

_COLUMNS = 6
_WIDTHS = (32, 64, 128, 256)


class MultiColumn(nn.Module):
    """Logits, shape (batch, classes), from images of shape (batch, 3, side, side)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.columns = nn.ModuleList(_column(classes) for _ in range(_COLUMNS))
        self._streams: list[torch.cuda.Stream] = []

    def forward(self, images: Tensor) -> Tensor:
        logits = self._in_streams(images) if images.is_cuda else self._in_turn(images)
        return torch.stack(logits).mean(0)

    def _in_turn(self, images: Tensor) -> list[Tensor]:
        return [column(images) for column in self.columns]

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
