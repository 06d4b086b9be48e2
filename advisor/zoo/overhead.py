"""The memory of a process beyond its tensors' requests, as `research.overhead_fit` fitted it.

Needs no torch.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from advisor.workload.spec import Execution

DATA = "overhead.json"

Z95 = 1.645  # standard normal quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """How to get from a dry run to a process.

    Attributes:
        growth: Share by which caches grow beyond the dry run's: requests come in another order.
        convolution_mib: What convolutions add: workspaces, and cuDNN's part of the context.
        context_mib: The CUDA context, with its modules and handles.
        capture_mib: What capturing a step adds: the driver's copy of the graph, and the pool
            that its memory lies in.
    """

    growth: float
    convolution_mib: float
    context_mib: float
    capture_mib: float

    def held_mib(self, dry_mib: float, *, convolves: bool, execution: Execution = "eager") -> float:
        """What a process holds whose dry run reserves `dry_mib`."""
        added_mib = self.convolution_mib if convolves else 0.0
        added_mib += self.capture_mib if execution == "graph" else 0.0
        return dry_mib * (1 + self.growth) + added_mib + self.context_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measured process, estimated by what other families taught."""

    workload: str
    family: str
    estimated_mib: float
    measured_mib: float

    @property
    def error(self) -> float:
        """Estimated over measured, less 1."""
        return self.estimated_mib / self.measured_mib - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The overhead on one GPU, and how well it serves families that it was not fitted to.

    Attributes:
        gpu: Catalogue key.
        sigma: Relative standard error; nine in ten processes of unseen families lie within the
            interval that follows from it.
        estimates: Each process, estimated without its family.
    """

    gpu: str
    overhead: Overhead
    sigma: float
    estimates: tuple[Estimate, ...]

    @property
    def mape(self) -> float:
        """Mean absolute error over processes of unseen families."""
        return float(np.mean([abs(each.error) for each in self.estimates]))

    @property
    def families(self) -> frozenset[str]:
        return frozenset(each.family for each in self.estimates)

    def interval_mib(self, held_mib: float, widened: float = 1.0) -> tuple[float, float]:
        """Between which nine of ten processes should lie that are estimated at `held_mib`."""
        factor = float(np.exp(Z95 * self.sigma * widened))
        return held_mib / factor, held_mib * factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Estimated device memory of one process, MiB; nine in ten should lie from p05 to p95.

    Attributes:
        parts_mib: What makes up `p50_mib`: ``"weights"``, ``"gradients"``, ``"optimizer"`` and
            ``"activations"`` (with all that is temporary) as they are at the peak, and
            ``"overhead"``: workspaces, caches and the CUDA context.
        notes: What makes the estimate less sure than others, in words.
    """

    workload: str
    gpu: str
    p05_mib: float
    p50_mib: float
    p95_mib: float
    parts_mib: Mapping[str, float]
    notes: tuple[str, ...]


@cache
def known_overheads() -> dict[str, Fitted]:
    """The overheads that come with this package, by GPU."""
    document = json.loads(files("advisor.zoo").joinpath(DATA).read_text())
    return {entry["gpu"]: _fitted(entry) for entry in document["gpus"]}


def _fitted(entry: dict[str, object]) -> Fitted:
    overhead, estimates = entry.pop("overhead"), entry.pop("estimates")
    return Fitted(
        overhead=Overhead(**overhead),  # type: ignore[arg-type]
        estimates=tuple(Estimate(**each) for each in estimates),  # type: ignore[attr-defined]
        **entry,  # type: ignore[arg-type]
    )
