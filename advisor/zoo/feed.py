"""Feeds a step with batches from device memory, or from worker processes that make them."""

from collections.abc import Iterator
from itertools import cycle
from typing import Protocol, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from advisor.zoo.examples import Examples

_RESIDENT_BATCHES = 2


class Feed(Protocol):
    def next_batch(self) -> tuple[Tensor, ...]:
        """The next batch on the step's device, inputs first; a copy may still be under way."""

    def close(self) -> None:
        """End the processes that make batches; no batch can be read after it."""


class Resident:
    """A few batches that lie on the device already, in turn."""

    def __init__(self, examples: Examples, batch: int) -> None:
        self._batches = cycle([examples.batch(batch) for _ in range(_RESIDENT_BATCHES)])

    def next_batch(self) -> tuple[Tensor, ...]:
        return next(self._batches)

    def close(self) -> None:
        self._batches = cycle(())


class Loaded:
    """Host tensors from a `DataLoader` with `workers` processes, copied as they are asked for.

    The workers are forked at once, so make it before the process first touches a GPU, and not in
    a daemonic process, which may have no children.
    """

    def __init__(self, examples: Examples, batch: int, workers: int, device: torch.device) -> None:
        self._device = device
        # They never run dry, so there is no second pass for which to keep workers alive.
        loader = DataLoader(
            _Endless(examples),
            batch_size=batch,
            num_workers=workers,
            prefetch_factor=2,
            pin_memory=device.type == "cuda",
            multiprocessing_context="fork",
        )
        self._batches: Iterator[list[Tensor]] = iter(loader)

    def next_batch(self) -> tuple[Tensor, ...]:
        host = next(self._batches)
        return tuple(tensor.to(self._device, non_blocking=True) for tensor in host)

    def close(self) -> None:
        # The loader ends its workers, and waits for them, when nobody holds its iterator.
        self._batches = cast("Iterator[list[Tensor]]", iter(()))


class _Endless(IterableDataset[tuple[Tensor, ...]]):
    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        while True:
            yield self._examples.one()
