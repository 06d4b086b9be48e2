"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.prediction.cholesky import keep_factors
from advisor.prediction.correction import Correction, Doubt
from advisor.prediction.gpu_constants import GpuConstants, nearest_constants, of_its_architecture
from advisor.prediction.own_pace import OwnPace
from advisor.prediction.surrogate import SurrogateModel
from advisor.prediction.utilisation_model import UtilisationModel
from advisor.sharing import Mode
from advisor.workload.files import MODEL_FILE, beside_package, is_file, read_bytes, read_once, shown
from advisor.workload.plausible import MOST_SPREADS
from advisor.workload.records import parse_record

# With fewer runs of a mode, a GPU has not taught it.
FEWEST_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Data of one GPU that the model was fitted to.

    Attributes:
        profiles: Number of profiles of the tenants of these runs.
        runs: Number of runs of each mode, of `advisor.sharing.SHARED_MODES`.
        sha256: Digest of all of these runs.
    """

    profiles: int
    runs: dict[Mode, int]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenGpu:
    """How much wider intervals are for GPUs of which the model has seen no runs.

    Attributes:
        widening: Factor on the log of each end of an interval over its middle, at least 1.
        alike: The same for a GPU that has the architecture of one that was seen.
        source: Where the factors come from, in words.
    """

    widening: float
    alike: float
    source: str

    def __post_init__(self) -> None:
        if not 1 <= self.alike <= self.widening <= MOST_SPREADS:
            raise InvalidInput(
                f"intervals for unseen GPUs are 1 to {MOST_SPREADS:g} times as wide, those of a "
                f"known architecture no wider than others; got {self.alike} and {self.widening}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """How jobs share a GPU, learnt from runs on some GPUs, with the constants of each of these.

    Attributes:
        data: By GPU: the runs that it was fitted to.
        constants: By GPU: its own constants, if it has enough runs.
        corrections: By mode, of `advisor.sharing.SHARED_MODES`.
        capacity: By mode, for profiles without a trace.
        alone: How far steps alone are from their profiles on a host of unknown speed.
        alone_on_known_cores: The same with profiles converted to the speed of the cores at hand.
        memory_sigma: Relative standard error of a process's predicted memory.
        unseen: Widening of answers for GPUs that are not in `data`.
        distilled: The surrogate model, fast estimates for searching; None if none was fitted.
        own_paces: By GPU and job: what the user's own runs say of its pace.
    """

    data: dict[str, Data]
    constants: dict[str, GpuConstants]
    corrections: dict[Mode, Correction]
    capacity: dict[Mode, UtilisationModel]
    alone: Doubt
    alone_on_known_cores: Doubt
    memory_sigma: float
    unseen: UnseenGpu
    distilled: SurrogateModel | None = None
    own_paces: dict[str, dict[str, OwnPace]] = field(default_factory=dict)
    schema: int = 2

    def __post_init__(self) -> None:
        if not self.constants:
            raise InvalidInput("a model has the constants of one GPU at least")

    def __hash__(self) -> int:
        """Hash of what it was fitted to, since answers are cached by model."""
        return hash(tuple(each.sha256 for each in self.data.values()))

    def of(self, gpu: Gpu) -> GpuConstants:
        """The constants of `gpu`: its own, else those of the GPU most like it."""
        own = self.constants.get(gpu.key)
        return nearest_constants(gpu, self.constants) if own is None else own

    def widening(self, gpu: Gpu) -> float:
        """Factor on intervals for `gpu` if no runs on it were seen."""
        near = of_its_architecture(gpu, self.data)
        return self.unseen.alike if near else self.unseen.widening

    def with_own(self, gpu: Gpu, constants: GpuConstants) -> "Model":
        """The model with other `constants` of `gpu`."""
        return replace(self, constants={**self.constants, gpu.key: constants})

    def learnt_on(self, mode: Mode) -> tuple[str, ...]:
        """The GPUs with enough runs of `mode` to learn it from."""
        return tuple(
            key for key, each in self.data.items() if each.runs.get(mode, 0) >= FEWEST_RUNS
        )

    def on_known_cores(self) -> "Model":
        """The model for profiles converted to the cores at hand: its intervals are narrower."""
        corrections = {
            mode: replace(each, doubt=each.doubt_on_known_cores)
            for mode, each in self.corrections.items()
        }
        return replace(self, corrections=corrections, alone=self.alone_on_known_cores)


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
    if not is_file(path):
        raise InvalidInput(
            f"{shown(path)}: no model there. Leave out --models, and the shipped one answers; or "
            f"put one there: `advisor fit --out {path.parent}`."
        )
    model = parse_record(Model, read_bytes(path), shown(path), "Fit it anew: `advisor fit`.")
    if path == beside_package("models") / MODEL_FILE:
        keep_factors(path, {mode: each.points for mode, each in model.corrections.items()})
    return model
