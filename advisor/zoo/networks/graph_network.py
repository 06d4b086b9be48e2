"""Graph convolutions (GCN, Kipf and Welling 2017): rows gathered and added along edges.

Depths and widths are those of the baselines that come with the data (Hu et al. 2020).
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_DROPOUT = 0.5


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Sizes of a graph and of the network for it.

    Attributes:
        nodes: Of each graph.
        edges: Of each graph, directed.
        features: Numbers that describe a node.
        layers: Graph convolutions.
        width: Numbers that each of them gives a node.
        per_node: Whether nodes are classified; else graphs are.
    """

    nodes: int
    edges: int
    features: int
    layers: int
    width: int
    per_node: bool


ARXIV = GraphShape(169_343, 1_166_243, features=128, layers=3, width=256, per_node=True)
MOLECULES = GraphShape(25, 54, features=9, layers=5, width=300, per_node=False)


class GraphConvolution(nn.Module):
    """Each node becomes the sum of its sources and itself, weighted by degrees, then projected."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.project = nn.Linear(before, after)

    def forward(self, nodes: Tensor, edges: Tensor, scale: Tensor) -> Tensor:
        """`nodes` (n, before), `edges` (2, e) from row 0 to row 1, `scale` (n, 1)."""
        sent = self.project(nodes) * scale
        summed = sent.index_add(0, edges[1], sent.index_select(0, edges[0]))
        return torch.mul(summed, scale)


class GraphNetwork(nn.Module):
    """Logits of nodes, shape (graphs, nodes, classes), or of graphs, (graphs, classes).

    Takes node features (graphs, nodes, features) and edges (graphs, 2, edges), which count the
    nodes of each graph from 0.
    """

    def __init__(self, shape: GraphShape, classes: int) -> None:
        super().__init__()
        self.per_node = shape.per_node
        widths = (shape.features, *(shape.width,) * shape.layers)
        self.layers = nn.ModuleList(GraphConvolution(*pair) for pair in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(shape.width) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, classes)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        graphs, nodes, _ = features.shape
        first = torch.arange(graphs, device=edges.device) * nodes
        joined = (edges + first[:, None, None]).transpose(0, 1).reshape(2, -1)
        hidden = features.flatten(0, 1)
        scale = _scale(joined[1], hidden)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = functional.relu(norm(layer(hidden, joined, scale)))
            hidden = functional.dropout(hidden, _DROPOUT, self.training)
        hidden = hidden.view(graphs, nodes, -1)
        logits: Tensor = self.head(hidden if self.per_node else hidden.mean(1))
        return logits


def _scale(targets: Tensor, nodes: Tensor) -> Tensor:
    """One over the root of each node's degree, itself counted, shape (nodes, 1)."""
    degrees = torch.ones(len(nodes), device=nodes.device)
    ones = torch.ones(len(targets), device=nodes.device)
    return degrees.index_add(0, targets, ones).rsqrt().unsqueeze(1)
