"""A module and a Trainer of Lightning itself: ConvNeXt-tiny in bf16, images of 128 pixels."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Noise; one pass is as long as CIFAR-10's."""

    def __init__(self, size):
        self._images = torch.randn(64, 3, size, size)

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        return self._images[index % len(self._images)], index % 1000


class Classifier(lightning.LightningModule):
    def __init__(self, tiny):
        super().__init__()
        if tiny:
            self.network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1000))
        else:
            import timm

            self.network = timm.create_model("convnext_tiny", num_classes=1000)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=-1)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    loader = DataLoader(
        Images(8 if asked.tiny else 128),
        batch_size=4 if asked.tiny else asked.batch,
        num_workers=1,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    trainer = lightning.Trainer(
        max_steps=asked.steps,
        max_epochs=100,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        precision="bf16-mixed" if torch.cuda.is_available() else 32,
    )
    trainer.fit(Classifier(asked.tiny), loader)


if __name__ == "__main__":
    main()
