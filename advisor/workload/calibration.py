"""The machine of a measurement: its software and host, and its calibration."""

from dataclasses import dataclass
from statistics import median
from typing import Annotated

from advisor.files.reading import (
    DAY_S,
    MOST_CORES,
    Mhz,
    Mib,
    Percent,
    Seconds,
    Sms,
    Watts,
    Within,
    check_schema,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The machine, time and software with which a number was measured.

    Attributes:
        device: Its name as the driver gives it.
        host_cores: Cores that the measuring process could choose from.
        date: UTC, ISO 8601, to the second.
        command: The command line, without paths.
        recipes: Digest of the code that says how workloads are trained; None in older records. A
            profile and a run with equal digests did the same work.
        host: Name of the machine; None in older records.
    """

    device: str
    driver: str | None
    cuda: str | None
    torch: str
    timm: str | None
    python: str
    sm_clock_mhz: Mhz | None
    memory_clock_mhz: Mhz | None
    host_cpu: str
    host_cores: Annotated[int, Within(0, MOST_CORES)]
    date: str
    command: str
    recipes: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class LimitedContext:
    """Size of the CUDA context of an MPS client that may use `sms` SMs."""

    limit_pct: Percent
    sms: Sms
    context_mib: Mib


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Device memory beyond tensors, MiB.

    Attributes:
        driver_mib: Memory in use while nothing runs on the GPU.
        plain_mib: CUDA context of a small network in training; None if the driver does not say.
        mps_mib: The same for an MPS client; None, as what follows, if MPS does not run here.
        sms: SMs that a client without a limit may use.
        limited: Contexts of clients with limits.
        mps_server_mib: Memory of the MPS server.
    """

    driver_mib: Mib
    plain_mib: Mib | None
    mps_mib: Mib | None
    sms: Sms | None
    limited: tuple[LimitedContext, ...]
    mps_server_mib: Mib | None

    @property
    def per_sm_mib(self) -> float | None:
        """MiB saved for each SM that a limit takes away; None if no limit was tried."""
        if self.mps_mib is None or self.sms is None:
            return None
        saved = [
            (self.mps_mib - each.context_mib) / (self.sms - each.sms)
            for each in self.limited
            if each.sms < self.sms
        ]
        return max(0.0, median(saved)) if saved else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Switching:
    """The cost of turns between two processes that each repeat one kernel on the GPU.

    Attributes:
        kernel_s: Seconds of the kernel alone.
        overhead: Share of the time in which neither process advances; noise can bring it slightly
            below 0.
        slice_s: How long one keeps the GPU; None if the kernels were too long to show it.
        switch_s: Seconds of a change from one to the other; None as `slice_s`.
    """

    kernel_s: Seconds
    overhead: Annotated[float, Within(-0.999, 0.999)]
    slice_s: Seconds | None
    switch_s: Annotated[float, Within(-DAY_S, DAY_S)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The calibration of one machine.

    Attributes:
        gpu: Catalogue key.
        switching: For each kernel tried.
        idle_power_w: Least power while nothing ran; None if not metered.
        provenance: Clocks are those under the kernels of `switching`.
    """

    gpu: str
    contexts: Contexts
    switching: tuple[Switching, ...]
    idle_power_w: Watts | None
    provenance: Provenance
    schema: int = 1

    def __post_init__(self) -> None:
        check_schema(self.schema)
