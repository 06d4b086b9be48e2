"""The profile of a workload: what was measured of it alone on a whole GPU.

A number that is None was not measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from operator import gt, le
from statistics import fmean, median
from typing import Annotated

from advisor.errors import InvalidInput
from advisor.files import units
from advisor.files.units import check_number
from advisor.hardware.machine import Counters, Provenance
from advisor.workload.spec import Workload

_Core = Annotated[int, units.Within(0, units.MOST_CORES)]
_Spread = Annotated[float, units.Within(0.0, 10.0)]
_Us = Annotated[float, units.Within(0.0, 1e6 * units.DAY_S)]


@dataclass(frozen=True, slots=True)
class Window:
    """Steps in a stretch of time; an unfinished step counts as the fraction that was done.

    Attributes:
        check_s: Seconds of the host check at its ends, on its core; None: not checked. In a profile
            `seconds` are then at the pace of a core on which it takes `Profile.host_check_s`.
    """

    seconds: units.Length
    steps: float
    check_s: units.Length | None = None

    def __post_init__(self) -> None:
        if not self.steps > 0:
            raise InvalidInput(f"a window of {self.seconds} s has no step, so it has no pace")
        check_number("a step in seconds", self.step_s, units.DAY_S, units.LEAST_STEP_S)

    @property
    def step_s(self) -> float:
        return self.seconds / self.steps


def median_step_s(windows: Sequence[Window]) -> float:
    """Return the seconds of a step at the median window's pace; robust to one stalled window."""
    return median([window.step_s for window in windows])


# Windows that disagree by this share show the host's minute and not the workload.
_UNSTEADY = 0.15


def unsteady(windows: Sequence[Window]) -> float | None:
    """Return by which share the slowest window is behind the fastest; None if below 0.15."""
    paces = [window.step_s for window in windows]
    behind = max(paces) / min(paces) - 1
    return behind if behind >= _UNSTEADY else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Device memory of one process, MiB.

    Attributes:
        allocated_mib: Most that live tensors held at once.
        reserved_mib: Most that torch's caching allocator held.
        device_mib: As the driver saw it, CUDA context included.
    """

    allocated_mib: units.Mib | None
    reserved_mib: units.Mib | None
    device_mib: units.Mib | None = None

    def __post_init__(self) -> None:
        if (self.allocated_mib is None) != (self.reserved_mib is None):
            raise InvalidInput("allocated and reserved memory are known together or not at all")
        sizes = (0.0, self.allocated_mib, self.reserved_mib, self.device_mib, float("inf"))
        measured = [size for size in sizes if size is not None]
        if len(measured) < 3 or not all(map(le, measured, measured[1:])):
            raise InvalidInput(f"allocated <= reserved <= device must hold in MiB, got {self}")

    @property
    def context_mib(self) -> float | None:
        """Memory outside torch's allocator: CUDA context, modules, handles."""
        if self.device_mib is None or self.reserved_mib is None:
            return None
        return self.device_mib - self.reserved_mib


@dataclass(frozen=True, slots=True)
class OtherBatches:
    """The batch sizes from which a profile is estimated, and how uncertain it is.

    Attributes:
        batches: Increasing, at least two.
        step_spread: Standard deviation of the log of the step; `memory_spread` of its memory.
    """

    batches: tuple[int, ...]
    step_spread: _Spread
    memory_spread: _Spread

    def __post_init__(self) -> None:
        if len(self.batches) < 2 or list(self.batches) != sorted({*self.batches}):
            raise InvalidInput(f"batch sizes are at least two, increasing, got {self.batches}")


@dataclass(frozen=True, slots=True)
class LimitedRun:
    """The workload alone under an MPS limit; `sms` is the number that its CUDA context reported."""

    limit_pct: units.Percent
    sms: units.Sms | None
    windows: tuple[Window, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise InvalidInput("a run under an MPS limit has at least one window")

    @property
    def step_s(self) -> float:
        return median_step_s(self.windows)


PROBE_LIMITS_PCT = (14.0, 28.0, 50.0)
"""Limits of the MPS probe, per cent."""


@dataclass(frozen=True, slots=True)
class MpsProbe:
    """The workload alone as an MPS client: without a limit, and under each limit tried."""

    unlimited: LimitedRun
    limited: tuple[LimitedRun, ...]
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSeconds:
    """The wall time in which each part of a profile was measured, seconds.

    Attributes:
        start_s: Starting and ending its process, building the model, the first steps.
        settle_s: Until its pace was steady.
        windows_s: The windows, with the lead before them and the host checks.
        meter_s: The part of `windows_s` in which the driver answered.
        mps_s: Alone under MPS without a limit, its daemon and process included.
    """

    start_s: units.Seconds
    settle_s: units.Seconds
    windows_s: units.Seconds
    meter_s: units.Seconds
    host_path_s: units.Seconds | None = None
    trace_s: units.Seconds | None = None
    mps_s: units.Seconds | None = None
    limits_s: units.Seconds | None = None


HOST_COPY = "host copy"
"""The class of copies between the host's memory and the GPU's, which need no SM."""

QUEUED_COPY = "queued copy"
"""The class of small copies to the GPU that need a time slice, as kernels do, but no SM."""


_COLUMNS = (
    "class_of",
    "launch_us",
    "duration_us",
    "blocks",
    "threads",
    "resident_blocks",
    "stream_of",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrace:
    """The kernels and copies of a round, of one training step or more, in order of their starts.

    The columns have shape (kernels,).

    Attributes:
        classes: Names that `class_of` points into; old profiles have all copies as ``"copy"``.
        launch_us: When an unprofiled host launches it, from the round's start; never decreasing.
        duration_us: How long it ran alone.
        blocks: Thread blocks of its grid; 0, as what follows, for a copy, which needs no SM.
        threads: Threads of a block.
        resident_blocks: Blocks of it that fit on one SM at once.
        stream_of: CUDA stream that it ran on, by number from 0; None if all ran on one, too.
        waits_us: When the host waits until the GPU has done all that was launched, as to read a
            loss, on the clock of `launch_us`, shape (waits,); never decreasing.
        steps: Training steps of the round.
    """

    classes: tuple[str, ...]
    class_of: tuple[units.Count, ...]
    launch_us: tuple[_Us, ...]
    duration_us: tuple[_Us, ...]
    blocks: tuple[Annotated[int, units.Within(0, units.MOST_BLOCKS)], ...]
    threads: tuple[Annotated[int, units.Within(0, units.MOST_THREADS)], ...]
    resident_blocks: tuple[Annotated[int, units.Within(0, units.MOST_RESIDENT_BLOCKS)], ...]
    stream_of: tuple[Annotated[int, units.Within(0, units.MOST_STREAMS)], ...] | None = None
    waits_us: tuple[_Us, ...] | None = None
    steps: units.Positive = 1

    def __post_init__(self) -> None:
        columns = {name: getattr(self, name) for name in _COLUMNS}
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
        if len(set(lengths.values())) != 1 or not self.class_of:
            raise InvalidInput(f"a trace's columns are equally long and not empty, got {lengths}")
        # Thousands of kernels, checked at every change of the host's speed: no loop in Python.
        if max(self.class_of) >= len(self.classes):
            raise InvalidInput("a trace names a kernel class that it does not list")
        if 1e-6 * sum(self.duration_us) < units.LEAST_STEP_S:
            raise InvalidInput("the kernels of a trace take time together")
        for column in (self.launch_us, self.waits_us or ()):
            if any(map(gt, column, column[1:])):
                raise InvalidInput("a trace's launch times and waits must not decrease")

    def launched(self, slowdown: float) -> "KernelTrace":
        """Return the same on a host that takes `slowdown` times as long."""
        return replace(
            self,
            launch_us=tuple([us * slowdown for us in self.launch_us]),
            waits_us=self.waits_us and tuple([us * slowdown for us in self.waits_us]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSide:
    """Host work of a workload, measured alone on cores of its own.

    Attributes:
        main_s: Of a step's host path in the process itself: Python and launches, no loader.
        loader_s: Between two batches of its loader with nothing else to do.
        loader_cpu_s: CPU seconds of the loader's workers for a batch.
        wait_s: Of a step in which the process took its batch, waits included, while training.
        read_mib: What the workers read from files and pipes for a step.
    """

    main_s: units.Seconds | None = None
    loader_s: units.Seconds | None = None
    loader_cpu_s: units.Seconds | None = None
    wait_s: units.Seconds | None = None
    read_mib: units.Mib | None = None

    def slowed(self, slowdown: float) -> "HostSide":
        """Return the same on a host that takes `slowdown` times as long; `read_mib` stays."""
        times = {
            name: seconds * slowdown
            for name in self.__slots__
            if name.endswith("_s") and (seconds := getattr(self, name)) is not None
        }
        return replace(self, **times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One measurement of a workload alone, of the few that a profile averages.

    Attributes:
        date: UTC, ISO 8601, to the second.
        step_s: As measured then, as `host_s` and `host_check_s`; the profile has their means.
    """

    date: str
    step_s: units.Length
    host_s: units.Length | None = None
    host_check_s: units.Length | None = None


MOST_MOMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Work between two steps that only a few pairs of steps have between them.

    Attributes:
        seconds: Of one end, beyond those of a step.
        steps: Steps from one end to the next; None: one in each pass over the data.
        loader_s: In which the loader of the next pass started; 0 where unknown.
        checkpoint_s: In which tensors were saved.
        validation_s: Of validation, which uses the host and the GPU as steps do.
    """

    seconds: units.Length
    steps: units.Positive | None = None
    loader_s: units.Seconds = 0.0
    checkpoint_s: units.Seconds = 0.0
    validation_s: units.Seconds = 0.0

    def __post_init__(self) -> None:
        if self.other_s < -1e-6 * self.seconds:
            raise InvalidInput(f"the parts of an epoch end take longer than it: {self}")

    @property
    def other_s(self) -> float:
        """Seconds of an end in none of the parts."""
        return self.seconds - self.loader_s - self.checkpoint_s - self.validation_s

    def apart(self, longer: float) -> "EpochEnd":
        """Return ends of passes that have `longer` times as many steps."""
        return replace(self, steps=self.steps and max(1, round(self.steps * longer)))

    def changed(self, *, steps: float, host: float = 1.0) -> "EpochEnd":
        """Return the end where validation takes `steps` times as long, and the rest `host`."""
        validation_s = self.validation_s * steps
        return replace(
            self,
            seconds=validation_s + (self.seconds - self.validation_s) * host,
            loader_s=self.loader_s * host,
            checkpoint_s=self.checkpoint_s * host,
            validation_s=validation_s,
        )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Measurements of one workload, alone on a whole GPU.

    Attributes:
        workload: Name, batch size, examples of an epoch, and the script if it has one.
        gpu: Catalogue key of the GPU it ran on, or ``"cpu"``.
        windows: Every window after steady state, shape (windows,).
        host_s: Seconds of a step's host path: Python, launches, loader.
        gpu_s: Seconds of a step in which a kernel or copy ran.
        host_cpu_share: CPU seconds of the process and its loaders over wall seconds times cores.
        power_w: Mean power of the whole GPU, idle power included.
        energy_j: Energy of one step, idle power included.
        idle_power_w: Power of the GPU before anything ran on it.
        cores: Host cores the process was pinned to.
        provenance: Machine, software and time of the measurement; None: only numbers are known.
        host_check_s: Seconds of the host check (`advisor.measure.device`), mean of the windows.
        estimated_from: Catalogue key of the GPU of which this is an estimate; None: measured.
        host_from: Catalogue key of the GPU whose profile has its CPU time; None: this one.
        host: Host work of a step, in parts.
        other_batches: Batch sizes from which it is estimated; None: measured at its own.
        sm_exponent: With a quarter of the SMs that they could use its kernels run at
            ``0.25 ** sm_exponent`` of their pace, by its probe elsewhere; None: see `mps`.
        epoch_end: Work that belongs to no step; None: none was seen.
        host_memory_mib: Memory of its processes on the host, shared pages counted in each.
        moments: Measurements whose geometric mean its step, host path and host check are, oldest
            first; empty: one. All else is from the newest.
    """

    workload: Workload
    gpu: str
    windows: tuple[Window, ...]
    host_s: units.Length | None
    gpu_s: units.Seconds | None
    host_cpu_share: (
        Annotated[float, units.Within(0.0, 2.0)] | None
    )  # both clocks are read a little apart
    memory: Memory
    counters: Counters | None
    power_w: units.Watts | None
    energy_j: units.Joules | None
    idle_power_w: units.Watts | None
    cores: tuple[_Core, ...]
    mps: MpsProbe | None
    trace: KernelTrace | None
    provenance: Provenance | None
    host_check_s: units.Seconds | None = None
    took: PartSeconds | None = None
    estimated_from: str | None = None
    host: HostSide | None = None
    other_batches: OtherBatches | None = None
    sm_exponent: Annotated[float, units.Within(0.0, 2.0)] | None = None
    epoch_end: EpochEnd | None = None
    host_memory_mib: units.Mib | None = None
    host_from: str | None = None
    moments: tuple[Moment, ...] = ()
    schema: units.Schema = 1

    def __post_init__(self) -> None:
        if not self.windows:
            raise InvalidInput(f"{self.name}: a profile has at least one window")
        if len(self.moments) > MOST_MOMENTS:
            raise InvalidInput(f"{self.name}: a profile has at most {MOST_MOMENTS} moments")
        if self.epoch_s is not None and self.epoch_s > units.MOST_EPOCH_S:
            days, most = (seconds / units.DAY_S for seconds in (self.epoch_s, units.MOST_EPOCH_S))
            raise InvalidInput(
                f"{self.name}: an epoch would take {days:,.0f} days, and {most:.0f} are the most: "
                f"check examples_per_epoch, batch and windows"
            )

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def is_estimate(self) -> bool:
        """True if it was not measured on this GPU, or not at this batch size."""
        return self.estimated_from is not None or self.other_batches is not None

    @property
    def host_gpu(self) -> str:
        """Catalogue key of the GPU on whose host its CPU time was measured."""
        return self.host_from or self.estimated_from or self.gpu

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
        return unsteady(self.windows)

    @property
    def log_spread(self) -> tuple[float, float]:
        """Logs of the fastest and of the slowest moment's step over their geometric mean."""
        logs = [log(each.step_s) for each in self.moments] or [0.0]
        return min(logs) - fmean(logs), max(logs) - fmean(logs)

    @cached_property
    def end_share(self) -> tuple[float, float]:
        """Share of epoch ends in each step: seconds of the host, and validation in steps alone."""
        end = self.epoch_end
        every = None if end is None else end.steps or self.workload.steps_per_epoch
        if end is None or every is None:
            return 0.0, 0.0
        return (end.seconds - end.validation_s) / every, end.validation_s / every / self.step_s

    def paced_s(self, step_s: float) -> float:
        """Return seconds of a step of `step_s` together with its share of epoch ends.

        In a mix, the validation in an epoch end slows as steps do, and the rest does not slow.
        """
        host_s, work = self.end_share
        return step_s * (1 + work) + host_s

    @property
    def epoch_s(self) -> float | None:
        """Seconds of one pass alone, epoch ends included; None if its length is unknown."""
        steps = self.workload.steps_per_epoch
        return None if steps is None else steps * self.paced_s(self.step_s)

    @property
    def busy_share(self) -> float | None:
        """Share of a step in which the GPU works, 0..1; None if not measured."""
        return None if self.gpu_s is None else min(1.0, self.gpu_s / self.step_s)


FindsProfiles = Callable[[str], Profile]
"""Gives the profile of a name or a file's path; raises `InvalidInput` where there is none."""
