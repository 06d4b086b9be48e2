"""Measures what a round of steps consists of: the host's path, the GPU's path, and its kernels."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.gpus import gpu
from advisor.hardware.partition import sm_limits
from advisor.measure.device import Device
from advisor.measure.pace import SoloPace, Stopwatch, mean_step_s
from advisor.measure.process import say
from advisor.measure.tenant import Ended, Tenant, living
from advisor.measure.trace import (
    RECORDED_STEPS,
    TracedStep,
    cut_into_steps,
    kernel_trace,
    phases_without_waits,
    repeated_step,
    steps_of_trace,
    traced_round,
)
from advisor.workload.profile import KernelTrace

# For the host's path; and rounds that are traced, fewer of those that take long.
_ISSUE_S, _TRACED, _TRACED_IF_LONG, _LONG_S = 1.0, 3, 1, 0.5

# A trace of all kernels of longer steps would fill megabytes.
_LONGEST_S = 4.0

# Kernels take longer in the profiler, short ones most; beyond this ratio they are traced again.
_TRACE_MAY_EXCEED = 1.05


@dataclass(frozen=True, slots=True)
class StepParts:
    """Host path and GPU path of a step, and the kernel trace of a round; all None on a CPU."""

    host_s: float | None = None
    gpu_s: float | None = None
    trace: KernelTrace | None = None
    main_s: float | None = None
    loader_s: float | None = None


def step_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    """Measure what a step consists of, as far as the program can report it."""
    if device.kind != "cuda":
        return StepParts()
    if tenant.setup.script.by_steps:
        return _traced_parts(tenant, pace, device, watch)
    return _recorded_parts(tenant, pace, device, watch)


def _traced_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
    round_s, steps = sum(pace.rounds.steps_s), pace.rounds.steps
    if round_s > _LONGEST_S:
        say(f"  a round of {steps} steps takes {round_s:.1f} s: one step of it is traced")
        round_s, steps = round_s / steps, 1
    issued = tenant.ask("issue", seconds=_ISSUE_S, round_steps=steps)
    watch.lap("host_path_s")
    if isinstance(issued, Ended) and tenant.running.succeeded:
        say("  it ended by itself before its host path and its kernels were measured")
        return StepParts()
    issued = living(issued)
    count = _TRACED if round_s < _LONG_S else _TRACED_IF_LONG
    try:
        traced = _traced(tenant, device, steps, count)
        step_s = mean_step_s(pace.windows)
        if traced.busy_s > _TRACE_MAY_EXCEED * steps * step_s:
            say("  its kernels add up to more than the step without a profiler; tracing it again")
            traced = min(traced, _traced(tenant, device, steps, count), key=lambda it: it.busy_s)
        phases_s = phases_without_waits(issued["phases_s"], traced.phases)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        return _of_a_step(steps, sum(issued["phases_s"]), issued["loader_s"])
    finally:
        watch.lap("trace_s")
    if not traced.work:
        say("  no kernel trace: torch's profiler saw no kernel. May it use CUPTI here?")
        return _of_a_step(steps, sum(phases_s), issued["loader_s"])
    return _of_a_step(
        steps, sum(phases_s), issued["loader_s"], gpu_s=traced.busy_s / steps,
        trace=kernel_trace(traced, phases_s, steps),
    )  # fmt: skip


def _traced(tenant: Tenant, device: Device, steps: int, count: int) -> TracedStep:
    path = tenant.folder / "trace.json"
    answer = living(tenant.ask("trace", path=str(path), round_steps=steps, rounds=count))
    limits = sm_limits(gpu(device.key).compute_capability)
    return traced_round(_document(path), answer["phases"], answer["passes"], limits)


def _document(path: Path) -> Mapping[str, Any]:
    """The trace that a program wrote, which may be damaged."""
    try:
        document = json.loads(path.read_bytes().decode(errors="replace"))
    except (OSError, ValueError) as error:
        raise AdvisorError(f"torch's profiler wrote no trace: {error}") from None
    finally:
        path.unlink(missing_ok=True)
    return document if isinstance(document, dict) else {}


def _of_a_step(
    steps: int, main_s: float, loader_s: float | None, *, gpu_s: float | None = None,
    trace: KernelTrace | None = None,
) -> StepParts:  # fmt: skip
    """The parts of one of `steps`: its host path is at least that of the loader it waits for."""
    main_s /= steps
    return StepParts(
        host_s=max(main_s, loader_s or 0.0), gpu_s=gpu_s, trace=trace, main_s=main_s,
        loader_s=loader_s,
    )  # fmt: skip


def _recorded_parts(tenant: Tenant, pace: SoloPace, device: Device, watch: Stopwatch) -> StepParts:
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
    trace = kernel_trace(step, phases_s, 1)
    return StepParts(host_s=sum(phases_s), gpu_s=step.busy_s, trace=trace)


_SPARE_S = 0.05


def _recorded_step(tenant: Tenant, step_s: float, device: Device) -> TracedStep:
    if step_s > _LONGEST_S / 2:
        raise AdvisorError(f"a step of {step_s:.1f} s is too long to record")
    path = tenant.folder / "trace.json"
    seconds = RECORDED_STEPS * step_s + _SPARE_S
    if not living(tenant.ask("record", path=str(path), seconds=seconds)):
        raise AdvisorError("no process of it uses the GPU by torch")
    limits = sm_limits(gpu(device.key).compute_capability)
    return repeated_step(steps_of_trace(cut_into_steps(_document(path), step_s), ("0",), limits))
