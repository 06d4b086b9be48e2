"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from advisor.errors import InvalidInput
from advisor.prediction.distilled import Distilled
from advisor.prediction.features import FEATURES
from advisor.prediction.memory import Context, Edge
from advisor.prediction.power import Power
from advisor.prediction.rehearsal import Physics
from advisor.prediction.script import Floats
from advisor.sharing import Mps, Naive
from advisor.workload.profile import Profile
from advisor.workload.reading import parse_record, read_bytes
from advisor.workload.spec import STRICT


@dataclass(frozen=True, kw_only=True)
class Correction:
    """What replay misses in one mode: a Gaussian process over the features of a job in its mix.

    It predicts the log of measured over replayed step. Far from every job it was fitted to it
    says nothing, so replay stands as it is, and its spread is widest there.

    Attributes:
        features: Names of the columns.
        mean: Of each column, shape (features,).
        scale: Standard deviation of each column, shape (features,).
        points: The jobs fitted to, in columns of mean 0 and scale 1, shape (points, features).
        weights: How each point pulls, shape (points,).
        length: Distance at which points lose sight of each other.
        signal: Variance of what replay misses.
        noise: Variance from one run to the next.
        low: 5 % quantile of log(measured / predicted) over `spread`, for jobs of families that
            were not fitted on.
        high: 95 % quantile, likewise.
    """

    __pydantic_config__ = STRICT

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    length: float
    signal: float
    noise: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise InvalidInput("the model was fitted to other features than this advisor computes")
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(FEATURES)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model's columns are not as long as its list of features")
        if min(*self.scale, self.length, self.signal, self.noise) <= 0 or self.low > self.high:
            raise InvalidInput("a model's scales are above 0 and its quantiles are in order")

    def log_correction(self, rows: Floats) -> Floats:
        """Log of measured over replayed, predicted; shape (jobs,) for rows (jobs, features)."""
        return np.asarray(self._likeness(self._scaled(rows)) @ np.array(self.weights))

    def spread(self, rows: Floats) -> Floats:
        """Standard deviation of that log, shape (jobs,); wider for what is unlike all points."""
        near = self._unmixing @ self._likeness(self._scaled(rows)).T
        return np.asarray(np.sqrt(self.signal + self.noise - (near * near).sum(axis=0)))

    @cached_property
    def _points(self) -> Floats:
        return np.array(self.points)

    @cached_property
    def _unmixing(self) -> Floats:
        """Inverse of the Cholesky factor of the points' covariance, shape (points, points)."""
        likeness = self._likeness(self._points)
        return np.asarray(
            np.linalg.inv(np.linalg.cholesky(likeness + self.noise * np.eye(len(likeness))))
        )

    def _scaled(self, rows: Floats) -> Floats:
        return np.asarray((rows - np.array(self.mean)) / np.array(self.scale))

    def _likeness(self, scaled: Floats) -> Floats:
        """Covariance of each row with each point, shape (rows, points)."""
        squares = (scaled**2).sum(axis=1)[:, None] + (self._points**2).sum(axis=1)[None, :]
        apart = np.maximum(0.0, squares - 2 * scaled @ self._points.T)
        return np.asarray(self.signal * np.exp(-0.5 * apart / self.length**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The capacity model's errors in one mode, for profiles without a trace."""

    __pydantic_config__ = STRICT

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """How far a step alone lies from its profile on another day: 90 % of runs are nearer.

    Attributes:
        gpu_bound: Log distance where the GPU is busy nearly all of the step.
        host_bound: Log distance where the host is the slower side: virtual cores vary.
    """

    __pydantic_config__ = STRICT

    gpu_bound: float
    host_bound: float

    def spread(self, profile: Profile) -> float:
        """Log distance for `profile`."""
        return self.gpu_bound if is_gpu_bound(profile) else self.host_bound


# Share of a step from which on the GPU, and not the host, sets the pace.
_GPU_BOUND = 0.9


def is_gpu_bound(profile: Profile) -> bool:
    """Whether the GPU is busy nearly all of the step."""
    return (profile.busy_share or 0.0) >= _GPU_BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a model was fitted to: names of the runs' tenants' profiles, and a digest of all."""

    __pydantic_config__ = STRICT

    profiles: int
    runs: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Everything fitted for one GPU.

    Attributes:
        corrections: By mode: ``"naive"``, ``"mps"``, ``"mps-limits"``.
        capacity: Likewise, for profiles without a trace.
        alone: How steps alone vary.
        context: Sizes of CUDA contexts.
        memory_sigma: Relative standard error of a process's predicted memory.
        memory_edges: By mode: when mixes run out of memory; empty where no outcome was measured.
        power: How power and activity of jobs that share add up.
        distilled: Answers roughly and fast, for searching; None where nothing was distilled.
    """

    __pydantic_config__ = STRICT

    gpu: str
    data: Data
    physics: Physics
    corrections: dict[str, Correction]
    capacity: dict[str, Plain]
    alone: Alone
    context: Context
    memory_sigma: float
    power: Power
    memory_edges: dict[str, Edge] = field(default_factory=dict)
    distilled: Distilled | None = None
    schema: int = 1


def mode_of(sharing: Naive | Mps) -> str:
    """The name under which runs of this kind are fitted and reported."""
    if isinstance(sharing, Naive):
        return "naive"
    return "mps-limits" if sharing.limits else "mps"


def model_text(model: Model) -> str:
    """`model` as JSON, indented so that a change shows as a diff."""
    return json.dumps(asdict(model), indent=1, allow_nan=False) + "\n"


def load_model(path: Path) -> Model:
    """The model in `path`.

    Raises:
        InvalidInput: There is none, or it is malformed or of another version.
    """
    if not path.is_file():
        raise InvalidInput(f"{path}: no model of this GPU. Make one from its runs: `advisor fit`.")
    return parse_record(Model, read_bytes(path), str(path), "Fit it anew: `advisor fit`.")
