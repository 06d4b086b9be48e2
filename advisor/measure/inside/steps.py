"""The steps of a training program: which call ends one, and which batches feed it."""

import gc
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from torch.optim import Optimizer

# An optimizer counts if it steps at least once in so many steps of the busiest.
_SELDOM = 64
# Rounds of all optimizers, before it is clear which ends a step.
_ROUNDS = 3


@dataclass(slots=True, eq=False)
class _Part:
    """The part in the training of one optimizer, or of those of its kind one after another."""

    kind: tuple[type, int]  # stays the same if an optimizer is made again
    steps: int = 0  # since the last choice


class StepFinder:
    """Finds out which optimizer ends a training step, or whether a backward pass does.

    With several optimizers it is the one that steps least often: so a round of a GAN is one step,
    and so is a backward pass that steps an optimizer for each parameter. It is chosen again when
    another one begins to step, or when it steps no more while others do. An optimizer takes the
    part of one of its kind that is gone.

    While none has ever stepped, several backward passes in a row are steps, so many more of them if
    there is an optimizer for which they may accumulate gradients.
    """

    def __init__(self) -> None:
        self._parts: dict[ReferenceType[Any], _Part] = {}
        self._ender: _Part | None = None
        self._calls = 0  # steps of all optimizers since the last choice
        self._since = 0  # and since the one that ends a step stepped
        self._before = 0  # steps of the program before the last choice
        self._explicit = 0
        self._whole = False  # backward passes count, not calls of torch.autograd.grad
        self._passes, self._enough_passes = 0, _ROUNDS

    @property
    def clear(self) -> bool:
        """True once it is known what ends a step."""
        by_passes = not self._parts and self._passes >= self._enough_passes
        return bool(self._explicit or self._ender or by_passes)

    @property
    def steps(self) -> int:
        """Steps so far, by what is known now."""
        if self._explicit or not self._parts:
            return self._explicit or self._passes
        return self._before + (self._ender or self._least()).steps

    def optimizer_stepped(self, optimizer: object) -> bool:
        """Return whether a step ended with this one of `optimizer`; True until it is clear."""
        if self._explicit:
            return False
        key = ref(optimizer)
        part = self._parts.get(key) or self._new_part(key, optimizer)
        part.steps += 1
        self._calls += 1
        self._since += 1
        ender = self._ender
        if ender is not None and ender is not part:
            if self._since * ender.steps <= _ROUNDS * (self._calls - self._since):
                return False
            part.steps = self._since
            self._begin_choice({key: part})
        if self._ender is None and (least := self._least(part)).steps >= _ROUNDS:
            self._ender = least
        self._since = 0
        return True

    def pass_ended(self, *, whole: bool) -> bool:
        """Return whether a step ended with this backward pass, `whole` if by ``backward()``."""
        if self._explicit or self._parts or (self._whole and not whole):
            return False
        if whole and not self._whole:
            self._whole, self._passes = True, 0
        self._passes += 1
        if self._passes == _ROUNDS:
            has_optimizer = any(issubclass(type(each), Optimizer) for each in gc.get_objects())
            self._enough_passes = _SELDOM if has_optimizer else _ROUNDS
        return self._passes >= self._enough_passes

    def stepped_explicitly(self) -> None:
        """Note that the program itself said that a step ended; optimizers count no more."""
        self._explicit += 1

    def _new_part(self, key: "ReferenceType[Any]", optimizer: object) -> _Part:
        groups = getattr(optimizer, "param_groups", ())
        kind = (type(optimizer), sum(len(group["params"]) for group in groups))
        for other, part in self._parts.items():
            if other() is None and part.kind == kind:
                self._parts[key] = self._parts.pop(other)
                return part
        self._parts[key] = part = _Part(kind)
        if self._ender is not None:
            self._begin_choice({key: part})
        return part

    def _begin_choice(self, parts: "dict[ReferenceType[Any], _Part]") -> None:
        assert self._ender is not None
        self._before += self._ender.steps
        self._parts, self._ender = parts, None
        self._calls = self._since = sum(part.steps for part in parts.values())

    def _least(self, last: "_Part | None" = None) -> _Part:
        """The part that steps least often but not seldom, of several the `last`; gone ones last."""
        living = [part for key, part in self._parts.items() if key() is not None]
        parts = living or list(self._parts.values())
        often = max(part.steps for part in parts)
        counted = (part for part in parts if part.steps * _SELDOM >= often)
        return min(counted, key=lambda part: (part.steps, part is not last))


class _Loader(NamedTuple):
    """Properties of a loader; they stay the same if the script makes it again for each pass."""

    data: int
    batch: int | None
    batches: int | None
    workers: int


class Feeds:
    """The batches that a program takes from torch loaders.

    Attributes:
        steps: Training steps so far.
        fetched_s: Seconds spent so far on taking batches.
        loader_workers: Processes of the loader that feeds the training; 0 without.
        between: Work outside of steps, summed so far: new ``passes`` of the loader that feeds the
            training; ``start_s``, in which these started, workers included; ``save_s`` in
            ``torch.save``; ``validation_s`` from ``eval()`` to ``train()`` without a backward pass.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.fetched_s = 0.0
        self.loader_workers = 0
        self.between = dict.fromkeys(("passes", "start_s", "save_s", "validation_s"), 0.0)
        self._evaluating_s: float | None = None
        self._batches: Counter[_Loader] = Counter()
        self._feeding: _Loader | None = None
        self._live: Callable[[], Any] = lambda: None  # iterator of the pass that feeds the training
        self._last: Callable[[], Any] = lambda: None  # and that of the last batch

    def watch_loaders(self, kind: Any) -> None:
        """Make each loader's iterator, of torch's base class `kind`, note its batches here."""
        make, take = kind.__init__, kind.__next__

        def __init__(iterator: Any, loader: Any, *arguments: Any, **named: Any) -> None:
            began = perf_counter()
            make(iterator, loader, *arguments, **named)
            iterator._advisor_started_s = perf_counter() - began
            batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
            batches = None
            with suppress(TypeError):  # an iterable data set has no length
                batches = len(loader)
            data = id(loader.dataset)
            iterator._advisor_loader = _Loader(data, batch, batches, loader.num_workers)

        def __next__(iterator: Any) -> Any:
            began = perf_counter()
            try:
                batch = take(iterator)
            except StopIteration:  # workers that persist begin the next pass by the same iterator
                iterator._advisor_started_s = 0.0
                if self._live() is iterator:
                    self._live = lambda: None
                raise
            took_s = perf_counter() - began
            if not self.trains_elsewhere():
                self.fetched_s += took_s
            loader = getattr(iterator, "_advisor_loader", None)
            self._last = ref(iterator)
            # Not those of a validation, which may take more than the training.
            if self._feeding is None and loader is not None and self._evaluating_s is None:
                self._batches[loader] += 1
            if self._feeding in (None, loader):
                self._follow(iterator, took_s)
            return batch

        kind.__init__, kind.__next__ = __init__, __next__

    def _follow(self, iterator: Any, took_s: float = 0.0) -> None:
        """Note that the training is fed by `iterator`, whose batch took so long."""
        if self._feeding is not None and self._live() is not iterator:
            self.between["passes"] += 1
            self.between["start_s"] += iterator._advisor_started_s + took_s
        self._live = ref(iterator)

    def note_step(self) -> None:
        """Note that a step has ended: the loader of the last batch before it feeds the training.

        It may be another one than before, made for the next fold.
        """
        self.steps += 1
        iterator = self._last()
        loader = getattr(iterator, "_advisor_loader", None)
        if loader is not None and self._feeding not in (None, loader):
            self._follow(iterator)
            self._feeding, self.loader_workers = loader, loader.workers

    def trains_elsewhere(self) -> bool:
        """Return whether this thread is not the one that is measured."""
        return False

    def mode_changed(self, _network: object, mode: bool = True) -> None:
        """Note that a network was set to train or to be evaluated."""
        if self.trains_elsewhere():
            return
        if not mode:
            self._evaluating_s = self._evaluating_s or perf_counter()
        elif self._evaluating_s is not None:
            self.between["validation_s"] += perf_counter() - self._evaluating_s
            self._evaluating_s = None

    def pass_began(self) -> None:
        """Note that a backward pass begins: what is set to be evaluated is a part of training."""
        self._evaluating_s = None

    def forget_batches(self) -> None:
        """Count batches from now on: some of those before fed no training."""
        self._batches.clear()

    def data(self, steps: int) -> dict[str, Any]:
        """Return ``batch``, ``steps_per_epoch`` and ``loader_workers``, None if unknown.

        By the batches of `steps` since `forget_batches`. If several loaders feed each step, that
        of the longest epoch counts, and ``other_epochs`` has the steps of the others'.
        """
        if not self._batches:
            return {"batch": None, "steps_per_epoch": None, "loader_workers": 0, "other_epochs": []}

        def a_step(loader: _Loader) -> float:
            # A loader that is read ahead gives one batch more or less than was trained on.
            taken = self._batches[loader]
            return max(1, round(taken / steps)) if taken >= steps - 1 else taken / steps

        def epoch(loader: _Loader) -> int:
            batches = loader.batches
            return 0 if batches is None else max(1, round(batches / a_step(loader)))

        most = max(self._batches.values())
        feeding = [loader for loader, taken in self._batches.items() if 2 * taken > most]
        # Of equal ones that of which most was taken, and the first.
        longest = max(feeding, key=lambda loader: (epoch(loader), self._batches[loader]))
        self._feeding, self.loader_workers = longest, longest.workers
        return {
            "batch": longest.batch and max(1, round(longest.batch * a_step(longest))),
            "steps_per_epoch": epoch(longest) or None,
            "loader_workers": longest.workers,
            "other_epochs": sorted({*map(epoch, feeding)} - {0, epoch(longest)}),
        }

    def next_batch(self) -> object:
        """Return the next batch of the training; if none is left, end the iteration."""
        iterator = self._live()
        if iterator is None:
            raise StopIteration
        return next(iterator)
