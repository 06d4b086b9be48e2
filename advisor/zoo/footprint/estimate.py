"""Estimates the device memory of a workload that was not run, from its description alone.

Needs torch and no GPU.
"""

from advisor.hardware.catalogue import Gpu
from advisor.workload.spec import Workload
from advisor.zoo.footprint.dry_step import DryRun, Kind, Recording, recorded, replayed
from advisor.zoo.footprint.overhead import Fitted, Footprint, known_overheads

# Workspace that torch asks for for each cuBLAS handle, by default (ATen/cuda/CublasHandlePool.cpp,
# torch 2.11): 32 MiB on compute capability 9.0, else 8.125 MiB.
_WORKSPACE_MIB = {"9.0": 32.0}
_OTHER_WORKSPACE_MIB = 8.125

# By how much an interval is widened for each thing that no measured workload stands for. A
# choice, not a measurement.
_WIDER = 2.0

# Where no GPU like the one asked for was measured.
_FITTED_ON = "h200-141gb"


def footprint(workload: Workload, gpu: Gpu) -> Footprint:
    """What a process that trains `workload` on `gpu` will hold.

    Raises:
        UnknownName: There is no such model.
        InvalidInput: The workload's numbers do not suffice or do not fit the model.
    """
    recording = recorded(workload)
    dry = replayed(recording, workspace_mib(gpu))
    fit = known_overheads().get(gpu.key) or known_overheads()[_FITTED_ON]
    held_mib = fit.overhead.held_mib(
        dry.reserved_mib, convolves=recording.convolves, execution=workload.execution
    )
    notes = _notes(workload, gpu, recording, fit)
    low_mib, high_mib = fit.interval_mib(held_mib, _WIDER ** len(notes))
    return Footprint(
        workload=workload.name,
        gpu=gpu.key,
        p05_mib=low_mib,
        p50_mib=held_mib,
        p95_mib=high_mib,
        parts_mib=_parts_mib(dry, held_mib),
        notes=notes,
    )


def workspace_mib(gpu: Gpu) -> float:
    """What torch asks for for each of cuBLAS's handles on `gpu`."""
    return _WORKSPACE_MIB.get(gpu.compute_capability, _OTHER_WORKSPACE_MIB)


def _parts_mib(dry: DryRun, held_mib: float) -> dict[str, float]:
    kinds: tuple[Kind, ...] = ("weights", "gradients", "optimizer", "activations")
    parts: dict[str, float] = {kind: dry.parts_mib.get(kind, 0.0) for kind in kinds}
    return parts | {"overhead": held_mib - sum(parts.values())}


def _notes(
    workload: Workload, gpu: Gpu, recording: Recording, fit: Fitted
) -> tuple[str, ...]:  # fmt: skip
    notes = []
    if workload.execution == "compiled":
        notes.append("it is compiled, and was estimated as if torch ran it call by call")
    if recording.recurrent:
        notes.append("cuDNN does not say what its recurrent layers keep")
    if gpu.key != fit.gpu:
        notes.append(f"what a process adds to its tensors was measured on {fit.gpu} only")
    return tuple(notes)
