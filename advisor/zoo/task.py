"""A workload as a callable: one full training step a call."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from advisor.workload.spec import Workload
from advisor.zoo.execution import captured, check_device, compiled
from advisor.zoo.feed import Feed, Loaded, Resident
from advisor.zoo.optimizers import optimizer_for
from advisor.zoo.precision import autocast, set_switches
from advisor.zoo.recipe import recipe_of


class Step:
    """Enqueues one training step per call: forward, loss, backward, optimizer, gradients freed.

    Nothing in it waits for the GPU, except a data loader whose next batch is not there yet.
    Close it when done: a step with a loader owns worker processes.

    Attributes:
        workload: As asked for.
        loss: Of the last step, on the device, not yet waited for; None before the first.
        network: What it trains, compiled or not.
        optimizer: What changes the network's weights.
    """

    def __init__(self, workload: Workload, device: torch.device) -> None:
        recipe = recipe_of(workload)
        self.workload = workload
        self.loss: Tensor | None = None
        self._batch: tuple[Tensor, ...] = ()
        self._device = device
        # A loader forks, so it comes before anything touches the GPU.
        loaded: Feed | None = None
        if workers := workload.loader_workers:
            loaded = Loaded(recipe.examples, workload.batch, workers, device)
        try:
            with device:
                network = recipe.network().train()
                self._feed = loaded or Resident(recipe.examples, workload.batch)
            self.optimizer = optimizer_for(workload, network)
        except BaseException:
            if loaded is not None:
                loaded.close()
            raise
        self.network = compiled(network) if workload.execution == "compiled" else network
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
        with autocast(self.workload.precision, self._device.type):
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
        return self._feed.next_batch()

    def close(self) -> None:
        """End the loader's workers, if any. The step cannot be called afterwards."""
        self._feed.close()


class GraphStep(Step):
    """A step that is one CUDA graph: its input is copied to where the graph reads it."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        super().__init__(workload, device)
        try:
            self._read = tuple(torch.clone(each) for each in self.next_batch())
            self._graph = captured(self._record)
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
        """The parts of a step, by name, to be called in this order."""
        return {"fetch": self._fetch, "replay": self._graph.replay}

    def _fetch(self) -> None:
        for place, tensor in zip(self._read, self.next_batch(), strict=True):
            place.copy_(tensor, non_blocking=True)


def build(workload: Workload, device: str) -> Step:
    """The training step of `workload`, randomly initialised, with synthetic input.

    Sets torch's process-wide TF32 switches, so a process runs one workload at a time; building the
    next one sets them anew.

    Args:
        workload: What to train.
        device: ``"cpu"``, or ``"cuda"`` for the current GPU.

    Raises:
        UnknownName: There is no such model.
        InvalidInput: Its numbers do not suffice or do not fit the model, or the device cannot run
            it in this precision or execution.
        torch.OutOfMemoryError: The device has no room for it.
    """
    where = torch.device(device)
    check_device(workload, where)
    set_switches(workload.precision)
    return (GraphStep if workload.execution == "graph" else Step)(workload, where)
