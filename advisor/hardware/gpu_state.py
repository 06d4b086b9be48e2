"""The state and activity of this machine's GPUs, as values; see `advisor.hardware.live_gpu`."""

from dataclasses import dataclass
from typing import Literal

from advisor.hardware.mps import MpsProcess
from advisor.workload.profile import Counters

ComputeMode = Literal["default", "exclusive-thread", "prohibited", "exclusive-process"]


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a CUDA context; `memory_mib` is None if the driver would not say."""

    pid: int
    memory_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGpu:
    """One GPU of this machine at one moment; None if the driver does not say.

    Attributes:
        index: As NVML and nvidia-smi count; see `advisor.hardware.live_gpu` for CUDA.
        product: NVML's name, e.g. ``"NVIDIA H200"``.
        catalogue_key: For ``--gpu``; None if the catalogue does not list `product`, and its driver
            does not say what is needed of it.
        mig_enabled: Whether MIG mode is on now; None without MIG.
        mig_pending: Whether MIG mode will be on after the next reset; None without MIG.
        mps: The machine's MPS processes; empty if no daemon runs.
        counters: ``"gpm"`` (Hopper and later), ``"dcgm"`` (its host engine knows the GPU),
            ``"nvml"`` (utilisation only) or None.
        processes: Processes with a context on it, by pid.
        gpu_utilization: Share of the driver's last sample, 1/6 s to 1 s long, in which a kernel
            ran, 0..1 (nvml.h, nvmlUtilization_t).
    """

    index: int
    uuid: str
    product: str
    catalogue_key: str | None
    memory_total_mib: float
    memory_used_mib: float
    driver: str
    mig_enabled: bool | None
    mig_pending: bool | None
    compute_mode: ComputeMode | None
    mps: tuple[MpsProcess, ...]
    counters: Literal["gpm", "dcgm", "nvml"] | None
    processes: tuple[GpuProcess, ...]
    gpu_utilization: float | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None


@dataclass(frozen=True, slots=True)
class BrokenGpu:
    """A GPU that the driver lists, but that does not answer."""

    index: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """The activity of a whole GPU in a window of time; never attributed to one tenant.

    Attributes:
        counters: None if the GPU has none, or the window was too short for them.
        power_w: Mean over the window; None without an energy counter.
        energy_j: Over the window; None without an energy counter.
        seconds: Length of the window.
    """

    counters: Counters | None
    power_w: float | None
    energy_j: float | None
    seconds: float


NOT_METERED = Activity(counters=None, power_w=None, energy_j=None, seconds=0.0)
"""Of a device without meters."""
