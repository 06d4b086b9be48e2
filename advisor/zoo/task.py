"""A workload as a callable: one full training step a call, eager, compiled or a CUDA graph."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import cycle
from shutil import which
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from advisor.errors import InvalidInput
from advisor.files.reading import cache_folder
from advisor.shared_loader import shared
from advisor.workload.spec import Workload
from advisor.zoo.recipes import Examples, recipe_of
from advisor.zoo.tables import GraphConvolution

_RESIDENT_BATCHES = 2


def _loaded(examples: Examples, workload: Workload, device: torch.device) -> Iterator[Any]:
    """Batches from a `DataLoader`, copied to `device` as they are asked for.

    Its workers are forked at once, so make it before the process first touches a GPU, and not in a
    daemonic process, which may have no children. They end when the iterator is gone.
    """
    # They never run dry, so there is no second pass for which to keep workers alive.
    loader = shared(
        DataLoader(
            _Endless(examples),
            batch_size=workload.batch,
            num_workers=workload.loader_workers,
            prefetch_factor=2,
            pin_memory=device.type == "cuda",
            multiprocessing_context="fork",
        )
    )
    return (tuple(each.to(device, non_blocking=True) for each in host) for host in iter(loader))


class _Endless(IterableDataset[tuple[Tensor, ...]]):
    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        while True:
            yield self._examples.one()


# The names torch has had since 2.9 for what were `matmul.allow_tf32` and `cudnn.allow_tf32`: the
# old ones warn in some releases, and torch refuses a mixture of both.
_CUDNN: Any = torch.backends.cudnn
_SWITCHES = (torch.backends.cuda.matmul, _CUDNN.conv, _CUDNN.rnn)
_TORCH_OWN = tuple(switch.fp32_precision for switch in _SWITCHES)

_AUTOCAST = {"amp": torch.bfloat16, "fp16": torch.float16}

# What transformers, ConvNeXt, U-Nets and graph networks are made of.
_WITH_ADAM = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, GraphConvolution)


def optimizer_for(workload: Workload, network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer usual for such networks, at torch's defaults for its kind.

    Plain SGD if gradients are sparse; AdamW for transformers, ConvNeXt, U-Nets and graph networks,
    recognised by their layers; SGD with momentum for the rest, convolutional and recurrent
    networks. Rates are low, because the data is random and a step that diverged to NaN would draw
    less power.

    Raises:
        InvalidInput: Sparse gradients can be neither scaled without a wait nor captured.
    """
    # One kernel for many weights, which also undoes a gradient scaler's scale.
    fused = True if workload.precision == "fp16" else None
    in_graph = workload.execution == "graph"
    parameters = list(network.parameters())
    if _has(network, nn.EmbeddingBag):
        if fused or in_graph:
            option = "fp16" if fused else "graph"
            raise InvalidInput(
                f"{workload.name}: the gradients of {workload.model}'s tables are sparse, which "
                f"{option} does not support. Leave out -{option}."
            )
        return torch.optim.SGD(parameters, lr=0.01)
    if _has(network, *_WITH_ADAM):
        return torch.optim.AdamW(parameters, lr=1e-4, capturable=in_graph, fused=fused)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, fused=fused)


def _has(network: nn.Module, *kinds: type[nn.Module]) -> bool:
    return any(isinstance(module, kinds) for module in network.modules())


class Step:
    """Enqueues one training step per call: forward, loss, backward, optimizer, gradients freed.

    Nothing in it waits for the GPU, except a data loader whose next batch is not there yet.
    Close it when done: a step with a loader owns worker processes.

    Attributes:
        loss: Of the last step, on the device, not yet waited for; None before the first.
        network: What it trains, compiled or not.
        optimizer: What changes the network's weights.
        fetched_s: Seconds spent so far on taking batches.
    """

    def __init__(self, workload: Workload, device: torch.device) -> None:
        recipe = recipe_of(workload)
        self.workload = workload
        self.fetched_s = 0.0
        self.loss: Tensor | None = None
        self._batch: tuple[Tensor, ...] = ()
        self._device = device
        # On the step's device, inputs first; a copy may still be under way.
        self._batches: Iterator[tuple[Tensor, ...]] = iter(())
        if workload.loader_workers:  # it forks, so it comes before anything touches the GPU
            self._batches = _loaded(recipe.examples, workload, device)
        try:
            with device:
                network = recipe.network().train()
                if not workload.loader_workers:
                    batches = range(_RESIDENT_BATCHES)
                    self._batches = cycle([recipe.examples.batch(workload.batch) for _ in batches])
            self.optimizer = optimizer_for(workload, network)
        except BaseException:
            self.close()
            raise
        self.network = _compiled(network) if workload.execution == "compiled" else network
        self._loss_of = recipe.loss
        # Switched off, it hands on loss and optimizer as they are.
        self._scaler = torch.amp.GradScaler(device.type, enabled=workload.precision == "fp16")

    def __call__(self) -> None:
        for phase in self.phases.values():
            phase()

    @property
    def phases(self) -> Mapping[str, Callable[[], None]]:
        """The parts of a step, by name, to be called in this order."""
        return {
            "fetch": self._fetch,
            "forward": self._forward,
            "backward": self._backward,
            "update": self._update,
        }

    def _fetch(self) -> None:
        self._batch = self.next_batch()

    def _forward(self) -> None:
        *inputs, target = self._batch
        self._batch = ()  # autograd keeps what it needs
        dtype = _AUTOCAST.get(self.workload.precision)
        with torch.autocast(self._device.type, dtype=dtype) if dtype else nullcontext():
            self.loss = self._loss_of(self.network(*inputs), target)

    def _backward(self) -> None:
        assert self.loss is not None
        self._scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]
        self.loss = self.loss.detach()

    def _update(self) -> None:
        self._scaler.step(self.optimizer)
        self._scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def next_batch(self) -> tuple[Tensor, ...]:
        """Take the next batch without training on it: what a step waits for its input."""
        began = perf_counter()
        batch = next(self._batches)
        self.fetched_s += perf_counter() - began
        return batch

    @property
    def loader_workers(self) -> int:
        """Processes of the loader that feeds it; 0 without."""
        return self.workload.loader_workers

    def close(self) -> None:
        """End the loader's workers, if any. The step cannot be called afterwards."""
        # The loader ends its workers, and waits for them, when its iterator is gone.
        self._batches = iter(())


class GraphStep(Step):
    """A step that is one CUDA graph: its input is copied to where the graph reads it."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        super().__init__(workload, device)
        try:
            self._read = tuple(torch.clone(each) for each in self.next_batch())
            self._graph = _captured(self._record)
        except BaseException:
            self.close()
            raise

    def _record(self) -> None:
        self._batch = self._read
        self._forward()
        self._backward()
        self._update()

    @property
    def phases(self) -> Mapping[str, Callable[[], None]]:
        return {"fetch": self._fetch, "replay": self._graph.replay}

    def _fetch(self) -> None:
        for place, tensor in zip(self._read, self.next_batch(), strict=True):
            place.copy_(tensor, non_blocking=True)


def build(workload: Workload, device: str) -> Step:
    """Build the training step of `workload`, randomly initialised, with synthetic input.

    Sets torch's process-wide TF32 switches, so a process runs one workload at a time.

    Raises:
        UnknownName: There is no such model.
        InvalidInput: Its numbers do not fit the model, or the device cannot run it like this.
        torch.OutOfMemoryError: The device has no room for it.
    """
    place = torch.device(device)
    _check_device(workload, place)
    # All switches are set each time, so that no workload inherits those of the one before.
    values = ("tf32",) * len(_SWITCHES) if workload.precision == "tf32" else _TORCH_OWN
    for switch, value in zip(_SWITCHES, values, strict=True):
        switch.fp32_precision = value
    return (GraphStep if workload.execution == "graph" else Step)(workload, place)


# What is captured must have run before, so that nothing is first made while capturing.
_STEPS_BEFORE_CAPTURE = 3

_COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang")
_BACKEND = "inductor"


def _check_device(workload: Workload, device: torch.device) -> None:
    """Refuse what only a GPU can do, and compilation where nothing compiles."""
    reason = option = ""
    if device.type != "cuda" and workload.execution == "graph":
        reason, option = "CUDA graphs need a GPU", "graph"
    elif device.type != "cuda" and workload.precision == "fp16":
        reason, option = "fp16 with scaled gradients needs a GPU", "fp16"
    if workload.execution == "compiled":
        if device.type == "cuda" and find_spec("triton") is None:
            reason, option = "torch.compile needs triton, which is not installed", "compiled"
        if not any(map(which, _COMPILERS)):
            reason, option = "torch.compile needs a C compiler, which is not installed", "compiled"
    if reason:
        raise InvalidInput(
            f"{workload.name}: {reason}. Leave out -{option}, or run it on another machine."
        )


def _compiled(network: nn.Module) -> nn.Module:
    """`network`, compiled when it is first called; later processes find most of it in a cache.

    Compiles in this process alone: a tenant has one core, and its children would outlast nothing.
    """
    import torch._inductor.config as inductor
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    inductor.compile_threads = 1
    # A cache that outlives this run, unless the user has one: torch sets its own default, a
    # temporary folder, as soon as it looks for one.
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, default_cache_dir()):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache_folder("inductor"))
    return cast("nn.Module", torch.compile(network, dynamic=False, backend=_BACKEND))


def _captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """All that `step` enqueues, as a graph; what it reads and leaves must stay where it is.

    Takes a few steps for real first, then one that is only recorded.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), warnings.catch_warnings():
        # An optimizer made for capture warns when it steps without.
        warnings.filterwarnings("ignore", message=".*capturable=True")
        for _ in range(_STEPS_BEFORE_CAPTURE):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    # A loader's thread that pins memory may go on meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        step()
    return graph
