"""Factors of the covariances of the shipped model, from files that outlive the process.

Working them out takes a tenth of a ranking's time. Factors of other models, as those that fitting
and evaluation make by the hundred, are worked out where they are needed.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from advisor.errors import AdvisorError
from advisor.prediction.cholesky import CholeskyFactor
from advisor.workload.files import cache_folder

Points = tuple[tuple[float, ...], ...]
"""The jobs that a correction was fitted to, shape (points, features)."""


class _Kept(NamedTuple):
    """Where the factor of `points` is kept; these are held, so that no others get their id."""

    points: Points
    path: Path


_kept: dict[int, _Kept] = {}


def keep_factors(model: Path, points: Mapping[str, Points]) -> None:
    """From now on, keep the factors of the model in the file `model`; `points` by mode."""
    with suppress(RuntimeError):  # this user has no home
        whose = sha256(bytes(model)).hexdigest()[:16]
        for mode, each in points.items():
            path = cache_folder("factors") / f"{whose}-{mode}.bin"
            _kept[id(each)] = _Kept(each, path)


def factor(points: Points, inputs: bytes, make: Callable[[], CholeskyFactor]) -> CholeskyFactor:
    """The factor that `make` works out, or worked out in another process.

    Args:
        points: As of `keep_factors`: the very object.
        inputs: What it is computed from.
        make: Called where no file has it.
    """
    if (kept := _kept.get(id(points))) is None:
        return make()
    source = Path(__file__).with_name("cholesky.py").read_bytes()
    key = sha256(source + inputs).digest()
    return _read(kept.path, key, len(points)) or _written(kept.path, key, make())


def _read(path: Path, key: bytes, points: int) -> CholeskyFactor | None:
    """None where it is missing, damaged or of something else."""
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
