"""A plain loop: ResNet-50 on images of 64 pixels, as resnet50-imagenet64-bs32 of the zoo."""

import argparse
from itertools import count, cycle

import torch
from own_pace import OwnPace
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--read-loss", action="store_true", help="in every step")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, batch = (8, 4) if asked.tiny else (64, asked.batch)
    network = model(asked.tiny).to(device).train()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    batches = cycle(
        [
            (
                torch.randn(batch, 3, size, size, device=device),
                torch.randint(1000, (batch,), device=device),
            )
            for _ in range(2)
        ]
    )
    pace = OwnPace()
    for step in count():
        images, labels = next(batches)
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if asked.read_loss:
            loss.item()
        pace.step()
        if step == asked.steps:
            break


def model(tiny):
    if tiny:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1000))
    import timm

    return timm.create_model("resnet50", num_classes=1000)


main()
