"""A class that owns its loop, as with Lightning, and an optimizer of each parameter in backward."""

import torch
from counted import count


class Module:
    def __init__(self):
        self.network = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5)))
        for parameter in self.network.parameters():
            self._step_in_backward(parameter)

    @staticmethod
    def _step_in_backward(parameter):
        optimizer = torch.optim.SGD([parameter], lr=1e-3)

        def step(_parameter):
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)

    def training_step(self):
        return self.network(torch.ones(2, 4)).sum()


def fit(module):
    while True:
        module.training_step().backward()
        count()


fit(Module())
