"""Trains an R(2+1)D network of 18 layers on clips of 16 frames, batch 16, in bf16."""

from itertools import pairwise

import torch
from progress import Progress
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 101


class Clips(Dataset):
    """Noise; an epoch is as long as that of UCF-101."""

    def __init__(self, frames, side):
        self._clips = torch.randint(256, (48, 3, frames, side, side), dtype=torch.uint8)

    def __len__(self):
        return 9_537

    def __getitem__(self, index):
        clip = self._clips[index % len(self._clips)]
        return (clip.flip(-1) if index % 2 else clip), index % CLASSES


def factored(inputs, outputs, stride):
    """Return a convolution of 3 x 3 pixels, then one of 3 frames, with its parameters."""
    middle = inputs * outputs * 27 // (inputs * 9 + outputs * 3)
    return nn.Sequential(
        nn.Conv3d(inputs, middle, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
        nn.BatchNorm3d(middle),
        nn.ReLU(inplace=True),
        nn.Conv3d(middle, outputs, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False),
    )


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            factored(inputs, outputs, stride),
            nn.BatchNorm3d(outputs),
            nn.ReLU(inplace=True),
            factored(outputs, outputs, 1),
            nn.BatchNorm3d(outputs),
        )
        self.around = nn.Identity()
        if stride > 1:
            self.around = nn.Sequential(
                nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs)
            )

    def forward(self, clips):
        return nn.functional.relu(self.body(clips) + self.around(clips))


def network(width):
    stem = nn.Sequential(
        nn.Conv3d(3, 45, (1, 7, 7), (1, 2, 2), (0, 3, 3), bias=False),
        nn.BatchNorm3d(45),
        nn.ReLU(inplace=True),
        nn.Conv3d(45, width, (3, 1, 1), padding=(1, 0, 0), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(inplace=True),
    )
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    blocks = []
    for stage, (inputs, outputs) in enumerate(pairwise(widths)):
        blocks += [Block(inputs, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
    head = [nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8 * width, CLASSES)]
    return nn.Sequential(stem, *blocks, *head)


def main():
    progress = Progress(__doc__)
    frames, side, batch, width = (4, 16, 2, 8) if progress.tiny else (16, 112, 16, 64)
    device = progress.device
    loader = DataLoader(
        Clips(frames, side),
        batch,
        shuffle=True,
        num_workers=0 if progress.tiny else 2,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    model = network(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    while True:
        for clips, labels in loader:
            pixels = clips.to(device, non_blocking=True).float().div_(127.5).sub_(1)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = nn.functional.cross_entropy(model(pixels), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not progress.step(loss):
                return


if __name__ == "__main__":
    main()
