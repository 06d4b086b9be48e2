"""As a GAN trains: two steps of one optimizer, then one of another, with accumulated gradients."""

import torch
from counted import count

first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
of_first = torch.optim.SGD(first.parameters(), lr=1e-3)
of_second = torch.optim.SGD(second.parameters(), lr=1e-3)
while True:
    for _ in range(2):
        for _ in range(3):
            second(first(torch.ones(2, 4)).detach()).sum().backward()
        of_second.step()
    second(first(torch.ones(2, 4))).sum().backward()
    of_first.step()
    count()
