"""Host work of a training step, in parts: the process itself, and its loader's workers."""

from dataclasses import dataclass

from advisor.workload.plausible import check


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
