"""No training by torch's optimizers: evolves weights by trial, and prints how many it tries."""

import argparse
from itertools import count
from time import perf_counter

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--tiny", action="store_true")
side = 32 if parser.parse_args().tiny else 2048
device = "cuda" if torch.cuda.is_available() else "cpu"
weights, target = (torch.randn(side, side, device=device) for _ in range(2))
began = perf_counter()
for generation in count(1):
    candidates = weights + 0.01 * torch.randn(8, side, side, device=device)
    errors = (torch.matmul(candidates, target) - target).square().mean(dim=(1, 2))
    weights = candidates[errors.argmin()]
    if generation % 10 == 0:
        torch.cuda.synchronize() if device == "cuda" else None
        now = perf_counter()
        print(f"generation {generation}: {80 / (now - began):.2f} candidates/s", flush=True)
        began = now
