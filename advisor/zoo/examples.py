"""Synthetic training examples: right in shape, type and host cost, random in content.

Each kind makes `batch(count)`, a whole batch at once on torch's default device, and `one()`, a
single host example with the work a data loader does for it. Both give the model's inputs first
and the target last.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# What the padding and random crop of the usual CIFAR-10 recipe add (He et al. 2016, section 4.2),
# as a share of the side.
_CROP_MARGIN = 1 / 8


class Examples(Protocol):
    def batch(self, count: int) -> tuple[Tensor, ...]:
        """`count` examples; each tensor's first dimension is `count`."""

    def one(self) -> tuple[Tensor, ...]:
        """One example in host memory, shaped as a row of `batch`."""


@dataclass(frozen=True, slots=True)
class Images:
    """RGB images of `resolution` x `resolution` pixels with a label."""

    resolution: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        pixels = torch.randn(count, 3, self.resolution, self.resolution)
        return pixels, torch.randint(self.classes, (count,))

    def one(self) -> tuple[Tensor, ...]:
        side = self.resolution + max(1, round(self.resolution * _CROP_MARGIN))
        decoded = torch.randint(256, (3, side, side), dtype=torch.uint8)
        top, left = torch.randint(side - self.resolution + 1, (2,)).tolist()
        crop = decoded[:, top : top + self.resolution, left : left + self.resolution]
        if torch.rand(()) < 0.5:
            crop = crop.flip(-1)
        return crop.float().div_(127.5).sub_(1), torch.randint(self.classes, ())


@dataclass(frozen=True, slots=True)
class Vectors:
    """Rows of `width` numbers with a label."""

    width: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        return torch.randn(count, self.width), torch.randint(self.classes, (count,))

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sequences of `length` token ids below `vocabulary`, with a label."""

    vocabulary: int
    length: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.length))
        return tokens, torch.randint(self.classes, (count,))

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Continuations:
    """Sequences of `length` token ids below `vocabulary`; the target is each one's successor."""

    vocabulary: int
    length: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Clicks:
    """Adverts with `dense` numbers and `sparse` row numbers below `rows`; clicked, 1, or not, 0."""

    dense: int
    sparse: int
    rows: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        numbers = torch.randn(count, self.dense)
        return (
            numbers,
            torch.randint(self.rows, (count, self.sparse)),
            torch.randint(2, (count,), dtype=torch.float32),
        )

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Ratings:
    """Pairs of a user and an item, by number, with a rating of about 0."""

    users: int
    items: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        users, items = torch.randint(self.users, (count,)), torch.randint(self.items, (count,))
        return users, items, torch.randn(count)

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Frames:
    """Sequences of `length` frames, each of `width` numbers, with a label."""

    length: int
    width: int
    classes: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        frames = torch.randn(count, self.length, self.width)
        return frames, torch.randint(self.classes, (count,))

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Spans:
    """Sequences of `source` token ids below `vocabulary`; the label of each is `target`.

    Inputs are the source and the target so far; the target is each of its tokens' successor.
    """

    vocabulary: int
    source: int
    target: int

    def batch(self, count: int) -> tuple[Tensor, ...]:
        tokens = torch.randint(self.vocabulary, (count, self.source))
        return tokens, *Continuations(self.vocabulary, self.target).batch(count)

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


@dataclass(frozen=True, slots=True)
class Graphs:
    """Graphs of `nodes` nodes with `features` each, and `edges` random edges between them.

    Inputs are features (nodes, features) and edges (2, edges), from the first row to the second;
    the target is a label of each node, or one of the graph.
    """

    nodes: int
    edges: int
    features: int
    classes: int
    per_node: bool

    def batch(self, count: int) -> tuple[Tensor, ...]:
        return (
            torch.randn(count, self.nodes, self.features),
            torch.randint(self.nodes, (count, 2, self.edges)),
            torch.randint(self.classes, (count, self.nodes) if self.per_node else (count,)),
        )

    def one(self) -> tuple[Tensor, ...]:
        return _row(self.batch(1))


def _row(batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(tensor[0] for tensor in batch)
