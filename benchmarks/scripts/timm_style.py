"""In the style of timm's train.py: ViT-S in bf16, as vit_small_patch16_224-imagenet-bs32-amp."""

import argparse
import logging
from contextlib import nullcontext
from functools import partial

import torch
from own_pace import OwnPace
from torch import nn

_logger = logging.getLogger("train")


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, count=1):
        self.sum += value * count
        self.count += count

    @property
    def avg(self):
        return self.sum / max(1, self.count)


class PrefetchLoader:
    """Hands out batches on the device, as timm's loader of that name does."""

    def __init__(self, device, batch, size, length):
        self._length = length
        self._batches = [
            (
                torch.randn(batch, 3, size, size, device=device),
                torch.randint(1000, (batch,), device=device),
            )
            for _ in range(2)
        ]

    def __len__(self):
        return self._length

    def __iter__(self):
        for number in range(self._length):
            yield self._batches[number % 2]


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, args, autocast, pace):
    model.train()
    losses_m = AverageMeter()
    for batch_idx, (input, target) in enumerate(loader):
        with autocast():
            output = model(input)
            loss = loss_fn(output, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        pace.step()
        if batch_idx % args.log_interval == 0:
            losses_m.update(loss.item(), input.size(0))
            _logger.info(
                "Train: %d [%d/%d] Loss: %.4g", epoch, batch_idx, len(loader), losses_m.avg
            )
        args.left -= 1
        if args.left == 0:
            raise SystemExit


def main():
    parser = argparse.ArgumentParser(description="PyTorch ImageNet Training")
    parser.add_argument("--model", default="vit_small_patch16_224")
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--log-interval", type=int, default=50)
    parser.add_argument("--steps", dest="left", type=int, default=-1)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = 8 if args.tiny else 224
    if args.tiny:
        model = nn.Sequential(nn.Flatten(), nn.LayerNorm(3 * 8 * 8), nn.Linear(3 * 8 * 8, 1000))
    else:
        import timm

        model = timm.create_model(args.model, pretrained=False, num_classes=1000)
    model.to(device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    amp = device.type == "cuda"
    autocast = partial(torch.autocast, device.type, dtype=torch.bfloat16) if amp else nullcontext
    loader, pace = PrefetchLoader(device, args.batch_size, size, 1000), OwnPace()
    for epoch in range(300):
        train_one_epoch(
            epoch, model, loader, optimizer, nn.CrossEntropyLoss(), args, autocast, pace
        )


main()
