"""What is a GPU's own in the sharing model: its time slices, contexts, memory edges and power."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import log

from advisor.errors import UnknownName
from advisor.hardware.catalogue import Gpu, gpu
from advisor.prediction.memory import MPS_SERVER_MIB, Context, Edge
from advisor.prediction.physics import Physics
from advisor.prediction.power import Power
from advisor.sharing import Mode
from advisor.workload.plausible import check
from advisor.workload.spec import STRICT


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConstants:
    """The constants of one GPU and its driver.

    Attributes:
        physics: Of replay.
        context: Sizes of CUDA contexts.
        power: How power and activity of jobs that share add up.
        memory_edges: By mode: when mixes run out of memory; empty if no outcome was measured.
        mps_server_mib: What an MPS server holds of the GPU's memory.
    """

    __pydantic_config__ = STRICT

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


def most_alike(to: Gpu, keys: Mapping[str, object]) -> str:
    """Of `keys` of GPUs, at least one, that of the same architecture and nearest number of SMs."""
    return min(keys, key=lambda key: (_unlike(to, _known_gpu(key)), key))


def _unlike(to: Gpu, other: Gpu | None) -> tuple[bool, float]:
    if other is None:
        return True, float("inf")
    return other.architecture != to.architecture, abs(log(other.sms / to.sms))


def _known_gpu(key: str) -> Gpu | None:
    """None for a GPU that only the machine knew on which it was measured."""
    try:
        return gpu(key)
    except UnknownName:
        return None
