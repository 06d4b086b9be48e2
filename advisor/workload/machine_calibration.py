"""The calibration of a machine: what `advisor calibrate` measures once, whatever is trained."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from advisor.errors import InvalidInput
from advisor.workload.gpu_side import GpuSide
from advisor.workload.measured import Provenance
from advisor.workload.plausible import DAY_S, MOST_CORES, MOST_SMS, check, check_number


@dataclass(frozen=True, slots=True)
class HostCheck:
    """Seconds of the host check (`advisor.measure.process.tenant_verbs`) on `cores` busy cores."""

    cores: int
    check_s: float

    def __post_init__(self) -> None:
        if self.cores < 1 or not 0 < self.check_s < float("inf"):
            raise InvalidInput(f"a host check takes time, on at least one core; got {self}")
        check(self, ("cores",), MOST_CORES)
        check(self, ("check_s",))


@dataclass(frozen=True, slots=True)
class LimitedContext:
    """Size of the CUDA context of an MPS client that may use `sms` SMs."""

    limit_pct: float
    sms: int
    context_mib: float

    def __post_init__(self) -> None:
        check(self, ("limit_pct", "context_mib"))
        check(self, ("sms",), MOST_SMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Device memory beyond tensors, MiB.

    Attributes:
        driver_mib: Memory in use while nothing runs on the GPU.
        plain_mib: CUDA context of a small network in training; None if the driver does not say.
        mps_mib: The same for an MPS client; None if MPS does not run here.
        sms: SMs that a client without a limit may use; None if MPS does not run here.
        limited: Contexts of clients with limits; empty if MPS does not run here.
        mps_server_mib: Memory of the MPS server; None if MPS does not run here.
    """

    driver_mib: float
    plain_mib: float | None
    mps_mib: float | None
    sms: int | None
    limited: tuple[LimitedContext, ...]
    mps_server_mib: float | None

    def __post_init__(self) -> None:
        check(self, ("driver_mib", "plain_mib", "mps_mib", "mps_server_mib"))
        check(self, ("sms",), MOST_SMS)

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

    kernel_s: float
    overhead: float
    slice_s: float | None
    switch_s: float | None

    def __post_init__(self) -> None:
        check(self, ("kernel_s", "slice_s"))
        if not -1 < self.overhead < 1:
            raise InvalidInput(f"overhead is a share below 1, got {self.overhead}")
        if self.switch_s is not None:
            check_number("switch_s", self.switch_s, DAY_S, -DAY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The calibration of one machine.

    Attributes:
        gpu: Catalogue key, or ``"cpu"`` if only the host was measured.
        host: For increasing numbers of cores, from one.
        contexts: None without a GPU.
        switching: For each kernel tried; empty without a GPU.
        idle_power_w: Least power while nothing ran; None if not metered.
        provenance: Clocks are those under the kernels of `switching`.
        gpu_side: Rates that the GPU attains; None if they were not asked for.
        in_passing: Whether its host checks took no more than a second, before advice.

    Raises:
        InvalidInput: The numbers are impossible.
    """

    gpu: str
    host: tuple[HostCheck, ...]
    contexts: Contexts | None
    switching: tuple[Switching, ...]
    idle_power_w: float | None
    provenance: Provenance
    gpu_side: GpuSide | None = None
    in_passing: bool = False
    schema: int = 1

    def __post_init__(self) -> None:
        if self.schema != 1:
            raise InvalidInput(f"its schema is {self.schema}, this advisor reads 1")
        cores = [each.cores for each in self.host]
        if not cores or cores[0] != 1 or any(b <= a for a, b in pairwise(cores)):
            raise InvalidInput(f"host checks begin with one core and add more, got {cores}")
        check(self, ("idle_power_w",))

    def host_check_s(self, cores: int) -> float:
        """Seconds of the check with `cores` cores busy, interpolated between those measured."""
        before = self.host[0]
        for after in self.host:
            if cores <= after.cores:
                part = (cores - before.cores) / max(1, after.cores - before.cores)
                return before.check_s + part * (after.check_s - before.check_s)
            before = after
        return before.check_s
