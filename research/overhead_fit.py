"""Fits what processes hold beyond what their tensors ask for: `advisor/zoo/overhead.json`.

Needs no torch: takes dry runs that `benchmarks/fit_footprint.py` makes before.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

import numpy as np

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.workload.spec import Execution
from advisor.zoo.overhead import Z95, Estimate, Fitted, Overhead

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
    sigma = max(_LEAST_SIGMA, float(np.quantile(np.abs(errors), 0.9)) / Z95)
    return Fitted(
        gpu=gpu, overhead=fit_overhead(rows), sigma=sigma, estimates=tuple(estimates)
    )  # fmt: skip


def fitted_text(fits: Sequence[Fitted]) -> str:
    """`fits` as JSON, indented so that a change shows as a diff."""
    document = {"schema": 1, "gpus": [asdict(each) for each in fits]}
    return json.dumps(document, indent=1, allow_nan=False) + "\n"
