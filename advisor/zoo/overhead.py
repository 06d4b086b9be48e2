"""The memory of a process beyond its tensors' requests, fitted to measured processes.

Needs no torch: fitting takes dry runs that were made before.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from statistics import median

import numpy as np

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.workload.spec import Execution

DATA = "overhead.json"

_Z95 = 1.645  # standard normal quantile
_LEAST_SIGMA = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """A measured process and a dry run of its workload; memory in MiB.

    Attributes:
        execution: How its step is carried out; the dry run is of torch doing it call by call.
        dry_mib: What torch's allocator reserves in the dry run.
        convolves: Whether the workload has convolutions.
        reserved_mib: What it reserved.
        context_mib: Memory of the process outside torch's allocator.
    """

    workload: str
    family: str
    execution: Execution
    dry_mib: float
    convolves: bool
    reserved_mib: float
    context_mib: float

    @property
    def held_mib(self) -> float:
        return self.reserved_mib + self.context_mib


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
        factor = float(np.exp(_Z95 * self.sigma * widened))
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


def fit_overhead(rows: Sequence[MeasuredMemory]) -> Overhead:
    """The overhead that comes nearest to `rows`, by least squares of relative errors.

    Captured steps teach what capturing adds, and compiled ones nothing, for no dry run is like
    them.

    Raises:
        InvalidInput: None of them is eager.
    """
    eager = [row for row in rows if row.execution == "eager"]
    if not eager:
        raise InvalidInput("no eager workload was measured, from which others are estimated")
    plain = [row for row in eager if not row.convolves]
    context_mib = median(row.context_mib for row in plain or eager)
    sizes = np.array([row.held_mib for row in eager])
    columns = np.array([[row.dry_mib, float(row.convolves)] for row in eager])
    beyond = np.array([row.held_mib - row.dry_mib - context_mib for row in eager])
    solved, *_ = np.linalg.lstsq(columns / sizes[:, None], beyond / sizes, rcond=None)
    overhead = Overhead(
        growth=float(solved[0]),
        convolution_mib=max(0.0, float(solved[1])),
        context_mib=context_mib,
        capture_mib=0.0,
    )
    return replace(overhead, capture_mib=_capture_mib(rows, overhead))


def _capture_mib(rows: Sequence[MeasuredMemory], overhead: Overhead) -> float:
    """What captured steps among `rows` hold beyond `overhead`; 0 if there are none."""
    beyond = [
        row.held_mib - overhead.held_mib(row.dry_mib, convolves=row.convolves)
        for row in rows if row.execution == "graph"
    ]  # fmt: skip
    return max(0.0, median(beyond or [0.0]))


def fitted(gpu: str, rows: Sequence[MeasuredMemory]) -> Fitted:
    """The overhead that `rows` support, scored by leaving out one family after another.

    Raises:
        InvalidInput: There are fewer than three families.
    """
    families = sorted({row.family for row in rows})
    if len(families) < 3:
        raise InvalidInput(f"{counted(len(families), 'family')} measured on {gpu}; 3 are needed")
    estimates = []
    for family in families:
        overhead = fit_overhead([row for row in rows if row.family != family])
        estimates += [
            Estimate(
                workload=row.workload,
                family=family,
                estimated_mib=overhead.held_mib(
                    row.dry_mib, convolves=row.convolves, execution=row.execution
                ),
                measured_mib=row.held_mib,
            )
            for row in rows
            if row.family == family
        ]
    errors = np.log([each.estimated_mib / each.measured_mib for each in estimates])
    sigma = max(_LEAST_SIGMA, float(np.quantile(np.abs(errors), 0.9)) / _Z95)
    return Fitted(
        gpu=gpu, overhead=fit_overhead(rows), sigma=sigma, estimates=tuple(estimates)
    )  # fmt: skip


def fitted_text(fits: Sequence[Fitted]) -> str:
    """`fits` as JSON, indented so that a change shows as a diff."""
    document = {"schema": 1, "gpus": [asdict(each) for each in fits]}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


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
