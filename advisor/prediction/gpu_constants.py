"""What is a GPU's own in the sharing model: its time slices, contexts, memory edges and power."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from advisor.errors import UnknownName
from advisor.hardware.attained_rates import unlikeness
from advisor.hardware.catalogue import Gpu, gpu
from advisor.prediction.memory import MPS_SERVER_MIB, Context
from advisor.prediction.memory_edge import Edge
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power
from advisor.sharing import Mode
from advisor.workload.machine_calibration import Calibration, Switching
from advisor.workload.plausible import check


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """The constants of one GPU and its driver.

    Attributes:
        physics: Constants of replay.
        context: Sizes of CUDA contexts.
        power: How power and activity of jobs that share add up.
        memory_edges: By mode: when mixes run out of memory, and as serial when a process alone
            does; empty if no outcome was measured.
        mps_server_mib: Memory of the GPU that an MPS server holds.
    """

    physics: Physics
    context: Context
    power: Power
    memory_edges: dict[Mode, Edge] = field(default_factory=dict)
    mps_server_mib: float = MPS_SERVER_MIB

    def __post_init__(self) -> None:
        check(self, ("mps_server_mib",))


def nearest_constants(to: Gpu, known: Mapping[str, GpuConstants]) -> GpuConstants:
    """The constants that stand in on `to`, of which nothing was measured.

    They are those of the most alike GPU of `known`, at least one. Replay's constants and memory
    edges are shares and times of the driver and stay. A context keeps local memory for every thread
    that its SMs can hold, so it shrinks with these; the awake GPU draws the same share of its
    limit.
    """
    key = most_alike(to, known)
    constants, like = known[key], _known_gpu(key)
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


# Fitted slices and switches stand for a little more than what a calibration sees of them: on an
# H200 and an H100 they are within this factor of each other.
_ALIKE = 1.2


def calibrated_constants(
    constants: GpuConstants, calibration: Calibration, *, fitted: bool
) -> GpuConstants:
    """`constants` with what `calibration` measured on their GPU.

    Args:
        constants: Of a GPU.
        calibration: Of it, or of its host alone.
        fitted: Whether its time slices were fitted to runs on it; else those that a calibration saw
            replace them where they are of another size.
    """
    if (sizes := calibration.contexts) is not None:
        context, server_mib = constants.context, sizes.mps_server_mib
        constants = replace(
            constants,
            context=Context(
                usual_mib=context.usual_mib if sizes.plain_mib is None else sizes.plain_mib,
                per_sm_mib=context.per_sm_mib if sizes.per_sm_mib is None else sizes.per_sm_mib,
            ),
            mps_server_mib=constants.mps_server_mib if server_mib is None else server_mib,
        )
    return constants if fitted else _sliced_as_seen(constants, calibration.switching)


def _sliced_as_seen(constants: GpuConstants, seen: Sequence[Switching]) -> GpuConstants:
    """`constants` with the slices that the shortest kernel showed, where it showed any."""
    first = next((each for each in seen if each.slice_s), None)
    if first is None:
        return constants
    slicing = constants.physics.slicing
    slicing = replace(
        slicing,
        slice_s=_nearer(slicing.slice_s, first.slice_s),
        switch_s=_nearer(slicing.switch_s, first.switch_s),
    )
    return replace(constants, physics=replace(constants.physics, slicing=slicing))


def _nearer(fitted_s: float, seen_s: float | None) -> float:
    """What was seen, unless it is of the size that was fitted."""
    if not seen_s or not fitted_s or 1 / _ALIKE < seen_s / fitted_s < _ALIKE:
        return fitted_s
    return max(0.0, seen_s)


def most_alike(to: Gpu, keys: Mapping[str, object]) -> str:
    """Of `keys` of GPUs, at least one, that of the GPU most like `to`."""

    def unlike(key: str) -> float:
        other = _known_gpu(key)
        return float("inf") if other is None else unlikeness(other, to)

    return min(keys, key=lambda key: (unlike(key), key))


def of_its_architecture(to: Gpu, keys: Iterable[str]) -> bool:
    """Whether one of `keys` of GPUs is that of a GPU of the architecture of `to`."""
    known = map(_known_gpu, keys)
    return any(each is not None and each.architecture == to.architecture for each in known)


def _known_gpu(key: str) -> Gpu | None:
    """None for a GPU that only the machine knew on which it was measured."""
    try:
        return gpu(key)
    except UnknownName:
        return None
