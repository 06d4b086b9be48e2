"""The description of a workload: what is trained, and how."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from advisor.errors import InvalidInput
from advisor.workload.files import EVALUATION
from advisor.workload.plausible import MOST_COUNT, MOST_LOADER_WORKERS, check

# For pydantic, which is absent where measuring runs: a misspelt key, a NaN, and true or "3" for a
# number are refused.
STRICT = {"extra": "forbid", "allow_inf_nan": False, "strict": True}

Precision = Literal["default", "tf32", "amp", "fp16"]
Execution = Literal["eager", "compiled", "graph"]
Source = Literal["timm", "plain", "numbers"]

_COUNTS = ("batch", "resolution", "classes", "sequence_length", "table_mib", "examples_per_epoch")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One training job.

    Attributes:
        name: Stem of the profile's file, e.g. ``"resnet50-imagenet64-bs128"``; no slash.
        source: ``"timm"``: `model` is timm's name; ``"plain"``: a model of `advisor.zoo`;
            ``"numbers"``: a job of the user's, of which only numbers are known.
        model: Which model, e.g. ``"resnet50"`` or ``"gpt2-small"``.
        family: Models that are one architecture in several sizes, e.g. ``"resnet"``. Evaluation
            leaves whole families out.
        batch: Examples a step.
        precision: ``"default"`` as torch does, ``"tf32"`` with both switches on, ``"amp"`` under
            bf16 autocast, ``"fp16"`` under fp16 autocast with scaled gradients.
        execution: ``"eager"``, ``"compiled"`` by `torch.compile`, or ``"graph"``: the whole step
            captured once as a CUDA graph, then replayed.
        loader_workers: Processes of a `DataLoader` that feeds host tensors; 0: the input is
            already on the GPU.
        resolution: Pixels of an image's side; None if the input is not an image.
        classes: Outputs of the classifier; None if there is none.
        sequence_length: Tokens or frames an example; None if the input is not a sequence.
        table_mib: Size of the embedding tables; None if there are none.
        examples_per_epoch: Examples of one pass; None if not given.

    Raises:
        InvalidInput: The numbers are impossible.
    """

    __pydantic_config__ = STRICT

    name: str
    source: Source
    model: str
    family: str
    batch: int
    precision: Precision = "default"
    execution: Execution = "eager"
    loader_workers: int = 0
    resolution: int | None = None
    classes: int | None = None
    sequence_length: int | None = None
    table_mib: int | None = None
    examples_per_epoch: int | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(f"{self.name!r} names no workload: letters, digits and ._+- only")
        if f"{self.name}.json" == EVALUATION:
            raise InvalidInput(
                f"{EVALUATION} lies next to profiles and is not one: choose another name"
            )
        for field, allowed in (("precision", Precision), ("execution", Execution)):
            if (given := getattr(self, field)) not in get_args(allowed):
                known = ", ".join(get_args(allowed))
                raise InvalidInput(f"{self.name}: {field} is one of {known}, got {given!r}")
        if self.loader_workers < 0:
            raise InvalidInput(f"{self.name}: loader_workers={self.loader_workers} is below 0")
        for field in _COUNTS:
            count = getattr(self, field)
            if count is not None and count < 1:
                raise InvalidInput(f"{self.name}: {field} must be at least 1, got {count}")
        check(self, _COUNTS, MOST_COUNT)
        check(self, ("table_mib",))
        check(self, ("loader_workers",), MOST_LOADER_WORKERS)

    def check_startable(self) -> None:
        """See that something here knows how to start it.

        Raises:
            InvalidInput: Only numbers are known of it.
        """
        if self.source == "numbers":
            raise InvalidInput(
                f"{self.name}: its profile is bare numbers, which do not say how to start it. "
                f"Leave it out, or run it yourself: `advisor recommend JOB... --commands 1`"
            )

    @property
    def steps_per_epoch(self) -> int | None:
        """Training steps of one pass, the last batch included; None if its length is not known."""
        if self.examples_per_epoch is None:
            return None
        return -(-self.examples_per_epoch // self.batch)

    @property
    def cores(self) -> int:
        """Host cores a tenant is pinned to: one for the step, one for each loader worker."""
        return 1 + self.loader_workers
