"""What a step consists of: its work on the host, on the GPU, and kernel by kernel."""

from dataclasses import dataclass, replace
from typing import Any

from advisor.errors import AdvisorError
from advisor.hardware.catalogue import gpu
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.supervisor import say
from advisor.measure.process.tenant_handle import TenantHandle
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, asked
from advisor.measure.solo.traced_step import (
    TracedStep,
    kernel_trace,
    phases_without_waits,
    step_from,
)
from advisor.workload.kernel_trace import KernelTrace

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
    """What a step consists of, as far as somebody can be asked."""
    if device.kind != "cuda":
        return StepParts()
    if tenant.setup.script is None or tenant.setup.script.by_steps:
        return _traced_parts(tenant, device, watch)
    return _recorded_parts(tenant, pace, device, watch)


def _traced_parts(tenant: TenantHandle, device: Device, watch: Stopwatch) -> StepParts:
    issued = asked(tenant, "issue", seconds=_ISSUE_S)
    watch.lap("host_path_s")
    capability = gpu(device.key).compute_capability
    try:
        step = step_from(asked(tenant, "trace", compute_capability=capability)["step"])
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        return _with_loader(sum(issued["phases_s"]), issued)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits(issued["phases_s"], step.phases)
    found = _with_loader(sum(phases_s), issued)
    if not step.work:
        say("  no kernel trace: torch's profiler saw no kernel. May it use CUPTI here?")
        return found
    return replace(found, gpu_s=step.busy_s, trace=kernel_trace(step, phases_s))


def _recorded_parts(
    tenant: TenantHandle, pace: SoloPace, device: Device, watch: Stopwatch
) -> StepParts:
    """Of a program in which nobody finds steps: through a window as long as one."""
    try:
        step = _recorded_step(tenant, pace.mean_step_s, device)
    except AdvisorError as error:
        say(f"  no kernel trace: {error}")
        counters = pace.activity.counters  # of the whole GPU, as its driver counted
        return StepParts(gpu_s=None if counters is None else counters.gract * pace.mean_step_s)
    finally:
        watch.lap("trace_s")
    phases_s = phases_without_waits((pace.mean_step_s,), step.phases)
    trace = kernel_trace(step, phases_s)
    return StepParts(host_s=sum(phases_s), gpu_s=step.busy_s, trace=trace)


def _recorded_step(tenant: TenantHandle, step_s: float, device: Device) -> TracedStep:
    if step_s > _LONGEST_RECORDED_S:
        raise AdvisorError(f"a step of {step_s:.1f} s is too long to record")
    capability = gpu(device.key).compute_capability
    found = asked(tenant, "record", step_s=step_s, compute_capability=capability)
    if not found:
        raise AdvisorError("no process of it uses the GPU by torch")
    return step_from(found["step"])


def _with_loader(main_s: float, issued: dict[str, Any]) -> StepParts:
    """The host path of a step: at least that of the loader, for which the process waits."""
    loader_s: float | None = issued["loader_s"]
    return StepParts(host_s=max(main_s, loader_s or 0.0), main_s=main_s, loader_s=loader_s)
