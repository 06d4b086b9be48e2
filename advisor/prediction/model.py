"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from advisor.errors import InvalidInput
from advisor.prediction.features import FEATURES
from advisor.prediction.memory import Context
from advisor.prediction.rehearsal import Physics
from advisor.prediction.script import Floats
from advisor.sharing import Mps, Naive
from advisor.workload.reading import parse_record, read_bytes
from advisor.workload.spec import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What replay misses in one mode, as a linear model of the log of measured over replayed.

    The columns have shape (features,), in the order of `features`.

    Attributes:
        low: 5 % quantile of log(measured / predicted) over jobs of families not fitted on,
            over the spread that `spread` gives.
        high: 95 % quantile, likewise.
        spread_base: Spread of a job that the others do not slow.
        spread_slope: How the spread grows with the log of the predicted slowdown.
        degrees: Numbers of tenants that the data hold.
    """

    __pydantic_config__ = STRICT

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    coefficients: tuple[float, ...]
    intercept: float
    low: float
    high: float
    spread_base: float
    spread_slope: float
    degrees: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.features != FEATURES:
            raise InvalidInput("the model was fitted to other features than this advisor computes")
        if {len(self.mean), len(self.scale), len(self.coefficients)} != {len(FEATURES)}:
            raise InvalidInput("the model's columns are not as long as its list of features")
        if min(self.scale) <= 0 or self.low > self.high:
            raise InvalidInput("a model's scales are above 0 and its quantiles are in order")

    def log_correction(self, rows: Floats) -> Floats:
        """Log of measured over replayed, predicted; shape (jobs,) for rows (jobs, features)."""
        scaled = (rows - np.array(self.mean)) / np.array(self.scale)
        return np.asarray(scaled @ np.array(self.coefficients) + self.intercept)

    def spread(self, log_slowdown: Floats) -> Floats:
        """How wide errors are at a predicted slowdown, shape (jobs,)."""
        return np.asarray(self.spread_base + self.spread_slope * np.maximum(0, log_slowdown))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The capacity model's errors in one mode, for profiles without a trace."""

    __pydantic_config__ = STRICT

    low: float
    high: float


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
        context: Sizes of CUDA contexts.
        memory_sigma: Relative standard error of a process's predicted memory.
        power_gain: Measured over summed power above idle.
        power_sigma: Relative standard error of predicted power.
    """

    __pydantic_config__ = STRICT

    gpu: str
    data: Data
    physics: Physics
    corrections: dict[str, Correction]
    capacity: dict[str, Plain]
    context: Context
    memory_sigma: float
    power_gain: float
    power_sigma: float
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
    return parse_record(Model, read_bytes(path), str(path))
