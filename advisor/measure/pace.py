"""Measures how fast a workload trains alone: first until it is steady, then in windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import median
from time import monotonic, sleep, time
from typing import Any, Literal

import numpy as np

from advisor.errors import AdvisorError
from advisor.hardware.gpus import gpu
from advisor.hardware.machine import Activity
from advisor.measure.device import Device, Meter, memory_record
from advisor.measure.process import say
from advisor.measure.trace import GpuWork, Phase, TracedStep
from advisor.measure.worker import LOAD_S, TenantHandle, living
from advisor.workload.profile import HostSide, KernelTrace, Memory, PartSeconds, Window

# With fewer steps of the slowest tenant, where a window cuts a step affects its figure.
_FEWEST_STEPS = 6

# Training goes on this long after the last window, so that clock differences cut no window short.
_MARGIN_S = 0.05

_LONGEST_LEAD_S = 2.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Lengths of the parts of a measurement.

    Attributes:
        settle_s: Seconds that all tenants train together before anything counts.
        window_s: Least length of a window.
        windows: Number of windows.
        lead_s: Least seconds before the first window, in which launch queues fill.
        longest_s: Most seconds of all windows together.
    """

    settle_s: float = 0.7
    window_s: float = 1.0
    windows: int = 3
    lead_s: float = 0.2
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Moments of one run.

    Attributes:
        start_at: When all tenants take their first step; seconds of the wall clock.
        bounds_s: Where windows begin and end, seconds after `start_at`, shape (windows + 1,).
    """

    start_at: float
    bounds_s: tuple[float, ...]

    @property
    def begin_at(self) -> float:
        """The begin of the first window."""
        return self.start_at + self.bounds_s[0]

    @property
    def end_at(self) -> float:
        """The end of the last window."""
        return self.start_at + self.bounds_s[-1]

    @property
    def stop_at(self) -> float:
        """The moment from which tenants begin no further step."""
        return self.end_at + _MARGIN_S


def schedule(start_at: float, timing: Timing, slowest_step_s: float) -> Schedule:
    """Schedule windows if all start at `start_at` and the slowest step takes `slowest_step_s`."""
    least_s = timing.windows * timing.window_s
    length_s = max(least_s, min(_FEWEST_STEPS * slowest_step_s, timing.longest_s))
    first_s = min(max(timing.lead_s, slowest_step_s), _LONGEST_LEAD_S)
    bounds_s = np.linspace(first_s, first_s + length_s, timing.windows + 1)
    return Schedule(start_at, tuple(bounds_s.tolist()))


def sleep_until(moment: float) -> None:
    """Wait for a moment of the wall clock; returns at once if it is past."""
    sleep(max(0.0, moment - time()))


def windows_of(plan: Schedule, completed_at: Sequence[float]) -> tuple[Window, ...]:
    """Count one tenant's steps in each window; a step cut by a bound counts in part on both sides.

    `completed_at` has the ends of its steps, never decreasing, shape (steps,).
    """
    ends_s = np.array([plan.start_at, *completed_at]) - plan.start_at
    done = np.interp(plan.bounds_s, ends_s, np.arange(len(ends_s)))
    return tuple(map(Window, np.diff(plan.bounds_s).tolist(), np.diff(done).tolist()))


# Between the request to start and the start.
_NOTICE_S = 0.05
# Two stretches in a row whose median steps differ by no more than this are a steady state.
_STEADY_WITHIN = 0.03
_STRETCH_S, _STRETCH_STEPS = 0.4, 3
# Some workloads are never steady, since a host's clock varies. They are measured all the same.
_LONGEST_SETTLING_S = 5.0


@dataclass(frozen=True, slots=True)
class SoloPace:
    """The result of the windows.

    Attributes:
        windows: Every window, shape (windows,).
        host_cpu_share: CPU seconds of the tenant and its loader over wall seconds times cores.
        activity: Of the whole GPU over the windows.
        clocks_mhz: Of SMs and memory during the run.
        memory: Peak memory of the tenant.
        host_check_s: Mean of the host checks before and after; None for a program without them.
        meter_s: Seconds that the device's driver took to answer.
        host: The host's work for a step; None for a program that does not report it.
    """

    windows: tuple[Window, ...]
    host_cpu_share: float
    activity: Activity
    clocks_mhz: tuple[int | None, int | None]
    memory: Memory
    host_check_s: float | None
    meter_s: float
    host: HostSide | None = None


def mean_step_s(windows: Sequence[Window]) -> float:
    """Return the mean seconds of a step over all windows."""
    return sum(each.seconds for each in windows) / sum(each.steps for each in windows)


def settled_step_s(tenant: TenantHandle, first_step_s: float, patience_s: float) -> float:
    """Train until the pace is steady; return seconds of a step, at first about `first_step_s`."""
    paces = [first_step_s]
    until = time() + _LONGEST_SETTLING_S
    while time() < until:
        stretch_s = max(_STRETCH_S, _STRETCH_STEPS * paces[-1])
        start_at = time() + _NOTICE_S
        span = {"start_at": start_at, "stop_at": start_at + stretch_s}
        answer = living(tenant.ask("run", timeout_s=stretch_s + patience_s, **span))
        ends = [start_at, *answer["completed_at"]]
        paces.append(median(later - earlier for earlier, later in pairwise(ends)))
        if is_steady(paces[1:]):
            return paces[-1]
    say(f"  not steady after {_LONGEST_SETTLING_S:.0f} s; its windows show how it varies")
    return paces[-1]


def is_steady(paces: Sequence[float]) -> bool:
    """Return whether the last two of `paces`, seconds of a step, agree."""
    return len(paces) > 1 and abs(paces[-1] - paces[-2]) <= _STEADY_WITHIN * min(paces[-2:])


def measured_pace(
    tenant: TenantHandle, meter: Meter, timing: Timing, step_s: float, patience_s: float
) -> SoloPace:
    """Measure the pace of `tenant` in windows after `timing.lead_s`, with `meter`.

    Raises:
        AdvisorError: It ran out of memory, died, or took no step for `patience_s`.
    """
    before = living(tenant.ask("check_host"))["check_s"]
    plan = schedule(time() + _NOTICE_S, timing, step_s)
    tenant.send("train", start_at=plan.start_at, stop_at=plan.stop_at)
    sleep_until(plan.begin_at)
    metered_at = monotonic()
    meter.begin()
    meter_s = monotonic() - metered_at
    sleep_until(plan.end_at)
    metered_at = monotonic()
    activity, clocks_mhz = meter.end(), meter.clocks_mhz()
    meter_s += monotonic() - metered_at
    answer = living(tenant.receive(max(0.0, plan.stop_at - time()) + patience_s))
    completed_at = answer["completed_at"]
    wall_s = completed_at[-1] - plan.start_at
    after = living(tenant.ask("check_host"))["check_s"]
    held_mib = meter.memory_mib()
    # In a container the driver may list the tenant under another pid. On a claimed device the only
    # other process is an MPS server, which holds less than any tenant.
    own_mib = held_mib.get(tenant.pid, max(held_mib.values(), default=None))
    memory = memory_record(answer["memory"], own_mib)
    if memory is None:
        raise AdvisorError(
            "the driver shows no process on this GPU. Does it train there, and does the driver "
            "show processes here?"
        )
    return SoloPace(
        windows=windows_of(plan, completed_at),
        host_cpu_share=answer["cpu_s"] / (wall_s * len(tenant.setup.cores)),
        activity=activity,
        clocks_mhz=clocks_mhz,
        memory=memory,
        host_check_s=None if before is None else (before + after) / 2,
        meter_s=meter_s,
        host=_host_side(answer, len(completed_at)),
    )


# A virtual core can be slow for seconds. If windows differ by this ratio, more are measured, so
# that their median shows the workload and not such a slow time.
_MOST_WINDOW_RATIO = 1.1
_MORE_ROUNDS = 2
# ... unless a round takes so long that settling, three rounds and the trace would exceed 20 s.
_LONGEST_ROUND_S = 4.0


def repeated_pace(
    tenant: TenantHandle, meter: Meter, timing: Timing, step_s: float, patience_s: float
) -> SoloPace:
    """Measure the pace, and again while the windows disagree; every window is kept."""
    pace = measured_pace(tenant, meter, timing, step_s, patience_s)
    for rounds in range(_MORE_ROUNDS):
        paces = [window.step_s for window in pace.windows]
        too_long = sum(each.seconds for each in pace.windows) > _LONGEST_ROUND_S * (rounds + 1)
        if too_long or max(paces) <= _MOST_WINDOW_RATIO * min(paces):
            break
        say("  its windows disagree; measuring more of them")
        more = measured_pace(tenant, meter, timing, step_s, patience_s)
        check_s = None
        if pace.host_check_s is not None and more.host_check_s is not None:
            check_s = (pace.host_check_s * (rounds + 1) + more.host_check_s) / (rounds + 2)
        pace = replace(
            more,
            windows=pace.windows + more.windows,
            host_check_s=check_s,
            meter_s=pace.meter_s + more.meter_s,
        )
    return pace


def _host_side(answer: Mapping[str, Any], steps: int) -> HostSide:
    """The host's work for a step, from that for all `steps`; an idle loader counts as none."""

    def of_a_step(name: str) -> float | None:
        value = answer.get(name)
        return None if value is None else max(0.0, value) / steps

    with_loader = bool(answer.get("loader_cpu_s"))
    return HostSide(
        loader_cpu_s=of_a_step("loader_cpu_s") if with_loader else None,
        wait_s=of_a_step("fetched_s"),
        read_mib=of_a_step("read_mib") if with_loader else None,
    )


Part = Literal["start_s", "settle_s", "windows_s", "host_path_s", "trace_s", "mps_s", "limits_s"]


class Stopwatch:
    """The seconds from its creation to the last lap, each of one part."""

    def __init__(self) -> None:
        self._since_s = monotonic()
        self._parts: dict[str, float] = {}

    def lap(self, part: Part) -> None:
        """Add the seconds since the last lap to `part`."""
        now_s = monotonic()
        self._parts[part] = self._parts.get(part, 0.0) + now_s - self._since_s
        self._since_s = now_s

    def patience_s(self) -> float:
        """Return the most seconds of another start, by the seconds of the first."""
        return max(LOAD_S, 3 * self._parts.get("start_s", 0.0))

    def took(self, meter_s: float) -> PartSeconds:
        """All laps; `meter_s` of the windows' seconds were spent on asking the driver."""
        return PartSeconds(**self._parts, meter_s=meter_s)


_ISSUE_S = 1.0

# A trace of all kernels of a longer step would fill megabytes.
_LONGEST_RECORDED_S = 2.0


@dataclass(frozen=True, slots=True)
class StepParts:
    """Host path, GPU path and kernel trace of a step; all None on a CPU."""

    host_s: float | None = None
    gpu_s: float | None = None
    trace: KernelTrace | None = None
    main_s: float | None = None
    loader_s: float | None = None


def step_parts(tenant: TenantHandle, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    """Measure what a step consists of, as far as the program can report it."""
    if device.kind != "cuda":
        return StepParts()
    if tenant.setup.script is None or tenant.setup.script.by_steps:
        return _traced_parts(tenant, device, watch)
    return _recorded_parts(tenant, pace, device, watch)


def _step_from(fields: Mapping[str, Any]) -> TracedStep:
    """Build the step whose fields a tenant sent."""
    return TracedStep(
        tuple(GpuWork(**each) for each in fields["work"]),
        tuple(Phase(**each) for each in fields["phases"]),
    )


def kernel_trace(step: TracedStep, phases_s: tuple[float, ...]) -> KernelTrace:
    """Return `step`, in which something ran, in compact form, at the pace of an unprofiled host.

    `phases_s` are the seconds that such a host takes for each phase, shape (phases,).
    """
    begins_us = [1e6 * seconds for seconds in accumulate(phases_s, initial=0.0)]
    paces = [
        1e6 * seconds / phase.host_us if phase.host_us else 0.0
        for seconds, phase in zip(phases_s, step.phases, strict=True)
    ]

    def at_pace(at: int, us: float) -> float:
        """Microseconds from the step's start, unprofiled, for those in phase `at`, profiled."""
        return begins_us[at] + min(us * paces[at], 1e6 * phases_s[at])

    launched = [at_pace(work.phase, work.launch_us) for work in step.work]
    waits = [at_pace(at, us) for at, phase in enumerate(step.phases) for us in phase.waits_us]
    classes = tuple(dict.fromkeys(work.kind for work in step.work))
    index = {kind: number for number, kind in enumerate(classes)}
    streams = list(dict.fromkeys(work.stream for work in step.work))  # in order of first use
    stream_of = tuple(streams.index(work.stream) for work in step.work)
    return KernelTrace(
        classes=classes,
        class_of=tuple(index[work.kind] for work in step.work),
        # Streams may overtake each other; work that ran later counts as launched no earlier.
        launch_us=tuple(round(us, 2) for us in accumulate(launched, max)),
        duration_us=tuple(round(work.duration_us, 2) for work in step.work),
        blocks=tuple(work.blocks for work in step.work),
        threads=tuple(work.threads for work in step.work),
        resident_blocks=tuple(work.resident_blocks for work in step.work),
        stream_of=None if len(streams) == 1 else stream_of,
        waits_us=tuple(round(us, 2) for us in sorted(waits)),
    )


def phases_without_waits(
    measured_s: Sequence[float], profiled: Sequence[Phase]
) -> tuple[float, ...]:
    """Compute seconds of an unprofiled host for each phase of a step, without waits for the GPU.

    Each phase was timed with an empty launch queue, so a phase with few launches was timed
    correctly. One with many launches may have waited for the GPU, as did one that read a loss. The
    profile shows such waits but slows the host, so such a phase counts its profiled time without
    waits, scaled to the pace of the other phases, if that is less.

    `measured_s` has the seconds of the unprofiled host, shape (phases,).
    """
    pairs = list(zip(measured_s, profiled, strict=True))
    free = [(seconds, phase) for seconds, phase in pairs if phase.timed]
    profiled_s = sum(phase.host_us for _, phase in free) * 1e-6
    pace = min(1.0, sum(seconds for seconds, _ in free) / profiled_s) if profiled_s else 1.0
    return tuple(
        seconds if phase.timed else min(seconds, phase.host_us * 1e-6 * pace)
        for seconds, phase in pairs
    )


def _traced_parts(tenant: TenantHandle, device: Device, watch: Stopwatch) -> StepParts:
    issued = living(tenant.ask("issue", seconds=_ISSUE_S))
    watch.lap("host_path_s")
    capability = gpu(device.key).compute_capability
    try:
        step = _step_from(living(tenant.ask("trace", compute_capability=capability))["step"])
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        return _with_loader(sum(issued["phases_s"]), issued)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits(issued["phases_s"], step.phases)
    parts = _with_loader(sum(phases_s), issued)
    if not step.work:
        say("  no kernel trace: torch's profiler saw no kernel. May it use CUPTI here?")
        return parts
    return replace(parts, gpu_s=step.busy_s, trace=kernel_trace(step, phases_s))


def _recorded_parts(
    tenant: TenantHandle, pace: SoloPace, device: Device, watch: Stopwatch
) -> StepParts:
    """The parts of a program whose steps are not found: by a window as long as one."""
    step_s = mean_step_s(pace.windows)
    try:
        step = _recorded_step(tenant, step_s, device)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        counters = pace.activity.counters  # of the whole GPU, as its driver counted
        return StepParts(gpu_s=None if counters is None else counters.gract * step_s)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits((step_s,), step.phases)
    trace = kernel_trace(step, phases_s)
    return StepParts(host_s=sum(phases_s), gpu_s=step.busy_s, trace=trace)


def _recorded_step(tenant: TenantHandle, step_s: float, device: Device) -> TracedStep:
    if step_s > _LONGEST_RECORDED_S:
        raise AdvisorError(f"a step of {step_s:.1f} s is too long to record")
    capability = gpu(device.key).compute_capability
    answer = living(tenant.ask("record", step_s=step_s, compute_capability=capability))
    if not answer:
        raise AdvisorError("no process of it uses the GPU by torch")
    return _step_from(answer["step"])


def _with_loader(main_s: float, issued: dict[str, Any]) -> StepParts:
    """The host path of a step: at least that of the loader, for which the process waits."""
    loader_s: float | None = issued["loader_s"]
    return StepParts(host_s=max(main_s, loader_s or 0.0), main_s=main_s, loader_s=loader_s)
