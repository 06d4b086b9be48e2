"""The profile of a workload: what was measured of it alone on a whole GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from advisor.errors import InvalidInput
from advisor.workload.host_side import HostSide
from advisor.workload.kernel_trace import KernelTrace
from advisor.workload.measured import (
    Counters,
    Memory,
    Provenance,
    Window,
    median_step_s,
    unsteady,
)
from advisor.workload.other_batches import OtherBatches
from advisor.workload.plausible import (
    DAY_S,
    LEAST_STEP_S,
    MOST_CORES,
    MOST_EPOCH_S,
    MOST_SMS,
    check,
    check_number,
)
from advisor.workload.spec import Workload


@dataclass(frozen=True, slots=True)
class LimitedRun:
    """The workload alone under an MPS limit; `sms` is the number that its CUDA context reported."""

    limit_pct: float
    sms: int | None
    windows: tuple[Window, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise InvalidInput("a run under an MPS limit has at least one window")
        check(self, ("limit_pct",))
        check(self, ("sms",), MOST_SMS)

    @property
    def step_s(self) -> float:
        return median_step_s(self.windows)


@dataclass(frozen=True, slots=True)
class MpsProbe:
    """The workload alone as an MPS client: without a limit, and under each limit tried."""

    unlimited: LimitedRun
    limited: tuple[LimitedRun, ...]
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeconds:
    """How long each part of a profile took to measure, seconds of wall time.

    Attributes:
        start_s: Starting and ending its process, building the model, the first steps.
        settle_s: Until its pace was steady.
        windows_s: The windows for pace, memory, counters and power, with the lead before them and
            the host checks.
        meter_s: The part of `windows_s` in which the driver answered for counters, power and
            clocks.
        host_path_s: The host path, phase by phase; None without a GPU.
        trace_s: The kernel trace; None without a GPU.
        mps_s: Alone under MPS without a limit, its daemon and process included; None if MPS was
            not probed.
        limits_s: Alone under every limit tried; None if MPS was not probed.

    Raises:
        InvalidInput: A part took less than no time.
    """

    start_s: float
    settle_s: float
    windows_s: float
    meter_s: float
    host_path_s: float | None = None
    trace_s: float | None = None
    mps_s: float | None = None
    limits_s: float | None = None

    def __post_init__(self) -> None:
        check(self, self.__slots__)

    @property
    def whole_s(self) -> float:
        """All parts that were measured together."""
        parts = (getattr(self, part) for part in self.__slots__ if part != "meter_s")
        return sum(seconds or 0.0 for seconds in parts)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One workload, measured alone.

    Attributes:
        gpu: Catalogue key of the GPU it ran on, or ``"cpu"``.
        windows: Every window after steady state, shape (windows,).
        host_s: Seconds of a step's host path: Python, launches, loader; None if not measured.
        gpu_s: Seconds of a step in which a kernel or copy ran; None without a GPU.
        host_cpu_share: CPU seconds of the process and its loaders over wall seconds times cores.
        power_w: Mean power of the whole GPU, idle power included; None if not measured.
        energy_j: Energy of one step, idle power included; None if not measured.
        idle_power_w: Power of the GPU before anything ran on it; None if not measured.
        cores: Host cores the process was pinned to.
        mps: None if MPS was not probed.
        trace: None if no kernel was traced.
        provenance: None if only numbers are known.
        host_check_s: Seconds of `advisor.measure.process.tenant_verbs` on its core, mean of before
            and after the windows; None in profiles older than that check.
        took: None in profiles from before it was recorded.
        estimated_from: Catalogue key of the GPU on which it was measured, if this is what that lets
            expect of `gpu`; None: measured on `gpu`.
        host: What the host does for a step, in parts; None in profiles from before it was recorded.
        other_batches: From which batch sizes it is estimated; None: measured at its own.
        sm_exponent: How its kernels slow with the SMs that a limit takes, as its probe told where
            that ran: with a quarter of the SMs they could use they run at ``0.25 ** sm_exponent``
            of their pace. None: `mps` itself tells.

    Raises:
        InvalidInput: The numbers are impossible.
    """

    workload: Workload
    gpu: str
    windows: tuple[Window, ...]
    host_s: float | None
    gpu_s: float | None
    host_cpu_share: float | None
    memory: Memory
    counters: Counters | None
    power_w: float | None
    energy_j: float | None
    idle_power_w: float | None
    cores: tuple[int, ...]
    mps: MpsProbe | None
    trace: KernelTrace | None
    provenance: Provenance | None
    host_check_s: float | None = None
    took: PartSeconds | None = None
    estimated_from: str | None = None
    host: HostSide | None = None
    other_batches: OtherBatches | None = None
    sm_exponent: float | None = None
    schema: int = 1

    def __post_init__(self) -> None:
        if self.schema != 1:
            raise InvalidInput(f"{self.name}: its schema is {self.schema}, this advisor reads 1")
        if not self.windows:
            raise InvalidInput(f"{self.name}: a profile has at least one window")
        try:  # quicker than `located`: searches make many profiles
            self._check_numbers()
        except InvalidInput as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def _check_numbers(self) -> None:
        if self.host_s is not None:
            check_number("host_s", self.host_s, DAY_S, LEAST_STEP_S)
        check(self, ("gpu_s", "host_check_s", "host_cpu_share"))
        check(self, ("sm_exponent",), 2.0)
        check(self, ("power_w", "idle_power_w", "energy_j"))
        if self.cores:
            check_number("a core's number", min(self.cores), MOST_CORES)
            check_number("a core's number", max(self.cores), MOST_CORES)
        if self.epoch_s is not None and self.epoch_s > MOST_EPOCH_S:
            raise InvalidInput(
                f"an epoch would take {self.epoch_s / DAY_S:,.0f} days, and "
                f"{MOST_EPOCH_S / DAY_S:.0f} are the most: check examples_per_epoch, batch and "
                f"windows"
            )

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def is_estimate(self) -> bool:
        """Whether nobody measured it: on this GPU, or at this batch size."""
        return self.estimated_from is not None or self.other_batches is not None

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step alone, at the median window's pace."""
        return median_step_s(self.windows)

    @property
    def fastest_step_s(self) -> float:
        """Seconds of a step at the pace that a fifth of the windows reach or exceed.

        Predictions are made from the median, `step_s`: over 1,400 jobs of drawn runs it did as well
        as this or better (naive, as profiled: 3.2 % off against 3.6 %).
        """
        paces = sorted(window.step_s for window in self.windows)
        return paces[(len(paces) - 1) // 5]

    @property
    def unsteady(self) -> float | None:
        """As `measured.unsteady` says of its windows."""
        return unsteady(self.windows)

    @property
    def epoch_s(self) -> float | None:
        """Seconds of one pass alone, training steps only; None if its length is not known."""
        steps = self.workload.steps_per_epoch
        return None if steps is None else steps * self.step_s

    @property
    def busy_share(self) -> float | None:
        """Share of a step in which the GPU works, 0..1; None if not measured."""
        return None if self.gpu_s is None else min(1.0, self.gpu_s / self.step_s)


FindsProfiles = Callable[[str], Profile]
"""Gives the profile of a name or a file's path; raises `InvalidInput` where there is none."""
