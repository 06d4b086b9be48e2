"""Recommenders: DLRM, and the factors of a matrix of ratings.

After DLRM (Naumov et al. 2019): large tables, small networks, dot products.

Features 13 dense and 26 sparse, as in Criteo's data. The widths follow the benchmark
configuration of the paper's code, the tables' sizes follow from the memory asked for.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

DENSE_FEATURES, SPARSE_FEATURES = 13, 26
_WIDTH = 64
_BOTTOM = (DENSE_FEATURES, 512, 256, _WIDTH)
_TOP = (512, 256, 1)
# The features share a few tables: their number would otherwise decide the host's work.
_TABLES = 4
_ROW_BYTES = _WIDTH * 4


# MovieLens 25M (Harper and Konstan 2015); 64 factors.
USERS, ITEMS = 162_541, 59_047


def rows_of_tables(table_mib: int) -> int:
    """Rows of each table, so that all of them together take `table_mib`."""
    return table_mib * 2**20 // (_TABLES * _ROW_BYTES)


class Recommender(nn.Module):
    """Click logits, shape (batch,), from dense features and row numbers of sparse ones.

    The tables' gradients are sparse; use plain SGD, since any momentum would double the tables.
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
