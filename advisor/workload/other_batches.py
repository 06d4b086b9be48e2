"""A workload's batch size: in its name, and as the basis of an estimate for another size."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from advisor.errors import InvalidInput
from advisor.workload.plausible import check

# As `advisor.workload.named_workloads` writes them, and as users' own profiles may be called.
_NAMED = re.compile(r"(?P<head>.+)-bs(?P<batch>[1-9]\d{0,5})(?P<tail>(?:-.*)?)")


@dataclass(frozen=True, slots=True)
class OtherBatches:
    """The batch sizes from which a profile is estimated, and how uncertain it is.

    Attributes:
        batches: Increasing, at least two.
        step_spread: Standard deviation of the log of the step.
        memory_spread: Standard deviation of the log of its memory.
    """

    batches: tuple[int, ...]
    step_spread: float
    memory_spread: float

    def __post_init__(self) -> None:
        if len(self.batches) < 2 or list(self.batches) != sorted({*self.batches}):
            raise InvalidInput(f"batch sizes are at least two, increasing, got {self.batches}")
        check(self, ("step_spread", "memory_spread"), 10.0)


class BatchName(NamedTuple):
    """A name that says its batch size; `stem` is what all sizes have in common."""

    stem: str
    batch: int
    tail: str

    def at(self, batch: int) -> str:
        """The name at another batch size."""
        return f"{self.stem}-bs{batch}{self.tail}"

    @property
    def work(self) -> str:
        """The name without any size."""
        return f"{self.stem}{self.tail}"


def batch_name(name: str) -> BatchName | None:
    """`name` in its parts; None if it does not say a batch size."""
    found = _NAMED.fullmatch(name)
    return None if found is None else BatchName(found["head"], int(found["batch"]), found["tail"])
