"""The shell lines that apply a plan by hand."""

from collections.abc import Sequence
from typing import assert_never

from advisor.errors import InvalidInput
from advisor.gpu.catalogue import Gpu
from advisor.sharing import Hybrid, Instance, Mig, Mps, Naive, Phases, Serial, Sharing
from advisor.workload.job import Job

_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
_LOG = "CUDA_MPS_LOG_DIRECTORY"
_START_MPS = (
    f"export {_PIPE}=$(mktemp -d) {_LOG}=$(mktemp -d)",
    "nvidia-cuda-mps-control -d",
)
_STOP_MPS = ("wait", "echo quit | nvidia-cuda-mps-control")


def commands(jobs: Sequence[Job], sharing: Sharing, gpu: Gpu) -> tuple[str, ...]:
    """Lines for GPU 0, in order; each job is pinned to host cores of its own.

    A process inherits its daemon's directories from the exported variables, so all lines belong
    in one shell.
    """
    if isinstance(sharing, Mig):
        return _mig(jobs, sharing, gpu)
    device = "export CUDA_VISIBLE_DEVICES=0"
    pinned = _pinned(jobs)
    match sharing:
        case Serial():
            return (device, *pinned)
        case Naive():
            return (device, *_background(pinned), "wait")
        case Mps(limits):
            caps = [f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={limit:g} " for limit in limits]
            starts = [
                cap + line for cap, line in zip(caps or [""] * len(jobs), pinned, strict=True)
            ]
            return (device, *_START_MPS, *_background(starts), *_STOP_MPS)
        case Hybrid() | Phases():
            raise InvalidInput(
                f"{sharing}: no commands are written for it yet. Choose another plan"
            )
        case _:
            assert_never(sharing)


def under_cap(lines: Sequence[str], cap_w: float | None, gpu: Gpu) -> tuple[str, ...]:
    """`lines` between those that set a power cap and take it back; as they are without a cap."""
    if cap_w is None:
        return tuple(lines)
    restored = f"sudo nvidia-smi -i 0 --power-limit={gpu.power_limit_w:g}  # the GPU's own limit"
    return (f"sudo nvidia-smi -i 0 --power-limit={cap_w:g}", *lines, restored)


def _mig(jobs: Sequence[Job], sharing: Mig, gpu: Gpu) -> tuple[str, ...]:
    ids = {each.name: each.profile_id for each in gpu.mig}
    cuts = ",".join(_cut(each, ids[each.profile]) for each in sharing.instances)
    starts = [
        f'CUDA_VISIBLE_DEVICES="<UUID of {instance}>" {line}'
        for instance, line in zip(sharing.instances, _pinned(jobs), strict=True)
    ]
    return (
        "# From NVIDIA's documentation; not run on MIG hardware here. No process may use the GPU.",
        "sudo nvidia-smi -i 0 -mig 1",
        f"sudo nvidia-smi mig -i 0 -cgi {cuts} -C",
        "nvidia-smi mig -i 0 -lgi; nvidia-smi -L  # where each instance lies, and its UUID",
        *_background(starts),
        "wait",
        "sudo nvidia-smi mig -i 0 -dci && sudo nvidia-smi mig -i 0 -dgi",
        "sudo nvidia-smi -i 0 -mig 0",
    )


def _cut(instance: Instance, profile_id: int) -> str:
    return f"{profile_id}" if instance.start is None else f"{profile_id}:{instance.start}"


def _pinned(jobs: Sequence[Job]) -> list[str]:
    lines, first = [], 0
    for job in jobs:
        last = first + job.profile.workload.cores - 1
        cores = f"{first}" if first == last else f"{first}-{last}"
        lines.append(f"taskset -c {cores} <your command for {job.name}>")
        first = last + 1
    return lines


def _background(lines: Sequence[str]) -> list[str]:
    return [f"{line} &" for line in lines]
