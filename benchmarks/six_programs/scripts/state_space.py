"""Trains a diagonal state-space network (S4D) on sequences of 4,096 numbers, batch 16."""

from math import log, pi

import torch
from progress import Progress
from torch import nn

CLASSES = 10


class StateSpace(nn.Module):
    """A layer whose channels are linear systems of `states` states, applied by FFT."""

    def __init__(self, width, states):
        super().__init__()
        self.log_step = nn.Parameter(torch.empty(width).uniform_(log(1e-3), log(1e-1)))
        self.log_decay = nn.Parameter(torch.full((width, states // 2), log(0.5)))
        self.frequency = nn.Parameter(pi * torch.arange(states // 2).repeat(width, 1))
        self.read_out = nn.Parameter(torch.randn(width, states // 2, 2))
        self.skip = nn.Parameter(torch.randn(width))
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Conv1d(width, 2 * width, 1)

    def kernel(self, length):
        """Return the impulse response of each channel, shape (width, length)."""
        poles = torch.complex(-self.log_decay.exp(), self.frequency)
        steps = poles * self.log_step.exp()[:, None]
        weights = torch.view_as_complex(self.read_out) * (steps.exp() - 1) / poles
        times = torch.arange(length, device=steps.device)
        powers = (steps[..., None] * times).exp()
        return 2 * torch.einsum("wn,wnl->wl", weights, powers).real

    def forward(self, sequences):
        length = sequences.shape[-1]
        inputs = self.norm(sequences.transpose(1, 2)).transpose(1, 2)
        spectrum = torch.fft.rfft(inputs, 2 * length)
        response = torch.fft.rfft(self.kernel(length), 2 * length)
        outputs = torch.fft.irfft(spectrum * response, 2 * length)[..., :length]
        outputs = nn.functional.gelu(outputs + inputs * self.skip[:, None])
        return sequences + nn.functional.glu(self.mix(outputs), dim=1)


class Classifier(nn.Module):
    def __init__(self, width, states, layers):
        super().__init__()
        self.spread = nn.Conv1d(1, width, 1)
        self.layers = nn.Sequential(*(StateSpace(width, states) for _ in range(layers)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, sequences):
        return self.head(self.layers(self.spread(sequences)).mean(-1))


def main():
    progress = Progress(__doc__)
    device = progress.device
    width, layers, length, batch = (8, 1, 64, 2) if progress.tiny else (128, 6, 4096, 16)
    data = torch.randn(50 * batch, 1, length, device=device)  # the whole data set is on the GPU
    labels = torch.randint(CLASSES, (len(data),), device=device)
    model = Classifier(width, 16 if progress.tiny else 64, layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    going_on = True
    while going_on:
        rows = torch.randint(len(data), (batch,), device=device)
        loss = nn.functional.cross_entropy(model(data[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        going_on = progress.step(loss)


if __name__ == "__main__":
    main()
