"""Ablation: the error without each part of a profile and each term of the physics.

The regression is fitted again without the part, at the lengths fitted with all parts, and scored
on families left out, in closed form. Nothing else is tuned again, so the result is the value of a
part to the present model.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.prediction.correction import Kernel
from advisor.prediction.fit.observation import MeasuredGpu, ObservedRun, Rows
from advisor.prediction.fit.regression import errors_on_unseen
from advisor.prediction.fit.replay_cache import ReplayCache
from advisor.prediction.job_features import TRAITS
from advisor.prediction.mix_features import FEATURES
from advisor.prediction.model_file import Model
from advisor.prediction.physics import Physics
from advisor.prediction.trace import Floats
from advisor.sharing import SHARED_MODES
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.profiling_time import PROBE, median_seconds

_TAKEN = ("log_at_tightest", "log_at_loosest")
_COUNTED = ("tensor", "sm_active")

# Which columns come from what; those of mates follow their trait's.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "GPM counters": ("dram", "mates_dram", "dram_times_mates", "occupancy", "mates_occupancy",
                     "headroom_times_mates_dram", *_COUNTED),
    "MPS probe": ("log_alone_under_mps", "log_alone_limited", "log_alone_limited_over_replayed",
                  "headroom", "mates_headroom", "headroom_times_mates_dram", *_TAKEN),
    "what its kernels are like": tuple(set(TRAITS) - {*_TAKEN, *_COUNTED}),
    "what the mates are like": tuple(f"mates_{trait}" for trait in TRAITS),
    "replays with moved physics": ("log_ceding", "log_packing"),
    "capacity model": ("log_capacity",),
}  # fmt: skip

# Which part of profiling makes it possible.
_MEASURED_BY: Mapping[str, tuple[str, ...]] = {
    "GPM counters": ("meter_s",),
    "MPS probe": PROBE,
    "what its kernels are like": ("trace_s",),
}

_TERMS: Mapping[str, Callable[[Physics], Physics]] = {
    "cost of a switch": lambda p: replace(p, slicing=replace(p.slicing, switch_s=0.0)),
    "patience of an idle owner": lambda p: replace(p, slicing=replace(p.slicing, patience_s=0.0)),
    "SMs ceded to later kernels": lambda p: replace(p, ceded=0.0),
    "blocks that share an SM": lambda p: replace(p, packing=0.0),
    "bandwidth shared by limited jobs": lambda p: replace(p, bandwidth=1.0),
}


@dataclass(frozen=True, slots=True)
class Ablated:
    """The model without one part.

    Attributes:
        part: What was left out, in words.
        mape: Mean absolute error of the step by mode, for families left out, scored runs alone.
        seconds: That profiling spends on it, in the median; None if no profile recorded it, or
            where nothing is measured for it.
    """

    part: str
    mape: Mapping[str, float]
    seconds: float | None = None


def ablations(
    measured: MeasuredGpu, scored: Sequence[Run], model: Model, playback: ReplayCache
) -> tuple[Ablated, ...]:
    """The error with all parts and without each, and the time to measure each.

    Args:
        measured: The profiles, and the runs that teach, the scored ones among them.
        scored: Those that count.
        model: Fitted to these runs: its physics and kernels are kept.
        playback: The replays already made.
    """
    physics = model.of(measured.gpu).physics
    bench = _Bench(measured.shared, {run.id for run in scored}, playback, model)
    found = [Ablated("nothing", bench.mape(FEATURES, physics))]
    found += [
        Ablated(part, bench.mape(_without(columns), physics), _seconds(measured.profiles, part))
        for part, columns in _PARTS.items()
    ]
    found += [Ablated(term, bench.mape(FEATURES, off(physics))) for term, off in _TERMS.items()]
    return (*found, Ablated("the whole regression", bench.mape((), physics)))


def _seconds(profiles: Mapping[str, Profile], part: str) -> float | None:
    return median_seconds(profiles.values(), _MEASURED_BY.get(part, ()))


def _without(columns: Sequence[str]) -> tuple[str, ...]:
    mates = {f"mates_{column}" for column in columns if column in TRAITS}
    return tuple(name for name in FEATURES if name not in {*columns, *mates})


@dataclass(frozen=True, slots=True)
class _Bench:
    """Where every variant is tried on the same runs."""

    shared: Sequence[ObservedRun]
    scored: set[str]
    playback: ReplayCache
    model: Model

    def mape(self, columns: Sequence[str], physics: Physics) -> dict[str, float]:
        """By mode, with these columns and physics."""
        found: dict[str, float] = {}
        for mode, correction in self.model.corrections.items():
            runs = [each for each in self.shared if each.mode == mode]
            rows = self.playback.telling_rows(runs, physics)
            counts = np.array([runs[int(index)].run.id in self.scored for index in rows.of_run])
            if counts.any():
                errors = _errors(rows, runs, columns, correction.kernel)
                found[mode] = float(np.abs(np.expm1(-errors[counts])).mean())
        return found


def _errors(
    rows: Rows, runs: Sequence[ObservedRun], columns: Sequence[str], kernel: Kernel
) -> Floats:
    """Log of measured over predicted step of each row, its family unseen."""
    if not columns:
        return np.log(rows.measured_s / np.maximum(rows.replayed_s, rows.alone_s))
    kept = np.isin(FEATURES, columns)
    # Distances grow with the columns; the lengths go with them.
    shorter = replace(kernel, length=kernel.length * float(np.sqrt(kept.mean())))
    return errors_on_unseen(replace(rows, x=rows.x[:, kept]), runs, shorter)


HEADINGS = ("without", "naive", "MPS", "MPS limits", "seconds of profiling")


def ablation_rows(found: Sequence[Ablated]) -> list[list[str]]:
    """A line for each part, errors in per cent."""
    return [
        [
            each.part,
            *(f"{each.mape[m]:.1%}" if m in each.mape else "-" for m in SHARED_MODES),
            "-" if each.seconds is None else f"{each.seconds:.2f}",
        ]
        for each in found
    ]
