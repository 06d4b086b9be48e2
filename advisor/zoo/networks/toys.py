"""Networks small enough to train on a CPU, for trials."""

from torch import Tensor, nn

MLP_INPUTS = 784
_MLP_WIDTH = 512
_CNN_WIDTHS = (32, 64, 128)


def mlp(classes: int) -> nn.Module:
    """Two hidden layers over inputs of shape (batch, `MLP_INPUTS`)."""
    return nn.Sequential(
        nn.Linear(MLP_INPUTS, _MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, _MLP_WIDTH),
        nn.ReLU(),
        nn.Linear(_MLP_WIDTH, classes),
    )


class Cnn(nn.Module):
    """Three convolutions, each halving the side, over images of shape (batch, 3, side, side)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((3, *_CNN_WIDTHS), _CNN_WIDTHS, strict=False):
            layers += [nn.Conv2d(before, after, 3, 2, 1, bias=False), nn.BatchNorm2d(after)]
            layers += [nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(_CNN_WIDTHS[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        features = self.features(images)  # (batch, 128, side / 8, side / 8)
        logits: Tensor = self.head(features.mean((2, 3)))
        return logits
