"""Trains a SegFormer of the size B1 of Hugging Face on images of 512 pixels, batch 8, in bf16."""

import torch
from progress import Progress
from torch.utils.data import DataLoader, Dataset
from transformers import SegformerConfig, SegformerForSemanticSegmentation

CLASSES = 21


class Scenes(Dataset):
    """Noise with a class for each pixel; an epoch is as long as that of Pascal VOC."""

    def __init__(self, side):
        self._images = torch.randint(256, (32, 3, side, side), dtype=torch.uint8)
        self._classes = torch.randint(CLASSES, (32, side, side), dtype=torch.uint8)

    def __len__(self):
        return 10_582

    def __getitem__(self, index):
        row = index % len(self._images)
        return self._images[row], self._classes[row]


def main():
    progress = Progress(__doc__)
    device, tiny = progress.device, progress.tiny
    sizes = {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 320, 512]}
    if tiny:
        sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 40, 64]}
    model = SegformerForSemanticSegmentation(SegformerConfig(num_labels=CLASSES, **sizes))
    model.to(device).train()
    loader = DataLoader(
        Scenes(64 if tiny else 512),
        2 if tiny else 8,
        shuffle=True,
        num_workers=0 if tiny else 2,
        pin_memory=device.type == "cuda",
        drop_last=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-5, weight_decay=0.01)
    while True:
        for images, classes in loader:
            pixels = images.to(device, non_blocking=True).float().div_(127.5).sub_(1)
            labels = classes.to(device, non_blocking=True).long()
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(pixel_values=pixels, labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not progress.step(loss):
                return


if __name__ == "__main__":
    main()
