"""The correction of replay's steps: a regression, and how far it is off for jobs never seen."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from advisor.errors import AdvisorError, InvalidInput
from advisor.prediction.capacity import ResidualBounds, is_gpu_bound
from advisor.prediction.features import FEATURES
from advisor.prediction.host import log_beyond_host
from advisor.prediction.memory import Z95
from advisor.prediction.trace import Floats
from advisor.workload.profile import Profile, pace_spread
from advisor.workload.reading import MOST_LOG, cache_folder, check, check_scaled

_BLOCK = 64


@dataclass(frozen=True, slots=True)
class CholeskyFactor:
    """A lower triangle L whose product with its transpose is the covariance, in rows of blocks.

    In single precision, because spreads are never read to more than three digits. That takes half
    the time of LAPACK in double precision, and needs numpy only.

    Attributes:
        before: Blocks left of the diagonal, shapes (rows, rows above).
        inverses: Inverses of the blocks on the diagonal, shapes (rows, rows).
    """

    before: tuple[NDArray[np.float32], ...]
    inverses: tuple[NDArray[np.float32], ...]

    @classmethod
    def of_bytes(cls, content: bytes | memoryview, points: int) -> "CholeskyFactor | None":
        """Read what `to_bytes` wrote for `points` points; None if it has another size."""
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
        """Return the solution x of ``L x = columns``, in the same shape (points, columns)."""
        x = columns.astype(np.float32)
        for before, inverse in zip(self.before, self.inverses, strict=True):
            above = before.shape[1]
            own = slice(above, above + len(before))
            x[own] = inverse @ (x[own] - before @ x[:above])
        return x


def cholesky(covariance: NDArray[np.float32]) -> CholeskyFactor:
    """Compute the factor of `covariance`, which it overwrites.

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


# Files of the factors of points, by the id of these; holding the points keeps their id from being
# reused. Computing the factors of the shipped model takes a tenth of a ranking's time.
_kept: dict[int, tuple[Points, Path]] = {}


def keep_factors(model: Path, points: Mapping[str, Points]) -> None:
    """Keep the factors of the model in the file `model` from now on; `points` is by mode."""
    with suppress(RuntimeError):  # this user has no home
        whose = sha256(bytes(model)).hexdigest()[:16]
        for mode, each in points.items():
            path = cache_folder("factors") / f"{whose}-{mode}.bin"
            _kept[id(each)] = each, path


def factor(points: Points, inputs: bytes, make: Callable[[], CholeskyFactor]) -> CholeskyFactor:
    """Return the factor that `make` computes, or that another process computed and kept.

    Args:
        points: The very object that `keep_factors` got.
        inputs: Everything the factor is computed from.
        make: Called if no file has the factor.
    """
    if id(points) not in _kept:
        return make()
    path, key = _kept[id(points)][1], sha256(Path(__file__).read_bytes() + inputs).digest()
    with suppress(OSError):
        content = path.read_bytes()
        head, body = content[: len(key) + 4], memoryview(content)[len(key) + 4 :]
        if head == key + crc32(body).to_bytes(4):  # else it is damaged or of other inputs
            read = CholeskyFactor.of_bytes(body, len(points))
            if read is not None:
                return read
    from advisor.workload.writing import write_whole

    made = make()
    body = memoryview(made.to_bytes())
    with suppress(AdvisorError):  # no room, or no folder that can be written
        write_whole(path, key + crc32(body).to_bytes(4) + body)
    return made


# The steps of jobs that fill the GPU, alone, repeat so closely on another host and day.
SOLO_SPREAD = 0.03

# Ends lie at most so many standard deviations from the middle. What the host adds shrinks at
# one part in so many with the distance to the host's path, so a slower step never ends earlier.
MOST = 3.0


def squared_lengths(points: NDArray[Any]) -> NDArray[Any]:
    """Return the squared distance of each point from the origin, shape (points,)."""
    return np.asarray((points**2).sum(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The covariance of two jobs in their mixes: a squared exponential of their distance.

    Attributes:
        length: Length scale, in columns of scale 1.
        signal: Variance of replay's residual.
        noise: Variance from one run to the next.
    """

    length: float
    signal: float
    noise: float

    def __post_init__(self) -> None:
        if min(self.length, self.signal, self.noise) <= 0:
            raise InvalidInput("a kernel's length, signal and noise are above 0")

    def likeness(
        self, rows: NDArray[Any], points: NDArray[Any], lengths: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Return the covariance of each row with each point, shape (rows, points), as precise.

        `lengths` are the `squared_lengths` of the points, if the caller has them.
        """
        lengths = squared_lengths(points) if lengths is None else lengths
        squares = squared_lengths(rows)[:, None] + lengths[None, :]
        squares -= 2 * rows @ points.T
        np.maximum(0.0, squares, out=squares)
        squares *= -0.5 / self.length**2
        return np.asarray(self.signal * np.exp(squares, out=squares))


def host_spread(profiles: Sequence[Profile], steps_s: Floats, host_sigma: float = 0.0) -> Floats:
    """Return the standard deviation of the log of each step by its host, shape (jobs,).

    The profile's own windows and `host_sigma` of `Doubt` count as far as a step of `steps_s`, shape
    (jobs,), follows its host.
    """
    unsteady = np.hypot(host_sigma, [pace_spread(each.windows) for each in profiles])
    beyond = [log_beyond_host(p, float(s)) for p, s in zip(profiles, steps_s, strict=True)]
    return np.maximum(0.0, unsteady - np.array(beyond) / MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Uncertainty of predictions for unseen families.

    Attributes:
        host_sigma: Standard deviation of the log of a host-bound job's step alone, between its
            profile and another run.
        gpu_bound: Bounds of errors for jobs that keep the GPU busy alone.
        host_bound: Bounds of errors for the others.
    """

    host_sigma: float
    gpu_bound: ResidualBounds
    host_bound: ResidualBounds

    def __post_init__(self) -> None:
        check(self, ("host_sigma",), MOST_LOG)

    def scale(self, profiles: Sequence[Profile], steps_s: Floats, spread: Floats) -> Floats:
        """Return the standard deviation of the log of each predicted step, shape (jobs,).

        `spread` is the model's own, shape (jobs,); `host_spread` adds to it.
        """
        return np.asarray(np.hypot(spread, host_spread(profiles, steps_s, self.host_sigma)))

    def log_bounds(self, profiles: Sequence[Profile], scale: Floats) -> tuple[Floats, Floats]:
        """Return log distances to both ends of the 90 % interval of each job, shapes (jobs,)."""
        bounds = [self.gpu_bound if is_gpu_bound(each) else self.host_bound for each in profiles]
        low, high = np.array([(each.low, each.high) for each in bounds]).T
        return low * scale, high * scale


@dataclass(frozen=True, kw_only=True)
class Correction:
    """The residual of replay in one mode: a Gaussian process over a job's features in its mix.

    It predicts the log of measured over replayed step. Far from every job it was fitted to it is 0,
    so replay is not corrected, and its spread is widest there.

    Attributes:
        features: Names of the columns.
        mean: Of each column, shape (features,).
        scale: Standard deviation of each column, shape (features,).
        points: The jobs fitted to, in columns of mean 0 and scale 1, shape (points, features).
        weights: Weight of each point, shape (points,).
        doubt: On a host whose speed is not known.
        doubt_on_known_cores: If profiles are converted to the speed of the host's cores.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    kernel: Kernel
    doubt: Doubt
    doubt_on_known_cores: Doubt

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise InvalidInput("the model was fitted to other features than this advisor computes")
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(FEATURES)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model's columns are not as long as its list of features")
        most = max(float(np.abs(each).max()) for each in (self.mean, self._points, self._weights))
        check_scaled("a model's columns", self.scale, most)

    def near(self, rows: Floats) -> Floats:
        """Return covariances with the points, shape (jobs, points) for rows (jobs, features)."""
        scaled = (rows - self._scales[0]) / self._scales[1]
        return self.kernel.likeness(scaled, self._points, self._lengths)

    def log_correction(self, near: Floats) -> Floats:
        """Predict log(measured / replayed) from `near`, shape (jobs,)."""
        return np.clip(near @ self._weights, -MOST_LOG, MOST_LOG)

    def spread(self, near: Floats) -> Floats:
        """Return the standard deviation of that log, shape (jobs,); wider far from all points."""
        whitened = self._mixing.whitened(near.T)
        explained = (whitened * whitened).sum(axis=0, dtype=np.float64)
        unexplained = self.kernel.noise + np.maximum(0.0, self.kernel.signal - explained)
        return np.asarray(np.sqrt(unexplained))

    def log_bounds(
        self, profiles: Sequence[Profile], near: Floats, steps_s: Floats
    ) -> tuple[Floats, Floats]:
        """Return log distances to both ends of the 90 % interval of each job, shapes (jobs,)."""
        scale = self.doubt.scale(profiles, steps_s, self.spread(near))
        return self.doubt.log_bounds(profiles, scale)

    @cached_property
    def _points(self) -> Floats:
        return np.array(self.points)

    @cached_property
    def _lengths(self) -> Floats:
        return squared_lengths(self._points)

    @cached_property
    def _weights(self) -> Floats:
        return np.array(self.weights)

    @cached_property
    def _scales(self) -> tuple[Floats, Floats]:
        return np.array(self.mean), np.array(self.scale)

    @cached_property
    def _mixing(self) -> CholeskyFactor:
        """Of the points' covariance."""
        inputs = repr(self.kernel).encode() + self._points.tobytes()

        def make() -> CholeskyFactor:
            points = self._points.astype(np.float32)
            covariance = self.kernel.likeness(points, points)
            covariance[np.diag_indices_from(covariance)] += self.kernel.noise
            try:
                return cholesky(covariance)
            except np.linalg.LinAlgError:
                raise InvalidInput(
                    "the model's points contradict its kernel. Fit it again"
                ) from None

        return factor(self.points, inputs, make)


def widened(low: Floats, high: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Return log distances of both ends of 90 % intervals, wider by `spread`."""
    more = Z95 * spread
    return -np.hypot(low, more), np.hypot(high, more)


def mates_spread(profiles: Sequence[Profile], steps_s: Floats) -> Floats:
    """Return the standard deviation of log steps by the hosts of co-located jobs, shape (jobs,).

    Under naive sharing a job that fills the GPU has what the others leave: if they work on the GPU
    for the shares a of their steps, its step takes its GPU part over 1 - sum(a). A job that its
    host slows leaves more, and one whose windows varied when profiled may be slow or fast. 0 for
    jobs that do not fill the GPU: their steps are their own. `steps_s` are those in the mix.
    """
    share = np.array([each.gpu_s or 0.0 for each in profiles]) / steps_s
    varied = (share * host_spread(profiles, steps_s)) ** 2
    fills = np.array([is_gpu_bound(each) for each in profiles])
    by_others = np.sqrt(np.maximum(0.0, varied.sum() - varied))
    return np.where(fills, by_others / np.where(fills, share, 1.0), 0.0)
