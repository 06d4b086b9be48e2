"""Trains a recurrent world model, and an actor and a critic in what it imagines, as Dreamer does.

It has no environment: the episodes are noise. A step is one of each of the three optimizers.
"""

from itertools import pairwise

import torch
from progress import Progress
from torch import nn

ACTIONS = 6


def layers(*widths):
    """Return a perceptron with ELU between its layers."""
    modules = []
    for inputs, outputs in pairwise(widths):
        modules += [nn.Linear(inputs, outputs), nn.ELU()]
    return nn.Sequential(*modules[:-1])


class WorldModel(nn.Module):
    """Encodes frames of 64 pixels, and predicts state, frame and reward step by step."""

    def __init__(self, state, hidden, depth):
        super().__init__()
        self.state, self.hidden = state, hidden
        sizes = [3, depth, 2 * depth, 4 * depth, 8 * depth]
        down, up = [], []
        for inputs, outputs in pairwise(sizes):
            down += [nn.Conv2d(inputs, outputs, 4, 2, 1), nn.ELU()]
            up = [nn.ConvTranspose2d(outputs, inputs, 4, 2, 1), nn.ELU(), *up]
        self.encoder = nn.Sequential(*down, nn.Flatten())
        first = nn.Linear(state + hidden, 8 * depth * 16)
        self.decoder = nn.Sequential(first, nn.Unflatten(1, (8 * depth, 4, 4)), *up[:-1])
        self.into = layers(state + ACTIONS, hidden, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.prior = layers(hidden, hidden, 2 * state)
        self.posterior = layers(hidden + 8 * depth * 16, hidden, 2 * state)
        self.reward = layers(state + hidden, hidden, 1)

    def advance(self, state, memory, action):
        """Return the memory of the next step, and mean and spread of its state."""
        memory = self.cell(self.into(torch.cat([state, action], -1)).relu(), memory)
        return memory, *self._spread(self.prior(memory))

    def look(self, memory, features):
        """Return mean and spread of the state, with what the frame shows."""
        return self._spread(self.posterior(torch.cat([memory, features], -1)))

    @staticmethod
    def _spread(numbers):
        mean, spread = numbers.chunk(2, -1)
        return mean, nn.functional.softplus(spread) + 0.1


def drawn(mean, spread):
    return mean + spread * torch.randn_like(spread)


def observed(model, frames, actions):
    """Return states and memories of episodes (length, batch, ...), and the divergence."""
    length, batch = frames.shape[:2]
    features = model.encoder(frames.flatten(0, 1)).unflatten(0, (length, batch))
    state = frames.new_zeros(batch, model.state)
    memory = frames.new_zeros(batch, model.hidden)
    kept, divergence = [], 0.0
    for step in range(length):
        memory, mean, spread = model.advance(state, memory, actions[step])
        seen, width = model.look(memory, features[step])
        state = drawn(seen, width)
        ratio = (width / spread).square() + ((seen - mean) / spread).square()
        divergence = divergence + 0.5 * (ratio - 1 - 2 * (width / spread).log()).sum(-1).mean()
        kept.append(torch.cat([state, memory], -1))
    return torch.stack(kept), divergence / length


def imagined(model, actor, start, steps):
    """Return what follows from `start` (rows, state + hidden), as the actor acts."""
    state, memory = start.split([model.state, model.hidden], -1)
    kept = []
    for _ in range(steps):
        action = actor(torch.cat([state, memory], -1)).tanh()
        memory, mean, spread = model.advance(state, memory, action)
        state = drawn(mean, spread)
        kept.append(torch.cat([state, memory], -1))
    return torch.stack(kept)


def returns(rewards, values):
    """Return the discounted sum of rewards, mixed with values, from each step on."""
    sums, after = [], values[-1]
    for reward, value in zip(rewards.flip(0), values.flip(0), strict=True):
        after = reward + 0.99 * (0.05 * value + 0.95 * after)
        sums.append(after)
    return torch.stack(sums[::-1])


def main():
    progress = Progress(__doc__)
    device = progress.device
    length, batch, ahead, sizes = (
        (3, 2, 2, (4, 8, 2)) if progress.tiny else (32, 16, 15, (30, 200, 32))
    )
    model = WorldModel(*sizes).to(device)
    inputs, hidden = sum(sizes[:2]), sizes[1]
    actor = layers(inputs, hidden, hidden, ACTIONS).to(device)
    critic = layers(inputs, hidden, hidden, 1).to(device)
    optimizers = [
        torch.optim.Adam(network.parameters(), lr=rate)
        for network, rate in ((model, 6e-4), (actor, 8e-5), (critic, 8e-5))
    ]
    replay = torch.randint(256, (200, 16, 3, 64, 64), dtype=torch.uint8)[:, :batch]
    going_on = True
    while going_on:
        begin = int(torch.randint(len(replay) - length, ()))
        frames = replay[begin : begin + length].to(device).float().div_(255).sub_(0.5)
        actions = torch.randn(length, batch, ACTIONS, device=device)
        rewards = torch.randn(length, batch, 1, device=device)
        kept, divergence = observed(model, frames, actions)
        pixels = nn.functional.mse_loss(model.decoder(kept.flatten(0, 1)), frames.flatten(0, 1))
        loss = pixels + nn.functional.mse_loss(model.reward(kept), rewards) + 0.1 * divergence
        start = kept.detach().flatten(0, 1)
        dream = imagined(model, actor, start, ahead)
        sums = returns(model.reward(dream), critic(dream))
        valued = nn.functional.mse_loss(critic(dream.detach()), sums.detach())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward(inputs=list(model.parameters()))
        (-sums.mean()).backward(inputs=list(actor.parameters()))
        valued.backward(inputs=list(critic.parameters()))
        for optimizer in optimizers:
            optimizer.step()
        going_on = progress.step(loss)


if __name__ == "__main__":
    main()
