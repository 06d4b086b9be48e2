"""Networks that look up rows of tables, and graph convolutions, which add rows along edges."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

DENSE_FEATURES, SPARSE_FEATURES = 13, 26
_WIDTH = 64
_BOTTOM = (DENSE_FEATURES, 512, 256, _WIDTH)
_TOP = (512, 256, 1)
# The features share a few tables: their number would otherwise decide the host's work.
_TABLES = 4
_ROW_BYTES = _WIDTH * 4

# MovieLens 25M (Harper and Konstan 2015).
USERS, ITEMS = 162_541, 59_047


def rows_of_tables(table_mib: int) -> int:
    """Return the rows of each table, so that all of them together take `table_mib`."""
    return table_mib * 2**20 // (_TABLES * _ROW_BYTES)


class Recommender(nn.Module):
    """Click logits, shape (batch,), from dense features and row numbers of sparse ones.

    The tables' gradients are sparse; use plain SGD, since any momentum would double the tables.

    DLRM (Naumov et al. 2019): large tables, small networks, dot products. It has 13 dense and 26
    sparse features, as Criteo's data has. The widths follow the benchmark configuration of the
    paper's code; the sizes of the tables follow from the chosen memory.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(rows, _WIDTH, mode="sum", sparse=True) for _ in range(_TABLES)
        )
        self.bottom = _network(_BOTTOM)
        vectors = SPARSE_FEATURES + 1
        pairs = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", pairs[0] * vectors + pairs[1], persistent=False)
        self.top = _network((_WIDTH + pairs.shape[1], *_TOP))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        bottom = self.bottom(dense)  # (batch, width)
        looked_up = [
            table(rows.reshape(-1, 1)).view(len(dense), -1, _WIDTH)
            for table, rows in zip(self.tables, sparse.chunk(_TABLES, dim=1), strict=True)
        ]
        vectors = torch.cat([bottom.unsqueeze(1), *looked_up], dim=1)  # (batch, 27, width)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        crossed = products.index_select(1, self.get_buffer("pairs"))  # (batch, 351)
        logits: Tensor = self.top(torch.cat([bottom, crossed], dim=1))
        return logits.squeeze(1)


class Factors(nn.Module):
    """Ratings, shape (batch,), from numbers of users and items (Koren et al. 2009).

    A step is a few small kernels. The tables' gradients are sparse, as those of `Recommender`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users = nn.EmbeddingBag(USERS, _WIDTH, mode="sum", sparse=True)
        self.items = nn.EmbeddingBag(ITEMS, _WIDTH, mode="sum", sparse=True)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        ratings: Tensor = (self.users(users[:, None]) * self.items(items[:, None])).sum(1)
        return ratings


def _network(widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


_DROPOUT = 0.5


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Sizes of a graph, whose edges are directed, and of the network for it.

    Attributes:
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


# Depths and widths are those of the baselines that come with the data (Hu et al. 2020).
ARXIV = GraphShape(169_343, 1_166_243, features=128, layers=3, width=256, per_node=True)
MOLECULES = GraphShape(25, 54, features=9, layers=5, width=300, per_node=False)


class GraphConvolution(nn.Module):
    """Each node becomes the sum of its sources and itself, weighted by degrees, then projected.

    Kipf and Welling 2017 (GCN).
    """

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
        # One over the root of each node's degree, itself counted, shape (nodes, 1).
        degrees = torch.ones(len(hidden), device=hidden.device)
        ones = torch.ones(joined.shape[1], device=hidden.device)
        scale = degrees.index_add(0, joined[1], ones).rsqrt().unsqueeze(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = functional.relu(norm(layer(hidden, joined, scale)))
            hidden = functional.dropout(hidden, _DROPOUT, self.training)
        hidden = hidden.view(graphs, nodes, -1)
        logits: Tensor = self.head(hidden if self.per_node else hidden.mean(1))
        return logits
