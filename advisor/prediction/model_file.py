"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from advisor.errors import InvalidInput
from advisor.prediction.correction import Correction, Doubt
from advisor.prediction.memory import Context, Edge
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power
from advisor.prediction.surrogate import SurrogateModel
from advisor.prediction.utilisation_model import UtilisationModel
from advisor.sharing import Mode
from advisor.workload.files import read_bytes, read_once, shown
from advisor.workload.spec import STRICT
from advisor.workload.store import parse_record


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
        alone: How far steps alone are from their profiles on a host of unknown speed.
        alone_on_known_cores: The same with profiles converted to the speed of the cores at hand.
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
    alone: Doubt
    alone_on_known_cores: Doubt
    context: Context
    memory_sigma: float
    power: Power
    memory_edges: dict[Mode, Edge] = field(default_factory=dict)
    distilled: SurrogateModel | None = None
    schema: int = 1

    def on_known_cores(self) -> "Model":
        """The model for profiles that are as on the cores at hand: its intervals are narrower."""
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
    anew = f"`advisor fit --gpu {path.stem}`"
    if not path.is_file():
        raise InvalidInput(
            f"{shown(path)}: no model of this GPU. Measure runs there, `advisor campaign PLAN`, "
            f"and "
            f"learn from them: {anew}."
        )
    return parse_record(Model, read_bytes(path), shown(path), f"Fit it anew: {anew}.")
