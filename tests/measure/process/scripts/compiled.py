"""A compiled step, optimizer and all."""

import torch
from counted import count

network = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)


@torch.compile(backend="eager")
def update():
    optimizer.step()


while True:
    network(torch.ones(2, 4)).sum().backward()
    update()
    optimizer.zero_grad()
    count()
