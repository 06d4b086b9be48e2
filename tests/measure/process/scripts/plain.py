"""A plain loop: reads a file beside it, has a loader, writes what nobody should find later."""

import os
import sys
from pathlib import Path

import torch
from counted import count
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

assert Path("settings.txt").read_text() == "as it was\n"
assert Path("../around.txt").read_text() == "near\n"
assert os.environ["SEED"] == "7"
assert not torch.cuda.is_initialized()
data = TensorDataset(torch.randn(120, 8), torch.randint(0, 3, (120,)))
loader = DataLoader(data, batch_size=int(sys.argv[1]), shuffle=True, num_workers=1)
network = torch.nn.Linear(8, 3)
optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
for _epoch in range(100_000):
    for inputs, target in loader:
        optimizer.zero_grad()
        cross_entropy(network(inputs), target).backward()
        optimizer.step()
        count()
    with Path("settings.txt").open("a") as written, Path("big.bin").open("wb") as big:
        written.write("changed\n")
        big.write(b"changed")
    torch.save(network.state_dict(), "model.pt")
