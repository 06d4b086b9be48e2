"""The kernels of one step, as a profiler recorded them."""

from dataclasses import dataclass, replace
from math import isfinite
from operator import gt

from advisor.errors import InvalidInput
from advisor.workload.reading import (
    LEAST_STEP_S,
    MOST_BLOCKS,
    MOST_RESIDENT_BLOCKS,
    MOST_STREAMS,
    MOST_THREADS,
    check,
    check_number,
    most_of,
)

HOST_COPY = "host copy"
"""The class of copies between the host's memory and the GPU's, which need no SM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrace:
    """The kernels and copies of one training step, in the order in which they ran.

    The columns have shape (kernels,).

    Attributes:
        classes: Names that `class_of` points into, e.g. ``("conv", "elementwise", "copy")``;
            profiles from before `HOST_COPY` have all copies as ``"copy"``.
        class_of: Index of its class in `classes`.
        launch_us: When the host launched it, from the step's start, at the pace of an unprofiled
            host; never decreasing.
        duration_us: How long it ran alone.
        blocks: Thread blocks of its grid; 0 for a copy or a memset, which needs no SM.
        threads: Threads of a block; 0 for a copy.
        resident_blocks: Blocks of it that fit on one SM at once, by registers, shared memory,
            threads and block slots; 0 for a copy.
        stream_of: CUDA stream that it ran on, by number from 0; None if all ran on one, or in
            profiles from before this was recorded.
        waits_us: When the host waits until the GPU has done all that was launched, as to read a
            loss, on the clock of `launch_us`, shape (waits,); never decreasing. None in profiles
            from before this was recorded.

    Raises:
        InvalidInput: The columns differ in length, or a number is impossible.
    """

    classes: tuple[str, ...]
    class_of: tuple[int, ...]
    launch_us: tuple[float, ...]
    duration_us: tuple[float, ...]
    blocks: tuple[int, ...]
    threads: tuple[int, ...]
    resident_blocks: tuple[int, ...]
    stream_of: tuple[int, ...] | None = None
    waits_us: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        columns = {
            name: len(column)
            for name in self.__slots__
            if name not in {"classes", "waits_us"} and (column := getattr(self, name)) is not None
        }
        if len(set(columns.values())) != 1 or not self.class_of:
            raise InvalidInput(f"a trace's columns are equally long and not empty, got {columns}")
        # Thousands of kernels, checked at every change of the host's speed: no loop in Python.
        if not 0 <= min(self.class_of) <= max(self.class_of) < len(self.classes):
            raise InvalidInput("a trace names a kernel class that it does not list")
        times_us = self.launch_us + self.duration_us + (self.waits_us or ())
        if not all(map(isfinite, times_us)) or min(times_us) < 0:
            raise InvalidInput("a launch, a duration and a wait are finite and at least 0 us")
        check_number("a launch, duration or wait in us", max(times_us), most_of("duration_us"))
        if 1e-6 * sum(self.duration_us) < LEAST_STEP_S:
            raise InvalidInput("the kernels of a trace take time together")
        for column in (self.launch_us, self.waits_us or ()):
            if any(map(gt, column, column[1:])):
                raise InvalidInput("a trace's launch times and waits must not decrease")
        if min(self.blocks + self.threads + self.resident_blocks + (self.stream_of or ())) < 0:
            raise InvalidInput(
                "a kernel's blocks, threads, resident blocks and stream are at least 0"
            )
        check_number("blocks of a kernel", max(self.blocks), MOST_BLOCKS)
        check_number("threads of a block", max(self.threads), MOST_THREADS)
        check_number("resident blocks of an SM", max(self.resident_blocks), MOST_RESIDENT_BLOCKS)
        check_number("a stream's number", max(self.stream_of or (0,)), MOST_STREAMS)

    def launched(self, slowdown: float) -> "KernelTrace":
        """The same on a host that takes `slowdown` times as long."""
        return replace(
            self,
            launch_us=tuple([us * slowdown for us in self.launch_us]),
            waits_us=self.waits_us and tuple([us * slowdown for us in self.waits_us]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSide:
    """Host work of a workload, measured alone on cores of its own.

    Attributes:
        main_s: Seconds of a step's host path in the process itself: Python and launches, its
            loader left out; None if not measured.
        loader_s: Seconds between two batches of its loader with nothing else to do; None without a
            loader, or if not measured.
        loader_cpu_s: CPU seconds of the loader's workers for a batch: reading, decoding and
            augmenting its examples; None without a loader.
        wait_s: Seconds of a step in which the process took its batch, waits included, while
            training; None if not measured.
        read_mib: What the workers read from files and pipes for a step; None if the system would
            not say.
    """

    main_s: float | None = None
    loader_s: float | None = None
    loader_cpu_s: float | None = None
    wait_s: float | None = None
    read_mib: float | None = None

    def __post_init__(self) -> None:
        check(self, self.__slots__)
