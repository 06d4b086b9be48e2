"""Records, without a GPU, what the first steps of a workload ask of the memory allocator."""

import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.workload.spec import Workload
from advisor.zoo.fake_gpu_tensors import AsOnGpu, meta_storages
from advisor.zoo.task import Step

# In the first step optimizer state is made, and caches fill in the second.
_STEPS = 3
Kind = Literal["weights", "gradients", "optimizer", "activations", "workspace"]


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
        for group in step.optimizer.param_groups:
            # As on a GPU: many weights at a time; with fp16 in one kernel, without temporaries.
            group["foreach"] = workload.precision != "fp16"
        _take_steps(step, ledger, halved=workload.precision in ("amp", "fp16"))
    return Recording(
        requests=tuple(ledger.requests),
        products=tuple(ledger.products.values()),
        kinds=ledger.kinds,
        recurrent=any(isinstance(each, torch.nn.RNNBase) for each in step.network.modules()),
        convolves="aten::convolution" in ledger.operators,
    )


def _take_steps(step: Step, ledger: _Ledger, *, halved: bool) -> None:
    optimizer = step.optimizer
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    ledger.label("weights", parameters)
    for _ in range(_STEPS):
        for name, phase in step.phases.items():
            ledger.phase = name
            with AsOnGpu(halved=halved) if name == "forward" else nullcontext():
                phase()
            if name == "backward":
                ledger.label("gradients", [each.grad for each in parameters])
        state = [value for each in optimizer.state.values() for value in each.values()]
        ledger.label("optimizer", state)
