"""A profiled training step, what the host issued and the GPU did, and its compact kernel trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from advisor.errors import InvalidInput
from advisor.workload.kernel_trace import KernelTrace

_WARP = 32

# Of all capabilities below: registers of an SM, in four equal parts, each warp's in steps of 256.
_REGISTERS, _PARTS, _REGISTER_STEP = 65_536, 4, 256

_SHARED_STEP = 128


@dataclass(frozen=True, slots=True)
class SmLimits:
    """What one SM can hold at once.

    Attributes:
        threads: Resident threads.
        blocks: Resident blocks.
        shared_kib: Shared memory.
        reserved_kib: Shared memory that the system reserves for each block.
    """

    threads: int
    blocks: int
    shared_kib: int
    reserved_kib: int


_LIMITS = {
    "7.0": SmLimits(2048, 32, 96, 0),
    "7.5": SmLimits(1024, 16, 64, 0),
    "8.0": SmLimits(2048, 32, 164, 1),
    "8.6": SmLimits(1536, 16, 100, 1),
    "8.9": SmLimits(1536, 24, 100, 1),
    "9.0": SmLimits(2048, 32, 228, 1),
    "10.0": SmLimits(2048, 32, 228, 1),
    "10.3": SmLimits(2048, 32, 228, 1),
    "12.0": SmLimits(1536, 24, 100, 1),
}


def sm_limits(compute_capability: str) -> SmLimits:
    """What an SM of `compute_capability`, e.g. ``"9.0"``, can hold.

    Raises:
        InvalidInput: Its limits are not in the table.
    """
    try:
        return _LIMITS[compute_capability]
    except KeyError:
        raise InvalidInput(
            f"the limits of an SM of compute capability {compute_capability} are not known. "
            f"Known: {', '.join(_LIMITS)}."
        ) from None


def resident_blocks(limits: SmLimits, *, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of a kernel that fit on one SM at once, at least 1, since the kernel did run."""
    warps = -(-threads // _WARP)
    by_threads = limits.threads // (warps * _WARP)
    by_registers = _warps_by_registers(registers) // warps
    return max(1, min(limits.blocks, by_threads, by_registers, _by_shared(limits, shared_bytes)))


def _warps_by_registers(registers: int) -> int:
    of_warp = max(1, -(-registers * _WARP // _REGISTER_STEP)) * _REGISTER_STEP
    return _REGISTERS // _PARTS // of_warp * _PARTS


def _by_shared(limits: SmLimits, shared_bytes: int) -> int:
    steps = -(-(shared_bytes + limits.reserved_kib * 1024) // _SHARED_STEP)
    return limits.blocks if steps == 0 else limits.shared_kib * 1024 // (steps * _SHARED_STEP)


# A stream queues about 1,024 launches before the host has to wait, and some calls count for more
# than one: with at most this many, the host never waits.
QUEUE_FREE_LAUNCHES = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWork:
    """A kernel, copy or memset.

    Attributes:
        kind: Its class: of a kernel by its name, else ``"copy"``, `HOST_COPY` or
            ``"memset"``.
        phase: Index of the step's part that launched it.
        launch_us: When the host launched it, from that part's start, without waits.
        start_us: When it started, by the profiler's clock.
        duration_us: How long it ran.
        blocks: Of the grid; 0 for a copy or memset, as `threads` and `resident_blocks`.
        threads: Of a block.
        resident_blocks: Blocks that fit on an SM at once.
        stream: CUDA's number of the stream it ran on.
    """

    kind: str
    phase: int
    launch_us: float
    start_us: float
    duration_us: float
    blocks: int
    threads: int
    resident_blocks: int
    stream: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """A part of a step, as the profiler recorded it on the host.

    Attributes:
        host_us: How long the host issued work, without waits for the launch queue.
        launches: Number of kernels, copies and memsets launched; a whole CUDA graph counts as one.
        waits_us: When the host asked for the GPU to be done, from the phase's start, without waits.
    """

    host_us: float
    launches: int
    waits_us: tuple[float, ...] = ()

    @property
    def timed(self) -> bool:
        """Whether the host can be timed from outside, since it never waited for the GPU."""
        return self.launches <= QUEUE_FREE_LAUNCHES and not self.waits_us


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step; `work` in the order in which it ran, `phases` in theirs."""

    work: tuple[GpuWork, ...]
    phases: tuple[Phase, ...]

    @property
    def busy_s(self) -> float:
        """Seconds in which anything ran on the GPU: the length of the union of all intervals."""
        busy_us, until_us = 0.0, float("-inf")
        for each in sorted(self.work, key=lambda each: each.start_us):
            end_us = each.start_us + each.duration_us
            busy_us += max(0.0, end_us - max(each.start_us, until_us))
            until_us = max(until_us, end_us)
        return busy_us * 1e-6


def median_step(steps: Sequence[TracedStep]) -> TracedStep:
    """The one of `steps` with the median busy time."""
    return sorted(steps, key=lambda each: each.busy_s)[len(steps) // 2]


def step_from(fields: Mapping[str, Any]) -> TracedStep:
    """The step whose fields a tenant sent."""
    return TracedStep(
        tuple(GpuWork(**each) for each in fields["work"]),
        tuple(Phase(**each) for each in fields["phases"]),
    )


def kernel_trace(step: TracedStep, phases_s: tuple[float, ...]) -> KernelTrace:
    """`step` in compact form, with launch times at the pace of an unprofiled host.

    Args:
        step: With at least one piece of work.
        phases_s: Seconds that an unprofiled host takes for each phase, shape (phases,).
    """
    at_pace = _at_pace(step.phases, phases_s)
    launched = [at_pace(work.phase, work.launch_us) for work in step.work]
    waits = [at_pace(at, us) for at, phase in enumerate(step.phases) for us in phase.waits_us]
    classes = tuple(dict.fromkeys(work.kind for work in step.work))
    index = {kind: number for number, kind in enumerate(classes)}
    return KernelTrace(
        classes=classes,
        class_of=tuple(index[work.kind] for work in step.work),
        # Streams may overtake each other; work that ran later counts as launched no earlier.
        launch_us=tuple(round(us, 2) for us in accumulate(launched, max)),
        duration_us=tuple(round(work.duration_us, 2) for work in step.work),
        blocks=tuple(work.blocks for work in step.work),
        threads=tuple(work.threads for work in step.work),
        resident_blocks=tuple(work.resident_blocks for work in step.work),
        stream_of=_streams(step),
        waits_us=tuple(round(us, 2) for us in sorted(waits)),
    )


def _at_pace(phases: Sequence[Phase], phases_s: Sequence[float]) -> Callable[[int, float], float]:
    """A function of a phase and microseconds in it, as profiled: the same from the step's start.

    At the pace of an unprofiled host, that takes `phases_s`.
    """
    begins_us = [1e6 * seconds for seconds in accumulate(phases_s, initial=0.0)]
    paces = [
        1e6 * seconds / phase.host_us if phase.host_us else 0.0
        for seconds, phase in zip(phases_s, phases, strict=True)
    ]
    return lambda at, us: begins_us[at] + min(us * paces[at], 1e6 * phases_s[at])


def _streams(step: TracedStep) -> tuple[int, ...] | None:
    """Streams numbered in the order of their first use; None if there is one."""
    numbers = list(dict.fromkeys(work.stream for work in step.work))
    if len(numbers) == 1:
        return None
    return tuple(numbers.index(work.stream) for work in step.work)


def phases_without_waits(
    measured_s: Sequence[float], profiled: Sequence[Phase]
) -> tuple[float, ...]:
    """Seconds that an unprofiled host needs for each phase of a step if it never waits for the GPU.

    Each phase was timed with an empty launch queue, so a phase with few launches was timed
    correctly. One with many launches may have waited for the GPU, as did one that asked it to be
    done, so that a loss can be read. The profile shows such waits but
    slows the host, so such a phase counts its profiled time without waits, scaled to the pace of
    the other phases, if that is less.

    Args:
        measured_s: Seconds that the host took for each phase, unprofiled, shape (phases,).
        profiled: The same phases as recorded by the profiler.
    """
    pairs = list(zip(measured_s, profiled, strict=True))
    free = [(seconds, phase) for seconds, phase in pairs if phase.timed]
    profiled_s = sum(phase.host_us for _, phase in free) * 1e-6
    pace = min(1.0, sum(seconds for seconds, _ in free) / profiled_s) if profiled_s else 1.0
    return tuple(
        seconds if phase.timed else min(seconds, phase.host_us * 1e-6 * pace)
        for seconds, phase in pairs
    )
