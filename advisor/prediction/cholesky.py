"""Cholesky factors of covariances, and the files that keep those of the shipped model.

A factor is in single precision, made and used by products of blocks: spreads are never read to more
than three digits. That takes half the time of LAPACK in double precision, and needs only numpy,
which a command imports anyway.

Computing the factors of the shipped model takes a tenth of a ranking's time, so files keep them for
later processes. Factors of other models, which fitting and evaluation make by the hundred, are
computed where they are needed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError
from advisor.workload.files import cache_folder

_BLOCK = 64


@dataclass(frozen=True, slots=True)
class CholeskyFactor:
    """A lower triangle L whose product with its transpose is the covariance, in rows of blocks.

    Attributes:
        before: Blocks left of the diagonal, shapes (rows, rows above).
        inverses: Inverses of the blocks on the diagonal, shapes (rows, rows).
    """

    before: tuple[NDArray[np.float32], ...]
    inverses: tuple[NDArray[np.float32], ...]

    @classmethod
    def of_bytes(cls, content: bytes | memoryview, points: int) -> "CholeskyFactor | None":
        """The inverse of `to_bytes`, for `points` points; None if `content` has another size."""
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


Points = tuple[tuple[float, ...], ...]
"""The jobs that a correction was fitted to, shape (points, features)."""


class _Kept(NamedTuple):
    """The file of the factor of `points`; holding these keeps their id from being reused."""

    points: Points
    path: Path


_kept: dict[int, _Kept] = {}


def keep_factors(model: Path, points: Mapping[str, Points]) -> None:
    """Keep the factors of the model in the file `model` from now on; `points` is by mode."""
    with suppress(RuntimeError):  # this user has no home
        whose = sha256(bytes(model)).hexdigest()[:16]
        for mode, each in points.items():
            path = cache_folder("factors") / f"{whose}-{mode}.bin"
            _kept[id(each)] = _Kept(each, path)


def factor(points: Points, inputs: bytes, make: Callable[[], CholeskyFactor]) -> CholeskyFactor:
    """The factor that `make` computes, or that another process computed and kept.

    Args:
        points: The very object that `keep_factors` got.
        inputs: Everything the factor is computed from.
        make: Called if no file has the factor.
    """
    if (kept := _kept.get(id(points))) is None:
        return make()
    source = Path(__file__).read_bytes()
    key = sha256(source + inputs).digest()
    return _read(kept.path, key, len(points)) or _written(kept.path, key, make())


def _read(path: Path, key: bytes, points: int) -> CholeskyFactor | None:
    """The factor in a file; None where it is missing, damaged or of other inputs."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    head = len(key) + 4
    body = memoryview(content)[head:]
    if content[:head] != key + crc32(body).to_bytes(4):
        return None
    return CholeskyFactor.of_bytes(body, points)


def _written(path: Path, key: bytes, found: CholeskyFactor) -> CholeskyFactor:
    from advisor.workload.writing import write_whole

    body = found.to_bytes()
    with suppress(AdvisorError):  # no room, or no folder that can be written
        write_whole(path, key + crc32(body).to_bytes(4) + body)
    return found
