"""The batches that a program takes from torch loaders, and what it does between its steps."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref


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
        """``batch``, examples a step, ``steps_per_epoch`` and ``loader_workers``, None if unknown.

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
        """The next batch that the training would take; the end of an iteration, if none is left."""
        iterator = self._live()
        if iterator is None:
            raise StopIteration
        return next(iterator)
