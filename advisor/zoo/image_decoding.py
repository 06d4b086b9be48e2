"""Decodes image files, by torchvision or Pillow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from advisor.errors import InvalidInput

_NO_DECODER = "images are decoded by torchvision or Pillow, and neither imports: pip install pillow"

Decoder = Callable[[bytes], Tensor]
"""Makes of a file's bytes an image of shape (3, height, width), uint8."""


def decoder(sample: Path) -> Decoder:
    """What decodes `sample`: torchvision where it does so here, else Pillow.

    Raises:
        InvalidInput: Neither imports.
    """
    try:
        found = _torchvision()
        found(sample.read_bytes())
    except (ImportError, RuntimeError, AttributeError):
        return _pillow()
    return found


def _torchvision() -> Decoder:
    from advisor.zoo.vision import import_timm

    import_timm()  # which makes torchvision importable beside a torch for the CPU
    from torchvision.io import ImageReadMode, decode_image

    def decode(content: bytes) -> Tensor:
        buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        image: Tensor = decode_image(buffer, mode=ImageReadMode.RGB)
        return image

    return decode


def _pillow() -> Decoder:
    from io import BytesIO

    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        raise InvalidInput(_NO_DECODER) from None

    def decode(content: bytes) -> Tensor:
        with Image.open(BytesIO(content)) as opened:
            pixels: Any = np.array(opened.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1)

    return decode
