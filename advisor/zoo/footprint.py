"""Estimates the device memory of a workload that never ran; needs torch and no GPU.

Its steps run on tensors without content, which records what they ask for; the caching allocator
says what it would reserve for that; what a process holds beyond it was fitted to measured ones.
"""

import weakref
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.hardware.attained_rates import unlikeness
from advisor.hardware.catalogue import Gpu, catalogue
from advisor.workload.spec import Workload
from advisor.zoo.allocator import CachingAllocator
from advisor.zoo.fake_gpu_tensors import AsOnGpu, meta_storages
from advisor.zoo.overhead import Fitted, Footprint, known_overheads
from advisor.zoo.task import Step

MIB = 2**20

# In the first step optimizer state is made, and caches fill in the second.
_STEPS = 3

Kind = Literal["weights", "gradients", "optimizer", "activations", "workspace"]
_TENSORS: tuple[Kind, ...] = ("weights", "gradients", "optimizer", "activations")

# cuBLAS holds a workspace for each thread that multiplies: the one that goes forward, and
# autograd's that goes back.
_MULTIPLIES = ("forward", "backward")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """Something that a step asks the allocator for, or gives back.

    Attributes:
        key: Which piece of memory.
        size: Bytes asked for; None: the piece is given back.
    """

    key: int
    size: int | None


@dataclass(frozen=True, slots=True)
class Recording:
    """What steps asked for, in order.

    Attributes:
        requests: Of tensors.
        products: At which request each thread first multiplied matrices.
        kinds: What each key was; those not in it were activations or temporary.
        recurrent: Whether layers of cuDNN's were there, whose reserve is only known roughly.
        convolves: Whether convolutions were there, whose workspaces are not known beforehand.
    """

    requests: tuple[AllocationRequest, ...]
    products: tuple[int, ...]
    kinds: Mapping[int, Kind]
    recurrent: bool
    convolves: bool


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


class _Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes when storages on the meta device come and go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.requests: list[AllocationRequest] = []
        self.kinds: dict[int, Kind] = {}
        self.products: dict[str, int] = {}
        self.phase = ""
        self.operators: set[str] = set()
        self._alive: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._keys = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name
        self.operators.add(name)
        if name in _PRODUCTS and self.phase in _MULTIPLIES:
            self.products.setdefault(self.phase, len(self.requests))
        for storage in meta_storages([result]):
            self._note(storage)
        return result

    def label(self, kind: Kind, tensors: list[Any]) -> None:
        """Say what `tensors` are, unless it was said before."""
        for storage in meta_storages(tensors):
            if storage._cdata in self._alive:
                self.kinds.setdefault(self._alive[storage._cdata][0], kind)

    def _note(self, storage: torch.UntypedStorage) -> None:
        address = storage._cdata
        if address in self._alive or not storage.nbytes():
            return
        self._keys += 1
        gone = partial(self._gone, address, self._keys)
        self._alive[address] = (self._keys, weakref.ref(storage, gone))
        self.requests.append(AllocationRequest(self._keys, storage.nbytes()))

    def _gone(self, address: int, key: int, _reference: object) -> None:
        self._alive.pop(address, None)
        self.requests.append(AllocationRequest(key, None))


def recorded(workload: Workload) -> Recording:
    """What the first steps of `workload` would ask a GPU for.

    Compiled and captured steps are recorded as eager ones, and a loader's batches as ones that
    stay on the GPU: what those differ by is not emulated.

    Raises:
        UnknownName: There is no such model.
        InvalidInput: Its numbers do not suffice or do not fit the model.
    """
    eager = replace(workload, precision="default", execution="eager", loader_workers=0)
    ledger = _Ledger()
    with ledger:
        step = Step(eager, torch.device("meta"))
        optimizer = step.optimizer
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for group in optimizer.param_groups:
            # As on a GPU: many weights at a time; with fp16 in one kernel, without temporaries.
            group["foreach"] = workload.precision != "fp16"
        ledger.label("weights", parameters)
        halved = workload.precision in ("amp", "fp16")
        for _ in range(_STEPS):
            for name, phase in step.phases.items():
                ledger.phase = name
                with AsOnGpu(halved=halved) if name == "forward" else nullcontext():
                    phase()
                if name == "backward":
                    ledger.label("gradients", [each.grad for each in parameters])
            state = [value for each in optimizer.state.values() for value in each.values()]
            ledger.label("optimizer", state)
    return Recording(
        requests=tuple(ledger.requests),
        products=tuple(ledger.products.values()),
        kinds=ledger.kinds,
        recurrent=any(isinstance(each, torch.nn.RNNBase) for each in step.network.modules()),
        convolves="aten::convolution" in ledger.operators,
    )


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
