"""In Lightning's manner: a module with hooks, a trainer that owns the loop, closures, a loader.

As mobilenetv3_large_100-imagenet64-bs128-loader2 of the zoo, whose images it makes.
"""

import argparse

import torch
from own_pace import OwnPace
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Crops and flips made on the spot; one pass is ImageNet's."""

    def __init__(self, size):
        self._size = size

    def __len__(self):
        return 1_281_167

    def __getitem__(self, index):
        side = self._size + max(1, round(self._size / 8))
        image = torch.randint(256, (3, side, side), dtype=torch.uint8)
        top, left = torch.randint(side - self._size + 1, (2,)).tolist()
        crop = image[:, top : top + self._size, left : left + self._size]
        if torch.rand(()) < 0.5:
            crop = crop.flip(-1)
        return crop.float().div_(127.5).sub_(1), torch.randint(1000, ())


class LitClassifier(nn.Module):
    def __init__(self, tiny):
        super().__init__()
        if tiny:
            self.network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1000))
        else:
            import timm

            self.network = timm.create_model("mobilenetv3_large_100", num_classes=1000)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3, momentum=0.9)


class LitTrainer:
    def __init__(self, max_steps):
        self._max_steps, self._steps, self._pace = max_steps, 0, OwnPace()
        self._device = "cuda" if torch.cuda.is_available() else "cpu"

    def fit(self, module, loader):
        module.to(self._device).train()
        optimizer = module.configure_optimizers()
        while True:
            for batch_idx, batch in enumerate(loader):
                moved = [each.to(self._device, non_blocking=True) for each in batch]

                def closure(moved=moved, batch_idx=batch_idx):
                    optimizer.zero_grad()
                    loss = module.training_step(moved, batch_idx)
                    loss.backward()
                    return loss.detach()

                optimizer.step(closure)
                self._pace.step()
                self._steps += 1
                if self._steps == self._max_steps:
                    return


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    loader = DataLoader(
        Images(8 if asked.tiny else 64),
        batch_size=4 if asked.tiny else 128,
        num_workers=2,
        pin_memory=torch.cuda.is_available(),
    )
    LitTrainer(asked.steps).fit(LitClassifier(asked.tiny), loader)
