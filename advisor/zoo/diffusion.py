"""A denoising diffusion model (DDPM, Ho et al. 2020) with the U-Net of its CIFAR-10 runs.

Widths, norms, dropout and noise schedule follow the paper's appendix B; images of 64 pixels get
the same network, with attention where the side is 16 as well.
"""

from math import log

import torch
from torch import Tensor, nn
from torch.nn import functional

from advisor.errors import InvalidInput

_WIDTHS = (128, 256, 256, 256)
_BLOCKS, _GROUPS, _DROPOUT = 2, 32, 0.1
_ATTENTION_SIDE = 16
_TIME_WIDTH = 4 * _WIDTHS[0]
_TIMES, _FIRST_BETA, _LAST_BETA = 1000, 1e-4, 0.02
_LONGEST_PERIOD = 10_000  # of the sines that stand for a time (Vaswani et al. 2017)
# Each level but the last halves the side.
_SIDE_STEP = 2 ** (len(_WIDTHS) - 1)


def check_side(resolution: int) -> None:
    """Refuse images that cannot be halved as often as the network does.

    Raises:
        InvalidInput: `resolution`, in pixels, is no multiple of 8.
    """
    if resolution % _SIDE_STEP:
        raise InvalidInput(
            f"the U-Net halves an image's side {len(_WIDTHS) - 1} times: {resolution} px is no "
            f"multiple of {_SIDE_STEP}. Take one, such as 32 or 64."
        )


class Diffusion(nn.Module):
    """Error of the guessed noise in each image, shape (batch,), from images without noise.

    Draws a time and the noise for every image, as each training step of the paper does.
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
        self.second = nn.Sequential(
            nn.GroupNorm(_GROUPS, after),
            nn.SiLU(),
            nn.Dropout(_DROPOUT),
            nn.Conv2d(after, after, 3, padding=1),
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
