"""GPU models, this machine's GPUs, workloads and profiles, as tables and JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.hardware.catalogue import DESCRIBED, Gpu
from advisor.hardware.gpu_state import BrokenGpu, LiveGpu
from advisor.plan.running_jobs import alike_in_memory, held_alone_mib, tenants
from advisor.report.documents import SCHEMA
from advisor.report.table_layout import plain_table
from advisor.report.units import NOT_MEASURED, number, share
from advisor.terminal import clean
from advisor.workload.job import Job
from advisor.workload.profile import Profile
from advisor.workload.spec import Workload

if TYPE_CHECKING:
    from rich.table import Table

_UNKNOWN = "unknown"
_COUNTERS = {
    None: "none", "gpm": "GPM", "dcgm": "DCGM, where it counts on this GPU",
    "nvml": "NVML utilisation only",
}  # fmt: skip


def gpus_table(models: Iterable[Gpu], profiled: Sequence[str]) -> "Table":
    """All GPU models; `profiled` holds the keys of those with profiles."""
    table = plain_table("GPU", "SMs", "memory", "bandwidth", "power", "MIG", "profiles")
    for gpu in models:
        table.add_row(
            gpu.key + (", as its driver says" if DESCRIBED in gpu.sources else ""),
            f"{gpu.sms}",
            f"{gpu.memory_mib:,} MiB",
            _known(gpu.bandwidth_gb_s, "GB/s"),
            _known(gpu.power_limit_w, "W"),
            counted(len(gpu.mig), "kind") if gpu.mig else "no",
            "yes" if gpu.key in profiled else "none",
        )
    return table


def live_lines(found: Sequence[LiveGpu | BrokenGpu]) -> list[str]:
    """The GPUs of this machine, a few lines each."""
    lines = []
    for gpu in found:
        if isinstance(gpu, BrokenGpu):
            lines.append(f"GPU {gpu.index} does not answer: {gpu.problem}")
        else:
            lines += _live(gpu)
    return lines or ["The driver lists no GPU."]


def gpus_document(
    models: Iterable[Gpu],
    profiled: Sequence[str],
    found: Sequence[LiveGpu | BrokenGpu],
    problem: str | None,
) -> dict[str, Any]:
    """What ``advisor gpus --json`` prints; `problem`: why this machine could not be asked."""
    return {
        "schema": SCHEMA,
        "catalogue": [asdict(gpu) for gpu in models],
        "profiled": list(profiled),
        "at_hand": [asdict(gpu) for gpu in found],
        "problem": problem,
    }


def workloads_table(workloads: Iterable[Workload]) -> "Table":
    table = plain_table("workload", "examples an epoch")
    for each in workloads:
        table.add_row(each.name, _known(each.examples_per_epoch, ""))
    return table


def profiles_table(profiles: Mapping[str, Profile], *, details: bool = False) -> "Table":
    """Profiles with pace, the share of a step in which their kernels run, and memory.

    Args:
        profiles: By name.
        details: Whether to add the fastest step and the date; estimated profiles always have them.
    """
    details |= any(each.estimated_from is not None for each in profiles.values())
    table = plain_table("profile", "step", "kernel", "memory", *_DETAILS[: 2 * details])
    for name, each in profiles.items():
        memory_mib = each.memory.device_mib
        more = (f"{number(1000 * each.fastest_step_s)} ms", _origin(each)) if details else ()
        table.add_row(
            clean(name),
            f"{number(1000 * each.step_s)} ms",
            share(each.busy_share),
            _UNKNOWN if memory_mib is None else f"{memory_mib:,.0f} MiB",
            *more,
        )
    return table


_DETAILS = ("fastest", "measured")


def _origin(profile: Profile) -> str:
    if profile.estimated_from is not None:
        return f"estimated from {profile.estimated_from}"
    return clean(profile.provenance.date[:10]) if profile.provenance else NOT_MEASURED


def profiles_document(gpu: str, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """What ``advisor profiles --json`` prints; kernel traces are left out."""
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "profiles": [
            {
                "name": name,
                "step_s": each.step_s,
                "fastest_step_s": each.fastest_step_s,
                "unsteady": each.unsteady,
                "epoch_s": each.epoch_s,
                "gpu_busy": each.busy_share,
                "memory": asdict(each.memory),
                "provenance": each.provenance and asdict(each.provenance),
                "estimated_from": each.estimated_from,
            }
            for name, each in profiles.items()
        ],
    }


def workloads_document(workloads: Iterable[Workload]) -> dict[str, Any]:
    """What ``advisor workloads --json`` prints."""
    return {"schema": SCHEMA, "workloads": [asdict(each) for each in workloads]}


def _live(gpu: LiveGpu) -> list[str]:
    processes = [f"{each.pid} ({_known(each.memory_mib, 'MiB')})" for each in gpu.processes]
    facts = [*live_facts(gpu), ("processes", ", ".join(processes) or "none")]
    return [live_name(gpu), *(f"  {name:9}  {said}" for name, said in facts)]


def live_name(gpu: LiveGpu) -> str:
    """The GPU's name and driver."""
    key = gpu.catalogue_key or "not in the catalogue"
    return f"GPU {gpu.index}: {gpu.product}, {key}, driver {gpu.driver}"


def live_facts(gpu: LiveGpu) -> list[tuple[str, str]]:
    """Facts about the GPU as a whole: name and value."""
    mig = {None: "no MIG", True: "MIG on", False: "MIG off"}[gpu.mig_enabled]
    if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
        mig += f" ({'on' if gpu.mig_pending else 'off'} after the next reset)"
    daemons = [f"{each.role} {each.pid} of {each.owner}" for each in gpu.mps]
    busy = gpu.gpu_utilization
    return [
        ("memory", f"{gpu.memory_used_mib:,.0f} of {gpu.memory_total_mib:,.0f} MiB in use"),
        ("busy", _UNKNOWN if busy is None else f"a kernel runs {busy:.0%} of the time"),
        ("power", f"{_known(gpu.power_w, 'W')} of {_known(gpu.power_limit_w, 'W')}"),
        ("modes", f"{mig}; compute mode {gpu.compute_mode or _UNKNOWN}"),
        ("MPS", ", ".join(daemons) or "no daemon runs"),
        ("counters", _COUNTERS[gpu.counters]),
    ]


def process_rows(gpu: LiveGpu, jobs: Sequence[Job]) -> list[dict[str, str]]:
    """A row for each process on it, with those of `jobs` that hold as much memory."""
    held_mib, clients = held_alone_mib(job.profile for job in jobs), tenants(gpu)
    return [
        {
            "process": str(each.pid),
            "holds": _known(each.memory_mib, "MiB"),
            "as much as": ", ".join(alike_in_memory(each, held_mib)) or "none of the jobs"
            if each in clients
            else "the MPS server",
        }
        for each in gpu.processes
    ]


def _known(value: float | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{value:,.0f} {unit}".rstrip()
