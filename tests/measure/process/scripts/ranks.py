"""Two spawned ranks, each of which trains."""

import torch


def train(_rank):
    network = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    while True:
        network(torch.ones(1, 2)).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
