"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from advisor.errors import InvalidInput
from advisor.prediction.memory import Context, Edge
from advisor.prediction.mix_features import FEATURES
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power
from advisor.prediction.surrogate import SurrogateModel
from advisor.prediction.trace import Floats
from advisor.prediction.utilisation_model import UtilisationModel
from advisor.sharing import Mode
from advisor.workload.files import read_bytes, read_once, shown
from advisor.workload.plausible import (
    MOST_LOG,
    MOST_SPREADS,
    check,
    check_number,
    check_scaled,
)
from advisor.workload.profile import Profile
from advisor.workload.spec import STRICT
from advisor.workload.store import parse_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The covariance of two jobs in their mixes: a squared exponential of their distance.

    Attributes:
        length: Length scale, in columns of scale 1.
        signal: Variance of replay's residual.
        noise: Variance from one run to the next.
    """

    __pydantic_config__ = STRICT

    length: float
    signal: float
    noise: float

    def __post_init__(self) -> None:
        if min(self.length, self.signal, self.noise) <= 0:
            raise InvalidInput("a kernel's length, signal and noise are above 0")

    def likeness(self, rows: Floats, points: Floats) -> Floats:
        """Covariance of each row with each point, shape (rows, points)."""
        squares = (rows**2).sum(axis=1)[:, None] + (points**2).sum(axis=1)[None, :]
        squares -= 2 * rows @ points.T
        np.maximum(0.0, squares, out=squares)
        squares *= -0.5 / self.length**2
        return np.asarray(self.signal * np.exp(squares, out=squares))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualBounds:
    """Quantiles, 5 and 95 %, of log(measured / predicted) over its spread, for unseen families."""

    __pydantic_config__ = STRICT

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= 0 <= self.high:
            raise InvalidInput("the bounds of an interval lie on both sides of its middle")
        check_number("a bound of an interval", max(-self.low, self.high), MOST_SPREADS)


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
        gpu_bound: Bounds of its errors for jobs that keep the GPU busy alone.
        host_bound: Bounds of its errors for the others.
    """

    __pydantic_config__ = STRICT

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    points: tuple[tuple[float, ...], ...]
    weights: tuple[float, ...]
    kernel: Kernel
    gpu_bound: ResidualBounds
    host_bound: ResidualBounds

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise InvalidInput("the model was fitted to other features than this advisor computes")
        widths = {len(self.mean), len(self.scale), *map(len, self.points)}
        if widths != {len(FEATURES)} or len(self.weights) != len(self.points):
            raise InvalidInput("the model's columns are not as long as its list of features")
        most = max(float(np.abs(each).max()) for each in (self.mean, self._points, self._weights))
        check_scaled("a model's columns", self.scale, most)

    def log_correction(self, rows: Floats) -> Floats:
        """Log of measured over replayed, predicted; shape (jobs,) for rows (jobs, features)."""
        return np.clip(self._near(rows) @ self._weights, -MOST_LOG, MOST_LOG)

    def spread(self, rows: Floats) -> Floats:
        """Standard deviation of that log, shape (jobs,); wider far from all points."""
        from scipy.linalg import solve_triangular

        rows, which = np.unique(rows, axis=0, return_inverse=True)  # copies look alike
        near = solve_triangular(self._mixing, self._near(rows).T, lower=True, check_finite=False)
        most = self.kernel.signal + self.kernel.noise
        return np.asarray(np.sqrt(most - (near * near).sum(axis=0)))[which.reshape(-1)]

    def log_bounds(self, profiles: Sequence[Profile], rows: Floats) -> tuple[Floats, Floats]:
        """Log distances to both ends of the 90 % interval of each job, shapes (jobs,)."""
        bounds = [self.gpu_bound if is_gpu_bound(each) else self.host_bound for each in profiles]
        spread = self.spread(rows)
        low, high = np.array([(each.low, each.high) for each in bounds]).T
        return low * spread, high * spread

    @cached_property
    def _points(self) -> Floats:
        return np.array(self.points)

    @cached_property
    def _weights(self) -> Floats:
        return np.array(self.weights)

    @cached_property
    def _scales(self) -> tuple[Floats, Floats]:
        return np.array(self.mean), np.array(self.scale)

    @cached_property
    def _mixing(self) -> Floats:
        """Lower Cholesky factor of the points' covariance, shape (points, points)."""
        covariance = self.kernel.likeness(self._points, self._points)
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise
        try:
            return np.asarray(np.linalg.cholesky(covariance))
        except np.linalg.LinAlgError:
            raise InvalidInput("the model's points contradict its kernel. Fit it anew") from None

    def _near(self, rows: Floats) -> Floats:
        """Covariance of each row with each point, shape (rows, points)."""
        scaled = (rows - self._scales[0]) / self._scales[1]
        return self.kernel.likeness(scaled, self._points)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloSpread:
    """How far a step alone differs from its profile on another day: 90 % of runs differ less.

    Attributes:
        gpu_bound: Log distance where the GPU is busy nearly all of the step.
        host_bound: Log distance where the host is the slower side: virtual cores vary.
    """

    __pydantic_config__ = STRICT

    gpu_bound: float
    host_bound: float

    def __post_init__(self) -> None:
        check(self, ("gpu_bound", "host_bound"), MOST_LOG)

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
        corrections: By mode, of `advisor.sharing.SHARED_MODES`.
        capacity: By mode, for profiles without a trace.
        alone: How steps alone vary.
        context: Sizes of CUDA contexts.
        memory_sigma: Relative standard error of a process's predicted memory.
        memory_edges: By mode: when mixes run out of memory; empty if no outcome was measured.
        power: How power and activity of jobs that share add up.
        distilled: The surrogate model, fast estimates for searching; None if none was fitted.
    """

    __pydantic_config__ = STRICT

    gpu: str
    data: Data
    physics: Physics
    corrections: dict[Mode, Correction]
    capacity: dict[Mode, UtilisationModel]
    alone: SoloSpread
    context: Context
    memory_sigma: float
    power: Power
    memory_edges: dict[Mode, Edge] = field(default_factory=dict)
    distilled: SurrogateModel | None = None
    schema: int = 1


# A list that holds nothing but numbers.
_NUMBERS = re.compile(r"\[[-+.eE\d,\s]+\]")


def model_text(model: Model) -> str:
    """`model` as JSON, indented so that a change shows as a diff; rows of numbers are one line."""
    indented = json.dumps(asdict(model), indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda found: re.sub(r"\s+", " ", found[0]), indented) + "\n"


@read_once(4)
def load_model(path: Path) -> Model:
    """The model in `path`; one and the same object until the file changes.

    Raises:
        InvalidInput: There is none, or it is malformed or of another version.
    """
    anew = f"`advisor fit --gpu {path.stem}`"
    if not path.is_file():
        raise InvalidInput(
            f"{shown(path)}: no model of this GPU. Measure runs there, `advisor campaign PLAN`, "
            f"and "
            f"learn from them: {anew}."
        )
    return parse_record(Model, read_bytes(path), shown(path), f"Fit it anew: {anew}.")
