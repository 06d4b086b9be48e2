"""Training examples from image files: a folder for each class, or CIFAR-10's binary files.

A worker does what the usual training loops do for an image: read, decode, cut out at random, scale,
flip, normalise.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from advisor.errors import InvalidInput
from advisor.files.reading import reason_of

_IMAGES = (".jpg", ".jpeg", ".png")
_MOST_FILES = 20_000_000

# A record of CIFAR-10's binary version: a label, then 32 x 32 pixels in red, green and blue
# (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html).
_CIFAR_SIDE, _CIFAR_CLASSES = 32, 10
_CIFAR_RECORD = 1 + 3 * _CIFAR_SIDE**2
_CIFAR_FOLDER, _CIFAR_PICKLES = "cifar-10-batches-bin", "cifar-10-batches-py"

# What the padding of the usual CIFAR-10 recipe adds on each side (He et al. 2016, section 4.2), and
# the least share of an image's area that a cut-out has (Szegedy et al. 2015, section 6).
_PADDING, _LEAST_AREA = 4, 0.08


_Decoder = Callable[[bytes], Tensor]
"""Makes of a file's bytes an image of shape (3, height, width), uint8."""


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """The images in a folder: the files of each class, or records of CIFAR-10.

    Attributes:
        files: Paths, each with the number of its class; of CIFAR-10 its files of records.
        classes: Number of classes.
        count: Number of images.
    """

    files: tuple[tuple[str, int], ...]
    classes: int
    count: int
    cifar: bool


def find_images(folder: Path) -> ImageFolder:
    """Find the images in `folder`, or in its folder ``train``.

    Raises:
        InvalidInput: It holds none, or CIFAR-10 as pickles.
    """
    try:
        for place in (folder, folder / _CIFAR_FOLDER):
            if records := sorted(place.glob("data_batch_*.bin")):
                return _cifar(records)
        for place in (folder, folder / _CIFAR_PICKLES):
            if (place / "data_batch_1").is_file():
                raise InvalidInput(
                    f"{place}: CIFAR-10 as Python pickles, which run code when they are read. Use "
                    "the binary version, cifar-10-binary.tar.gz, from the same page."
                )
        train = folder / "train"
        images = _by_class(train if train.is_dir() else folder)
    except OSError as error:
        raise InvalidInput(f"{folder}: {reason_of(error)}. Check the path.") from None
    if not images.count:
        raise InvalidInput(
            f"{folder}: expected a folder of {', '.join(_IMAGES)} files for each class, or "
            "CIFAR-10's data_batch_1.bin. Check the path."
        )
    return images


def _cifar(records: Sequence[Path]) -> ImageFolder:
    count = 0
    for path in records:
        images, rest = divmod(path.stat().st_size, _CIFAR_RECORD)
        if rest or not images:
            raise InvalidInput(
                f"{path}: its size is not a multiple of {_CIFAR_RECORD}, a record of CIFAR-10. "
                "Download it again."
            )
        count += images
    files = tuple((str(path), 0) for path in records)
    return ImageFolder(files, _CIFAR_CLASSES, count, cifar=True)


def _by_class(folder: Path) -> ImageFolder:
    if not folder.is_dir():
        raise InvalidInput(f"folder of images {folder} not found. Check the path.")
    files: list[tuple[str, int]] = []
    classes = 0
    for name in sorted(each.name for each in os.scandir(folder) if each.is_dir()):
        images = [
            (os.path.join(root, file), classes)  # noqa: PTH118 - of millions
            for root, _, inside in os.walk(folder / name)
            for file in sorted(inside)
            if file.lower().endswith(_IMAGES)
        ]
        files += images
        classes += bool(images)
        if len(files) > _MOST_FILES:
            raise InvalidInput(f"{folder}: more than {_MOST_FILES:,} images. Name a part of it.")
    return ImageFolder(tuple(files), classes, len(files), cifar=False)


@dataclass(frozen=True)
class ImageFiles:
    """Images of `folder`, cut out and scaled to `resolution` x `resolution`, with their classes.

    Raises:
        InvalidInput: The folder has more classes than the model.
    """

    folder: ImageFolder
    resolution: int
    classes: int

    def __post_init__(self) -> None:
        if self.folder.classes > self.classes > 1:
            raise InvalidInput(
                f"the images have {self.folder.classes} classes, and the model has "
                f"{self.classes}. Choose a workload with more classes, or fewer folders."
            )

    def batch(self, count: int) -> tuple[Tensor, ...]:
        images, labels = zip(*(self.one() for _ in range(count)), strict=True)
        device = torch.get_default_device()
        return torch.stack(images).to(device), torch.stack(labels).to(device)

    def one(self) -> tuple[Tensor, ...]:
        number = int(torch.randint(self.folder.count, ()))
        image, label = self._record(number) if self.folder.cifar else self._file(number)
        if image.shape[1:] != (self.resolution, self.resolution):
            (image,) = functional.interpolate(
                image[None].float(),
                (self.resolution, self.resolution),
                mode="bilinear",
                antialias=True,
                align_corners=False,
            )
        scaled = image.float().div_(127.5).sub_(1)
        if torch.rand(()) < 0.5:
            scaled = scaled.flip(-1)
        return scaled, torch.tensor(label % self.classes)

    def _record(self, number: int) -> tuple[Tensor, int]:
        record = self._records[number]
        image = record[1:].view(3, _CIFAR_SIDE, _CIFAR_SIDE)
        padded = functional.pad(image, [_PADDING] * 4)
        top, left = torch.randint(2 * _PADDING + 1, (2,)).tolist()
        return padded[:, top : top + _CIFAR_SIDE, left : left + _CIFAR_SIDE], int(record[0])

    @cached_property
    def _records(self) -> Tensor:
        """All of CIFAR-10, shape (images, record), uint8."""
        parts = [
            torch.frombuffer(bytearray(Path(path).read_bytes()), dtype=torch.uint8)
            for path, _ in self.folder.files
        ]
        return torch.cat(parts).view(-1, _CIFAR_RECORD)

    def _file(self, number: int) -> tuple[Tensor, int]:
        path, label = self.folder.files[number]
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InvalidInput(f"{path}: {reason_of(error)}. Remove it, or repair it.") from None
        try:
            image = self._decode(content)
        except Exception as error:  # decoders raise what they like
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise InvalidInput(f"{path}: it cannot be decoded: {reason}. Remove it.") from None
        return _random_square(image), label

    @cached_property
    def _decode(self) -> _Decoder:
        """A decoder of the first file: torchvision if it does so here, else Pillow."""
        try:
            decode = _torchvision()
            decode(Path(self.folder.files[0][0]).read_bytes())
        except (ImportError, RuntimeError, AttributeError):
            return _pillow()
        return decode


def _random_square(image: Tensor) -> Tensor:
    height, width = image.shape[-2:]
    area = height * width * float(torch.empty(()).uniform_(_LEAST_AREA, 1.0))
    side = max(1, min(height, width, round(area**0.5)))
    top = int(torch.randint(height - side + 1, ()))
    left = int(torch.randint(width - side + 1, ()))
    return image[:, top : top + side, left : left + side]


def _torchvision() -> _Decoder:
    from advisor.zoo.vision import import_timm

    import_timm()  # makes torchvision importable with a torch for the CPU
    from torchvision.io import ImageReadMode, decode_image

    def decode(content: bytes) -> Tensor:
        buffer = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        image: Tensor = decode_image(buffer, mode=ImageReadMode.RGB)
        return image

    return decode


def _pillow() -> _Decoder:
    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        raise InvalidInput(
            "torchvision or Pillow decodes images, and neither imports: pip install pillow"
        ) from None

    def decode(content: bytes) -> Tensor:
        with Image.open(BytesIO(content)) as opened:
            pixels: Any = np.array(opened.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1)

    return decode
