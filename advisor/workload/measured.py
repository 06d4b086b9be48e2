"""Records that every run on a GPU has, alone or shared: windows, memory, counters, provenance."""

from dataclasses import dataclass
from math import expm1, isfinite, log
from operator import le
from statistics import median
from typing import Literal

from advisor.errors import InvalidInput
from advisor.workload.plausible import DAY_S, LEAST_STEP_S, MOST_CORES, check, check_number


@dataclass(frozen=True, slots=True)
class Window:
    """Steps in a stretch of time; an unfinished step counts as the fraction that was done."""

    seconds: float
    steps: float

    def __post_init__(self) -> None:
        if not (isfinite(self.seconds) and isfinite(self.steps) and self.seconds > 0):
            raise InvalidInput(f"a window takes time, got {self.seconds} s and {self.steps} steps")
        if self.steps <= 0:
            raise InvalidInput(f"a window of {self.seconds} s without a step says nothing of pace")
        check_number("seconds of a window", self.seconds, DAY_S)
        check_number("a step in seconds", self.step_s, DAY_S, LEAST_STEP_S)

    @property
    def step_s(self) -> float:
        return self.seconds / self.steps


def median_step_s(windows: tuple[Window, ...]) -> float:
    """Seconds of a step at the median window's pace; robust to one stalled window."""
    return median([window.seconds / window.steps for window in windows])


# Windows that disagree by this share show the host's minute and not the workload.
_UNSTEADY = 0.15


def pace_spread(windows: tuple[Window, ...]) -> float:
    """Half the log distance between the slowest and the fastest window's pace; 0 for one window."""
    paces = [window.seconds / window.steps for window in windows]
    return log(max(paces) / min(paces)) / 2


def unsteady(windows: tuple[Window, ...]) -> float | None:
    """By how much of the fastest window's pace the slowest was behind; None if below 0.15.

    As `pace_spread`, which widens predictions, but as a share.
    """
    behind = expm1(2 * pace_spread(windows))
    return behind if behind >= _UNSTEADY else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory of one process, MiB.

    Attributes:
        allocated_mib: Most that live tensors held at once; None if not measured.
        reserved_mib: Most that torch's caching allocator held; None if not measured.
        device_mib: What the process held on the device as the driver saw it, CUDA context
            included; None if the driver would not say.
    """

    allocated_mib: float | None
    reserved_mib: float | None
    device_mib: float | None = None

    def __post_init__(self) -> None:
        if (self.allocated_mib is None) != (self.reserved_mib is None):
            raise InvalidInput("allocated and reserved memory are known together or not at all")
        known = [
            each
            for each in (0.0, self.allocated_mib, self.reserved_mib, self.device_mib, float("inf"))
            if each is not None
        ]
        if len(known) < 3 or not all(map(le, known, known[1:])):
            raise InvalidInput(f"allocated <= reserved <= device must hold in MiB, got {self}")
        check(self, ("reserved_mib", "device_mib"))

    @property
    def context_mib(self) -> float | None:
        """Memory outside torch's allocator: CUDA context, modules, handles; None if unknown."""
        if self.device_mib is None or self.reserved_mib is None:
            return None
        return self.device_mib - self.reserved_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Activity of a whole GPU over a run; of all its tenants together if it was shared.

    Attributes:
        source: ``"gpm"`` (NVML, Hopper and later), ``"dcgm"`` (DCGM, data-centre GPUs before) or
            ``"nvml"`` (utilisation only).
        gract: Share of time in which the graphics or compute engine was active, 0..1 (GRACT).
        sm_active: Mean share of SMs with a warp on them, 0..1 (SMACT); None if only NVML told.
        sm_occupancy: Mean share of warp slots in use, 0..1; None if only NVML told.
        tensor_active: Share of cycles in which tensor cores worked, 0..1; None if only NVML told.
        dram_active: Share of DRAM bandwidth in use, 0..1; None if only NVML told.
        memory_utilization: Share of time in which memory was read or written, as nvidia-smi shows
            it, 0..1; None if not measured.
        pcie_rx_mib_s: Traffic into the GPU; None if not measured.
        pcie_tx_mib_s: Traffic out of the GPU; None if not measured.
    """

    source: Literal["gpm", "dcgm", "nvml"]
    gract: float
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    memory_utilization: float | None = None
    pcie_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None

    def __post_init__(self) -> None:
        shares = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "memory_utilization")
        for name in ("gract", *shares):
            share = getattr(self, name)
            if share is not None and not 0 <= share <= 1:
                raise InvalidInput(f"{name} is a share in 0..1, got {share}")
        check(self, ("pcie_rx_mib_s", "pcie_tx_mib_s"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where, when and with what a number was measured.

    Attributes:
        device: The device's name as its driver gives it.
        host_cpu: The host CPU's model name.
        host_cores: Cores that the measuring process could choose from.
        date: UTC, ISO 8601, to the second.
        command: The command line, without paths.
        recipes: Digest of the code that says how workloads are trained; None in older records. A
            profile and a run with equal digests did the same work.
    """

    device: str
    driver: str | None
    cuda: str | None
    torch: str
    timm: str | None
    python: str
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    host_cpu: str
    host_cores: int
    date: str
    command: str
    recipes: str | None = None

    def __post_init__(self) -> None:
        check(self, ("sm_clock_mhz", "memory_clock_mhz"))
        check(self, ("host_cores",), MOST_CORES)
