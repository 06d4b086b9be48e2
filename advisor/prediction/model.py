"""The fitted model as plain arrays in a JSON file, read with numpy and never unpickled."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path

from advisor.errors import InvalidInput, UnknownName
from advisor.files.reading import is_file, read_bytes, read_once, shown
from advisor.files.records import parse_record
from advisor.files.units import MOST_MIB, MOST_SPREADS, check, check_number
from advisor.hardware.gpus import Gpu, gpu
from advisor.hardware.machine import Calibration
from advisor.hardware.partition import unlikeness
from advisor.prediction.capacity import CapacityModel
from advisor.prediction.correction import COLUMNS, Correction, Intervals
from advisor.prediction.memory import MPS_SERVER_MIB, Context, Edge
from advisor.prediction.power import Power
from advisor.prediction.replay import Physics
from advisor.prediction.surrogate import SurrogateModel
from advisor.sharing import Mode

_MOST = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """Seconds of a step in the user's own runs in one mode over those predicted from profiles.

    It belongs to a job that fills the GPU; `runs` is the number of these runs.
    """

    factor: float
    runs: int

    def __post_init__(self) -> None:
        check_number("factor on steps in runs of your own", self.factor, _MOST, 1 / _MOST)

    def factor_at(self, slowdown: float) -> float:
        """Return `factor` on a step predicted `slowdown` times as long; none gets shorter."""
        return max(self.factor, min(1.0, 1 / slowdown))


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPace:
    """Pace of a job in the user's own runs.

    A profile is of one minute on some core, and runs of the same job on the user's machine show
    more minutes. Where the GPU sets the pace, the profile is right, and the prediction of jobs
    together is wrong by one factor.

    Attributes:
        slowdown: Seconds of its host path over those in the profile; 1 where no run showed that.
        runs: Number of runs in which the host set the job's pace.
        profiled: Date of the profile, a later one is not converted; None: unknown.
        beside: By mode: its steps together with other jobs, if it fills the GPU.
    """

    slowdown: float
    runs: int
    profiled: str | None
    beside: dict[Mode, OwnStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("slowdown in runs of your own", self.slowdown, _MOST, 1 / _MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """Constants of one GPU and its driver.

    Attributes:
        memory_edges: By mode of mixes; serial: of a process alone; empty if not measured.
        mps_server_mib: Memory of the GPU that an MPS server holds.
    """

    physics: Physics
    context: Context
    power: Power
    memory_edges: dict[Mode, Edge] = field(default_factory=dict)
    mps_server_mib: float = MPS_SERVER_MIB

    def __post_init__(self) -> None:
        check(self, ("mps_server_mib",), MOST_MIB)


def nearest_constants(to: Gpu, others: Mapping[str, GpuConstants]) -> GpuConstants:
    """Return the constants of the GPU most like `to`, adapted to `to`, where nothing was measured.

    Replay's constants and memory edges are shares and times of the driver and stay. A context keeps
    local memory for every thread that its SMs can hold, so it shrinks with these; the awake GPU
    draws the same share of its limit.
    """
    gpus = {key: _known_gpu(key) for key in others}
    apart = {key: inf if like is None else unlikeness(like, to) for key, like in gpus.items()}
    key = min(others, key=lambda key: (apart[key], key))
    constants, like = others[key], gpus[key]
    if like is None:
        return constants
    context, power = constants.context, constants.power
    per_sm_mib = context.per_sm_mib * to.threads_per_sm / like.threads_per_sm
    more_mib = per_sm_mib * to.sms - context.per_sm_mib * like.sms
    awake_w = power.awake_w
    if to.power_limit_w and like.power_limit_w:
        awake_w *= to.power_limit_w / like.power_limit_w
    return replace(
        constants,
        context=Context(max(0.0, context.usual_mib + more_mib), per_sm_mib),
        power=replace(power, awake_w=awake_w),
    )


# Fitted slices and switches stand for a little more than a calibration sees of them: on an H200
# and an H100 they are within this factor of each other.
_ALIKE = 1.2


def calibrated_constants(
    constants: GpuConstants, calibration: Calibration, *, fitted: bool
) -> GpuConstants:
    """Return `constants` with the values that `calibration` measured on their GPU.

    Time slices that were not `fitted` to runs on it are replaced by measured ones of another size.
    """
    sizes = calibration.contexts
    usual_mib, per_sm_mib, server_mib = (
        fitted_mib if measured is None else measured
        for measured, fitted_mib in (
            (sizes.plain_mib, constants.context.usual_mib),
            (sizes.per_sm_mib, constants.context.per_sm_mib),
            (sizes.mps_server_mib, constants.mps_server_mib),
        )
    )
    context = Context(usual_mib, per_sm_mib)
    constants = replace(constants, context=context, mps_server_mib=server_mib)
    # The shortest kernel that showed a slice.
    shortest = next((each for each in calibration.switching if each.slice_s), None)
    if fitted or shortest is None:
        return constants
    slicing = constants.physics.slicing
    slicing = replace(
        slicing,
        slice_s=_nearer(slicing.slice_s, shortest.slice_s),
        switch_s=_nearer(slicing.switch_s, shortest.switch_s),
    )
    return replace(constants, physics=replace(constants.physics, slicing=slicing))


def _nearer(fitted_s: float, seen_s: float | None) -> float:
    """Return the value seen, unless it is of the size that was fitted."""
    if not seen_s or not fitted_s or 1 / _ALIKE < seen_s / fitted_s < _ALIKE:
        return fitted_s
    return max(0.0, seen_s)


def _known_gpu(key: str) -> Gpu | None:
    """Return the GPU called `key`; None if only the machine with it can describe it."""
    try:
        return gpu(key)
    except UnknownName:
        return None


# With fewer runs of a mode on a GPU, the model has not learnt the mode for it.
FEWEST_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Data of one GPU that the model was fitted to: numbers of profiles and of runs, a digest."""

    profiles: int
    runs: dict[Mode, int]
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenGpu:
    """Widening of intervals for GPUs of which the model has seen no runs.

    Attributes:
        widening: Factor on the log of both ends of an interval over its middle, at least 1.
        alike: The same for a GPU that has the architecture of one that was seen.
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
    """Model of how jobs share a GPU, learnt from runs on some GPUs, with the constants of each.

    Attributes:
        data: By GPU.
        constants: By GPU that has enough runs.
        corrections: Of MPS and of MPS with limits, if they were learnt.
        intervals: By mode that was learnt; serial: of a job alone, which is always there.
        intervals_on_known_host: The same for profiles converted to the speed of the host.
        capacity: For profiles without a trace; None: no run showed how jobs share.
        memory_sigma: Relative standard error of a process's predicted memory.
        unseen: Widening of answers for GPUs that are not in `data`.
        distilled: The surrogate model, fast estimates for searching; None if none was fitted.
        own_paces: By GPU and job.
    """

    data: dict[str, Data]
    constants: dict[str, GpuConstants]
    corrections: dict[Mode, Correction]
    intervals: dict[Mode, Intervals]
    intervals_on_known_host: dict[Mode, Intervals]
    capacity: CapacityModel | None
    memory_sigma: float
    unseen: UnseenGpu
    distilled: SurrogateModel | None = None
    own_paces: dict[str, dict[str, OwnPace]] = field(default_factory=dict)
    schema: int = 3

    def __post_init__(self) -> None:
        if not self.constants:
            raise InvalidInput("a model needs the constants of at least one GPU")
        if any(each.columns != COLUMNS.get(mode) for mode, each in self.corrections.items()):
            raise InvalidInput("the model was fitted to other columns than this version computes")
        if "serial" not in self.intervals:
            raise InvalidInput("a model has the intervals of a job alone")

    def __hash__(self) -> int:
        """Hash the data that it was fitted to, because answers are cached by model."""
        return hash(tuple(each.sha256 for each in self.data.values()))

    def of(self, gpu: Gpu) -> GpuConstants:
        """Return the constants of `gpu`: its own, else those of the GPU most like it."""
        own = self.constants.get(gpu.key)
        return nearest_constants(gpu, self.constants) if own is None else own

    def widening(self, gpu: Gpu) -> float:
        """Return the factor on intervals for `gpu` if no runs on it were seen."""
        seen = [each.architecture for each in map(_known_gpu, self.data) if each is not None]
        return self.unseen.alike if gpu.architecture in seen else self.unseen.widening

    def learnt_on(self, mode: Mode) -> tuple[str, ...]:
        """Return the GPUs with enough runs of `mode` to learn it from."""
        return tuple(
            key for key, each in self.data.items() if each.runs.get(mode, 0) >= FEWEST_RUNS
        )

    def on_known_host(self) -> "Model":
        """Return the model for profiles converted to this host: its intervals are narrower."""
        return replace(self, intervals=self.intervals | self.intervals_on_known_host)


# A list that holds nothing but numbers.
_NUMBERS = re.compile(r"\[[-+.eE\d,\s]+\]")


def model_text(model: Model) -> str:
    """Write `model` as JSON, indented so that a diff shows changes; a row of numbers is a line."""
    indented = json.dumps(asdict(model), indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda row: re.sub(r"\s+", " ", row[0]), indented) + "\n"


@read_once(4)
def load_model(path: Path) -> Model:
    """Read the model in `path`; the same object until the file changes."""
    if not is_file(path):
        raise InvalidInput(
            f"{shown(path)}: model not found. Leave out --models to use the shipped one, or write "
            f"one there: `advisor fit --out {path.parent}`."
        )
    return parse_record(Model, read_bytes(path), shown(path), "Fit it again: `advisor fit`.")
