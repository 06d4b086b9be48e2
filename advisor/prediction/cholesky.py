"""The Cholesky factor of a covariance in single precision, made and used by products of blocks.

For spreads, which nobody reads to more than three digits. It takes half the time of LAPACK in
double precision, and needs no more than numpy, which a command imports anyway.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 64


@dataclass(frozen=True, slots=True)
class CholeskyFactor:
    """A lower triangle L, its product with its transpose being the covariance, in rows of blocks.

    Attributes:
        before: What is left of the diagonal's blocks, shapes (rows, rows above).
        inverses: Of the blocks on its diagonal, shapes (rows, rows).
    """

    before: tuple[NDArray[np.float32], ...]
    inverses: tuple[NDArray[np.float32], ...]

    @classmethod
    def of_bytes(cls, content: bytes | memoryview, points: int) -> "CholeskyFactor | None":
        """What `to_bytes` made of a factor of so many points; None where it is of others."""
        sizes = [(min(_BLOCK, points - start), start) for start in range(0, points, _BLOCK)]
        ends = np.cumsum([rows * columns for rows, start in sizes for columns in (start, rows)])
        if len(content) != ends[-1] * np.dtype(np.float32).itemsize:
            return None
        parts = np.split(np.frombuffer(content, np.float32), ends[:-1])
        rows = zip(sizes, parts[::2], parts[1::2], strict=True)
        pairs = [(left.reshape(size), own.reshape(size[0], -1)) for size, left, own in rows]
        return cls(*zip(*pairs, strict=True))

    def to_bytes(self) -> bytes:
        pairs = zip(self.before, self.inverses, strict=True)
        return b"".join(part.tobytes() for pair in pairs for part in pair)

    def whitened(self, columns: NDArray[Any]) -> NDArray[np.float32]:
        """The solution x of ``L x = columns``, in the same shape (points, columns)."""
        found = columns.astype(np.float32)
        for before, inverse in zip(self.before, self.inverses, strict=True):
            above = before.shape[1]
            own = slice(above, above + len(before))
            found[own] = inverse @ (found[own] - before @ found[:above])
        return found


def cholesky(covariance: NDArray[np.float32]) -> CholeskyFactor:
    """The factor of `covariance`, which it overwrites.

    Raises:
        numpy.linalg.LinAlgError: It is not positive definite.
    """
    lower, before, inverses = covariance, [], []
    for start in range(0, len(lower), _BLOCK):
        own, below = slice(start, start + _BLOCK), slice(start + _BLOCK, None)
        lower[start:, own] -= lower[start:, :start] @ lower[own, :start].T
        lower[own, own] = np.linalg.cholesky(lower[own, own])
        before.append(lower[own, :start].copy())
        inverses.append(np.linalg.inv(lower[own, own]))
        lower[below, own] = lower[below, own] @ inverses[-1].T
    return CholeskyFactor(tuple(before), tuple(inverses))
