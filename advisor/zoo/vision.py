"""Networks over images: classifiers, out of timm too, and a diffusion model; all untrained."""

import sys
from itertools import pairwise
from math import log
from types import ModuleType
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

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


def timm_network(workload: Workload) -> nn.Module:
    """Build the classifier on torch's default device; nothing is downloaded.

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


_COLUMNS, _COLUMN_WIDTHS = 6, (32, 64, 128, 256)


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
    for before, after in pairwise((3, *_COLUMN_WIDTHS)):
        layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    head = nn.Linear(_COLUMN_WIDTHS[-1], classes)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


MLP_INPUTS, _MLP_WIDTH = 784, 512


def mlp(classes: int) -> nn.Module:
    """Return a network of two hidden layers over inputs of shape (batch, `MLP_INPUTS`)."""
    first, second = nn.Linear(MLP_INPUTS, _MLP_WIDTH), nn.Linear(_MLP_WIDTH, _MLP_WIDTH)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(_MLP_WIDTH, classes))


_CNN_WIDTHS = (32, 64, 128)


class Cnn(nn.Module):
    """Three convolutions, each halving the side, over images of shape (batch, 3, side, side)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((3, *_CNN_WIDTHS)):
            convolution = nn.Conv2d(before, after, 3, 2, 1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(_CNN_WIDTHS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)  # (batch, 128, side / 8, side / 8)
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits


_WIDTHS = (128, 256, 256, 256)
_BLOCKS, _GROUPS, _DROPOUT = 2, 32, 0.1
_ATTENTION_SIDE = 16
_TIME_WIDTH = 4 * _WIDTHS[0]
_TIMES, _FIRST_BETA, _LAST_BETA = 1000, 1e-4, 0.02
_LONGEST_PERIOD = 10_000  # of the sines that stand for a time (Vaswani et al. 2017)
# Each level but the last halves the side.
_SIDE_STEP = 2 ** (len(_WIDTHS) - 1)


def check_side(resolution: int) -> None:
    """Refuse images that `UNet` cannot halve as often as it does.

    Raises:
        InvalidInput: `resolution`, in pixels, is not a multiple of 8.
    """
    if resolution % _SIDE_STEP:
        raise InvalidInput(
            f"the U-Net halves an image's side {len(_WIDTHS) - 1} times, so {resolution} px is "
            f"not possible. Use a multiple of {_SIDE_STEP}, such as 32 or 64."
        )


class Diffusion(nn.Module):
    """Error of the guessed noise in each image, shape (batch,), from images without noise.

    A denoising diffusion model (DDPM, Ho et al. 2020) with the U-Net of its CIFAR-10 runs. Widths,
    norms, dropout and noise schedule follow the paper's appendix B; images of 64 pixels get the
    same network, with attention where the side is 16 as well. Draws a time and the noise for every
    image, as each training step of the paper does.
    """

    def __init__(self, resolution: int) -> None:
        super().__init__()
        self.network = UNet(resolution)
        kept = torch.cumprod(1 - torch.linspace(_FIRST_BETA, _LAST_BETA, _TIMES), dim=0)
        self.register_buffer("kept", kept, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        times = torch.randint(_TIMES, (len(images),), device=images.device)
        noise = torch.randn_like(images)
        kept = self.get_buffer("kept").index_select(0, times).view(-1, 1, 1, 1)
        guessed = self.network(kept.sqrt() * images + (1 - kept).sqrt() * noise, times)
        return torch.mean((guessed.float() - noise).square(), dim=(1, 2, 3))


class UNet(nn.Module):
    """The noise, shaped like `images`, from noisy images (batch, 3, side, side) and their times."""

    def __init__(self, resolution: int) -> None:
        super().__init__()
        self.time = nn.Sequential(
            nn.Linear(_WIDTHS[0], _TIME_WIDTH), nn.SiLU(), nn.Linear(_TIME_WIDTH, _TIME_WIDTH)
        )
        self.first = nn.Conv2d(3, _WIDTHS[0], 3, padding=1)
        self.down, kept = _down(resolution)
        deepest = _WIDTHS[-1]
        self.middle = nn.ModuleList(
            [_ResidualBlock(deepest, deepest, True), _ResidualBlock(deepest, deepest)]
        )
        self.up = _up(resolution, kept)
        self.last = nn.Sequential(
            nn.GroupNorm(_GROUPS, _WIDTHS[0]), nn.SiLU(), nn.Conv2d(_WIDTHS[0], 3, 3, padding=1)
        )

    def forward(self, images: Tensor, times: Tensor) -> Tensor:
        time = self.time(_sines(times))
        hidden = self.first(images)
        kept = [hidden]
        for layer in self.down:
            hidden = layer(hidden, time)
            kept.append(hidden)
        for layer in self.middle:
            hidden = layer(hidden, time)
        for layer in self.up:
            if isinstance(layer, _ResidualBlock):
                hidden = torch.cat([hidden, kept.pop()], dim=1)
            hidden = layer(hidden, time)
        noise: Tensor = self.last(hidden)
        return noise


def _down(resolution: int) -> tuple[nn.ModuleList, list[int]]:
    """The way down, and the widths of all that the way up is given besides."""
    layers: list[nn.Module] = []
    side, kept = resolution, [_WIDTHS[0]]
    for level, width in enumerate(_WIDTHS):
        if level:
            layers.append(_Resized(kept[-1], halve=True))
            kept.append(kept[-1])
            side //= 2
        for _ in range(_BLOCKS):
            layers.append(_ResidualBlock(kept[-1], width, side == _ATTENTION_SIDE))
            kept.append(width)
    return nn.ModuleList(layers), kept


def _up(resolution: int, kept: list[int]) -> nn.ModuleList:
    layers: list[nn.Module] = []
    side, before, left = resolution // _SIDE_STEP, _WIDTHS[-1], list(kept)
    for level, width in reversed(list(enumerate(_WIDTHS))):
        for _ in range(_BLOCKS + 1):
            layers.append(_ResidualBlock(before + left.pop(), width, side == _ATTENTION_SIDE))
            before = width
        if level:
            layers.append(_Resized(width, halve=False))
            side *= 2
    return nn.ModuleList(layers)


class _ResidualBlock(nn.Module):
    """Two convolutions with a skip connection and the time added; optional attention after them."""

    def __init__(self, before: int, after: int, attends: bool = False) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(_GROUPS, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1)
        )
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(_TIME_WIDTH, after))
        convolution = nn.Conv2d(after, after, 3, padding=1)
        self.second = nn.Sequential(
            nn.GroupNorm(_GROUPS, after), nn.SiLU(), nn.Dropout(_DROPOUT), convolution
        )
        self.around = nn.Identity() if before == after else nn.Conv2d(before, after, 1)
        self.attention = _PixelAttention(after) if attends else nn.Identity()

    def forward(self, images: Tensor, time: Tensor) -> Tensor:
        hidden = self.first(images) + self.time(time)[:, :, None, None]
        seen: Tensor = self.attention(self.around(images) + self.second(hidden))
        return seen


class _PixelAttention(nn.Module):
    """One head over all pixels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(_GROUPS, width)
        self.to_qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, images: Tensor) -> Tensor:
        # (batch, 1, pixels, 3 width), contiguous, or torch would not use a fused kernel
        qkv = self.to_qkv(self.norm(images)).flatten(2).transpose(1, 2).contiguous().unsqueeze(1)
        query, key, value = qkv.chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        merged: Tensor = self.out(mixed.squeeze(1).transpose(1, 2).reshape(images.shape))
        return images + merged


class _Resized(nn.Module):
    """Halves or doubles the side; takes the time only to be called as the blocks are."""

    def __init__(self, width: int, *, halve: bool) -> None:
        super().__init__()
        self.halve = halve
        self.conv = nn.Conv2d(width, width, 3, stride=2 if halve else 1, padding=1)

    def forward(self, images: Tensor, _time: Tensor) -> Tensor:
        if not self.halve:
            images = functional.interpolate(images, scale_factor=2, mode="nearest")
        resized: Tensor = self.conv(images)
        return resized


def _sines(times: Tensor) -> Tensor:
    """Sines and cosines of `times` (batch,) at many periods, shape (batch, first width)."""
    half = _WIDTHS[0] // 2
    places = torch.arange(half, device=times.device)
    angles = times[:, None] * torch.exp(-log(_LONGEST_PERIOD) / (half - 1) * places)
    return torch.cat([angles.sin(), angles.cos()], dim=1)
