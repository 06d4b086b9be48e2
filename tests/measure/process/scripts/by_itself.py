"""A loop without an optimizer of torch, which says itself when a step has ended."""

import torch
from counted import count

import advisor

weight = torch.zeros(4, requires_grad=True)
while True:
    weight.sum().backward()
    with torch.no_grad():
        weight -= 1e-3 * weight.grad
    count()
    advisor.step()
