"""Estimates the device memory of a workload that never ran; needs torch and no GPU.

Its steps run on tensors without content, which records what they ask for; the caching allocator
says what it would reserve for that; what a process holds beyond it was fitted to measured ones.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from advisor.hardware.attained_rates import unlikeness
from advisor.hardware.catalogue import Gpu, catalogue
from advisor.workload.spec import Workload
from advisor.zoo.allocation_recording import Kind, Recording, recorded
from advisor.zoo.allocator import CachingAllocator
from advisor.zoo.overhead import Fitted, Footprint, known_overheads

MIB = 2**20
_TENSORS: tuple[Kind, ...] = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True, slots=True)
class DryRun:
    """What the allocator would have held at most, MiB.

    Attributes:
        reserved_mib: Of the device.
        parts_mib: What was in use at the peak, by kind.
    """

    reserved_mib: float
    parts_mib: Mapping[Kind, float]

    @property
    def allocated_mib(self) -> float:
        """Most that was in use at once."""
        return sum(self.parts_mib.values())


def replayed(recording: Recording, workspace_mib: float) -> DryRun:
    """What torch's allocator holds at most for `recording`, with cuBLAS's workspace of a thread."""
    allocator, at_peak = CachingAllocator(), Counter[Kind]()
    held: Counter[Kind] = Counter()
    sizes: dict[int, int] = {}

    def serve(key: int, size: int, kind: Kind) -> None:
        nonlocal at_peak
        before, peak = allocator.allocated, allocator.allocated_peak
        allocator.allocate(key, size)
        sizes[key] = allocator.allocated - before
        held[kind] += sizes[key]
        if allocator.allocated_peak > peak:
            at_peak = held.copy()

    for index, request in enumerate(recording.requests):
        if index in recording.products:
            serve(-index - 1, int(workspace_mib * MIB), "workspace")
        kind = recording.kinds.get(request.key, "activations")
        if request.size is not None:
            serve(request.key, request.size, kind)
        elif request.key in sizes:
            allocator.free(request.key)
            held[kind] -= sizes.pop(request.key)
    return DryRun(allocator.reserved / MIB, {kind: size / MIB for kind, size in at_peak.items()})


# Workspace that torch asks for for each cuBLAS handle, by default (ATen/cuda/CublasHandlePool.cpp,
# torch 2.11): 32 MiB on compute capability 9.0, else 8.125 MiB.
_WORKSPACE_MIB = {"9.0": 32.0}
_OTHER_WORKSPACE_MIB = 8.125
# By how much an interval is widened for each thing that no measured workload stands for. A
# choice, not a measurement.
_WIDER = 2.0


def footprint(workload: Workload, gpu: Gpu) -> Footprint:
    """What a process that trains `workload` on `gpu` will hold.

    Raises:
        UnknownName: There is no such model.
        InvalidInput: The workload's numbers do not suffice or do not fit the model.
    """
    recording = recorded(workload)
    dry = replayed(recording, workspace_mib(gpu))
    fit = known_overheads().get(gpu.key) or _of_the_most_alike(gpu)
    held_mib = fit.overhead.held_mib(
        dry.reserved_mib, convolves=recording.convolves, execution=workload.execution
    )
    parts_mib = {kind: dry.parts_mib.get(kind, 0.0) for kind in _TENSORS}
    notes = _notes(workload, gpu, recording, fit)
    low_mib, high_mib = fit.interval_mib(held_mib, _WIDER ** len(notes))
    return Footprint(
        workload=workload.name,
        gpu=gpu.key,
        p05_mib=low_mib,
        p50_mib=held_mib,
        p95_mib=high_mib,
        parts_mib=parts_mib | {"overhead": held_mib - sum(parts_mib.values())},
        notes=notes,
    )


def _of_the_most_alike(gpu: Gpu) -> Fitted:
    """The overhead measured on the GPU most like `gpu`."""
    known = known_overheads()
    return known[min(known, key=lambda key: (unlikeness(catalogue()[key], gpu), key))]


def workspace_mib(gpu: Gpu) -> float:
    """What torch asks for for each of cuBLAS's handles on `gpu`."""
    return _WORKSPACE_MIB.get(gpu.compute_capability, _OTHER_WORKSPACE_MIB)


def _notes(workload: Workload, gpu: Gpu, recording: Recording, fit: Fitted) -> tuple[str, ...]:
    notes = []
    if workload.execution == "compiled":
        notes.append("it is compiled, and was estimated as if torch ran it call by call")
    if recording.recurrent:
        notes.append("cuDNN does not say what its recurrent layers keep")
    if gpu.key != fit.gpu:
        notes.append(f"what a process adds to its tensors was measured on {fit.gpu} only")
    return tuple(notes)
