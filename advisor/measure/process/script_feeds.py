"""Finds which data loader feeds a script's training, how long it is, and the waits for it."""

from collections import Counter
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref


class _Loader(NamedTuple):
    """What a loader is like; one that is made anew for each pass stays the same."""

    data: int
    batch: int | None
    batches: int | None
    workers: int


class Feeds:
    """Told of every batch that a script takes from a torch loader.

    Attributes:
        fetched_s: Seconds spent so far on taking batches.
        workers: Processes of the loader that feeds the training; 0 without.
    """

    def __init__(self) -> None:
        self.fetched_s = 0.0
        self.workers = 0
        self._batches: Counter[_Loader] = Counter()
        self._feeding: _Loader | None = None
        self._live: Any = None

    def iterated(self, iterator: Any, loader: Any) -> None:
        """`iterator` was made of `loader`, which may be gone soon."""
        batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        data = id(loader.dataset)
        iterator._advisor_loader = _Loader(data, batch, _length(loader), loader.num_workers)

    def fetched(self, iterator: Any, seconds: float) -> None:
        """A batch was taken of `iterator`."""
        self.fetched_s += seconds
        loader = getattr(iterator, "_advisor_loader", None)
        if self._feeding is None and loader is not None:
            self._batches[loader] += 1
        if self._feeding in (None, loader):
            self._live = ref(iterator)

    def begin(self) -> None:
        """Count batches from now on: of before, some fed no training."""
        self._batches.clear()

    def found(self, steps: int) -> dict[str, int | None]:
        """What a workload says of its data, from what was taken in `steps` since `begin`.

        Returns:
            ``batch``, examples a step, ``steps_per_epoch`` and ``loader_workers``; None where no
            loader tells.
        """
        if not self._batches:
            return {"batch": None, "steps_per_epoch": None, "loader_workers": 0}
        self._feeding, taken = self._batches.most_common(1)[0]
        # A loader that is read ahead gives one batch more or less than was trained on.
        a_step = max(1, round(taken / steps)) if taken >= steps - 1 else taken / steps
        _, batch, batches, self.workers = self._feeding
        return {
            "batch": None if batch is None else max(1, round(batch * a_step)),
            "steps_per_epoch": None if batches is None else max(1, round(batches / a_step)),
            "loader_workers": self.workers,
        }

    def next_batch(self) -> object:
        """The next batch that the training would take.

        Raises:
            StopIteration: The pass is over, or no loader is read.
        """
        iterator = None if self._live is None else self._live()
        if iterator is None:
            raise StopIteration
        return next(iterator)


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # of an iterable data set nobody knows the length
        return None


def timed_fetches(feeds: Feeds, kind: Any) -> None:
    """Make every loader's iterator, of torch's base class `kind`, tell `feeds` of its batches."""
    made, taken = kind.__init__, kind.__next__

    def __init__(self: Any, loader: Any, *arguments: Any, **named: Any) -> None:
        made(self, loader, *arguments, **named)
        feeds.iterated(self, loader)

    def __next__(self: Any) -> Any:
        began = perf_counter()
        batch = taken(self)
        feeds.fetched(self, perf_counter() - began)
        return batch

    kind.__init__, kind.__next__ = __init__, __next__
