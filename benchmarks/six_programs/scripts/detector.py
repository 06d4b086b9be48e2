"""Trains a DETR-like detector, whose boxes are matched on the host, on 320 pixels, batch 8."""

from itertools import pairwise

import torch
from progress import Progress
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES, QUERIES, MOST_BOXES = 80, 100, 20


class Pictures(Dataset):
    """Noise with 1 to 20 boxes; an epoch is as long as that of COCO."""

    def __init__(self, side):
        self._images = torch.randint(256, (64, 3, side, side), dtype=torch.uint8)

    def __len__(self):
        return 118_287

    def __getitem__(self, index):
        count = 1 + index % MOST_BOXES
        boxes = torch.rand(count, 4) * 0.4 + 0.05
        return self._images[index % len(self._images)], torch.randint(CLASSES, (count,)), boxes


def collated(examples):
    images, classes, boxes = zip(*examples, strict=True)
    return torch.stack(images), classes, boxes


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, images):
        return nn.functional.relu(self.body(images) + self.around(images))


class Detector(nn.Module):
    def __init__(self, widths, model, layers):
        super().__init__()
        blocks = [nn.Conv2d(3, 32, 7, 2, 3)]
        for inputs, outputs in pairwise((32, *widths)):
            blocks += [Residual(inputs, outputs, 2), Residual(outputs, outputs, 1)]
        self.backbone = nn.Sequential(*blocks, nn.Conv2d(widths[-1], model, 1))
        self.transformer = nn.Transformer(model, 8, layers, layers, 4 * model, batch_first=True)
        self.queries = nn.Parameter(torch.randn(QUERIES, model))
        self.places = nn.Parameter(0.02 * torch.randn(400, model))
        self.classes = nn.Linear(model, CLASSES + 1)
        self.boxes = nn.Sequential(nn.Linear(model, model), nn.ReLU(), nn.Linear(model, 4))

    def forward(self, images):
        features = self.backbone(images).flatten(2).transpose(1, 2)
        features = features + self.places[: features.shape[1]]
        queries = self.queries.expand(len(images), -1, -1)
        outputs = self.transformer(features, queries)
        return self.classes(outputs), self.boxes(outputs).sigmoid()


def corners(boxes):
    """Return the corners nearest to and farthest from the origin, of boxes (..., 4)."""
    centres, sizes = boxes.split(2, -1)
    return centres - sizes / 2, centres + sizes / 2


def overlap(some, others):
    """Return the intersection over union of each of `some` (n, 4) with each of `others` (m, 4)."""
    begins, ends = corners(some[:, None])
    other_begins, other_ends = corners(others)
    sides = torch.minimum(ends, other_ends) - torch.maximum(begins, other_begins)
    shared = sides.clamp(min=0).prod(-1)
    return shared / (some[:, 2:].prod(-1)[:, None] + others[:, 2:].prod(-1) - shared + 1e-6)


def picture_loss(logits, boxes, classes, targets):
    """Return the loss of one picture after matching its boxes to queries on the host."""
    distances = torch.cdist(boxes, targets, p=1)
    overlaps = overlap(boxes, targets)
    costs = 5 * distances - 2 * overlaps - logits.softmax(-1)[:, classes]
    rows, columns = linear_sum_assignment(costs.detach().cpu().numpy())
    wanted = torch.full((QUERIES,), CLASSES, device=logits.device)
    wanted[rows] = classes[columns]
    named = nn.functional.cross_entropy(logits, wanted)
    return named + 5 * distances[rows, columns].mean() + 2 * (1 - overlaps[rows, columns]).mean()


def main():
    progress = Progress(__doc__)
    device, tiny = progress.device, progress.tiny
    torch.set_float32_matmul_precision("high")
    widths, width, layers = ((8, 16), 16, 1) if tiny else ((64, 128, 256, 512), 256, 3)
    model = Detector(widths, width, layers).to(device)
    loader = DataLoader(
        Pictures(32 if tiny else 320),
        2 if tiny else 8,
        shuffle=True,
        collate_fn=collated,
        num_workers=0 if tiny else 2,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    while True:
        for images, classes, boxes in loader:
            pixels = images.to(device, non_blocking=True).float().div_(127.5).sub_(1)
            answers = zip(*model(pixels), classes, boxes, strict=True)
            loss = sum(
                picture_loss(logits, places, named.to(device), targets.to(device))
                for logits, places, named, targets in answers
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            if not progress.step(loss):
                return


if __name__ == "__main__":
    main()
