"""How fast a host core is just now, told by a fixed piece of work like a training loop's own.

On a virtual machine a core's speed follows what others do on the same host: between hosts and
between minutes a host-bound step took up to 40 % longer, and so did this piece of work.
"""

from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_ROUNDS = 40
# Half interpreter and half dispatch into torch, as a step's host path is; about a millisecond.
_SUMS, _DISPATCHES = 8000, 300


def host_check_s() -> float:
    """Seconds that the piece of work takes on the core that this process is pinned to."""
    import torch

    tensor = torch.ones(4)
    return median(_round_s(tensor) for _ in range(_ROUNDS))


def _round_s(tensor: "torch.Tensor") -> float:
    began = perf_counter()
    total = 0
    for number in range(_SUMS):
        total += number * number % 7
    for _ in range(_DISPATCHES):
        tensor.add_(1)
    return perf_counter() - began
