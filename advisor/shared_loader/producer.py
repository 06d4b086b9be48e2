"""The producer of a shared loader: that of tensorsocket, which all its jobs follow in step."""

import ctypes
import json
import os
import signal
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import tensorsocket.producer as engine
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from advisor.errors import AdvisorError, InvalidInput
from advisor.shared_loader.folder import GONE, SERVED, is_held, write

WAIT_S = 600.0
"""Seconds that the producer waits for its next job, and a job for the producer."""

_BUFFER = 4  # batches that wait in each job

_PAIR = 2  # batches of a message: with one, the engine ends with an error
_RESEND_S = 2.0
_TOO_FEW = "The data loader has fewer than two full batches. Reduce the batch size."


def _start_worker(producer: int, start: Any, worker: int) -> None:
    """Make a worker end with its producer: torch's own check misses an end while workers start."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != producer:
        os._exit(1)
    if start is not None:
        start(worker)


class _Checked:
    """The full batches of a loader; others the engine would lose or cut without an error."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._first: list[Any] = []

    def __len__(self) -> int:
        return 2**62  # so that the end of a pass is that of the iterator, which loses fewer batches

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self._full(iter(self._loader))  # starts its workers now

    def _full(self, batches: Iterator[Any]) -> Iterator[tuple[Tensor, ...]]:
        size = self._loader.batch_size
        for batch in batches:
            parts = batch if isinstance(batch, tuple | list) else ()
            tensors = [part for part in parts if isinstance(part, Tensor) and part.dim()]
            rows = {len(tensor) for tensor in tensors}
            if not tensors or len(tensors) < len(parts) or len(rows) > 1:
                raise InvalidInput(
                    f"A batch is a {type(batch).__name__}, and a shared loader needs a tuple of "
                    "tensors with a row for each example. Change collate_fn."
                )
            if max(rows) < size:
                continue  # the last of an epoch
            shapes = [(*tensor.shape, tensor.dtype) for tensor in tensors]
            self._first = self._first or shapes
            if rows != {size} or shapes != self._first:
                raise InvalidInput(
                    f"A batch of {size} examples has the shapes {shapes}, and the first batch had "
                    f"{self._first}. A shared loader needs equal shapes. Pad or crop the examples."
                )
            yield tuple(parts)


def _batches_of_epoch(loader: Any) -> int | None:
    """Return how many batches reach the jobs: full ones, in pairs. None: it has no length."""
    streams = isinstance(loader.dataset, IterableDataset)
    try:
        full = len(loader.dataset if streams else loader.sampler) // int(loader.batch_size)
    except TypeError:
        return None
    return full - full % _PAIR


class _Beats(engine.HeartBeater):  # type: ignore[misc]
    """The jobs that live. The engine alone drops a job that is busy for half a second."""

    folder: Path
    hearts: set[bytes]
    closed = False

    def __init__(self, *arguments: Any) -> None:
        self.came: set[bytes] = set()
        super().__init__(*arguments)

    def handle_new_heart(self, heart: bytes) -> None:
        if not self.closed:
            self.came.add(heart)
            self.hearts = self.hearts | {heart}  # another thread iterates over the old set

    def handle_heart_failure(self, heart: bytes) -> None:
        if not is_held(self.folder / heart.decode()):
            self.hearts = self.hearts - {heart}


class _Producer(engine.TensorProducer):  # type: ignore[misc]
    """Sends a pair of batches when all jobs that live have copied the one before."""

    def __init__(self, loader: _Checked) -> None:
        self.sent = 0
        self._places: list[list[Tensor]] = []
        self._packed: list[Any] = []
        self._answered: set[str] = set()
        super().__init__(
            loader, rubber_band_pct=0, consumer_max_buffer_size=_BUFFER, producer_batch_size=_PAIR
        )

    def _broadcast(self, current_epoch: int, current_batch_index: int, buffer_index: int) -> Any:
        """Send a pair in one message; the engine packs it for each job, and leaks GPU handles."""
        pair = [batch for _, batch in self.rb_buffer[buffer_index : buffer_index + _PAIR]]
        if not self._places:
            device = "cuda" if torch.cuda.is_available() else "cpu"
            self._places = [[torch.empty_like(x, device=device) for x in batch] for batch in pair]
            self._packed = [engine.pack(batch) for batch in self._places]
        for place, tensor in zip(chain(*self._places), chain(*pair), strict=True):
            place.copy_(tensor)  # all jobs have copied what is there
        if torch.cuda.is_available():  # before a job reads it: it was packed once, with one event
            copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            copied.record()
            copied.synchronize()
        messages = [
            {"data": data, "current_epoch": current_epoch, "current_batch_index": index}
            for index, data in enumerate(self._packed, current_batch_index)
        ]
        self.socket.send_pyobj({"-1": messages})
        self.sent += 1
        return messages

    def _handle_acks(self, expected: list[str], payload: Any) -> None:
        """Wait until all jobs that live have `payload`; the engine goes on after 10 s."""
        last, missing = payload[-1]["current_batch_index"], set(expected)
        resend_s = monotonic() + _RESEND_S
        while missing := missing & {*self.hb.consumers}:
            if self.ack_socket.poll(200):
                job, index, _ = self.ack_socket.recv_multipart()
                self._answered.add(str(job))
                if int(index) == last and str(job) in missing:
                    missing.remove(str(job))
                    self.consumers[str(job)].add_batch(last, payload)
            elif monotonic() > resend_s and missing - self._answered:
                self._send_consumer_len()  # a message is lost while a socket connects
                return


def serve(loader: Any, folder: Path, jobs: int) -> None:
    """Send all passes of `loader` to so many jobs, until all have ended."""
    warnings.filterwarnings("ignore", "TypedStorage is deprecated")
    if (batches := _batches_of_epoch(loader)) == 0:
        raise InvalidInput(_TOO_FEW)
    loader.worker_init_fn = partial(_start_worker, os.getpid(), loader.worker_init_fn)
    loader.pin_memory = False  # a copy more, which saves no time here
    _Beats.folder, engine.HeartBeater = folder, _Beats
    producer = _Producer(_Checked(loader))
    beats: Any = producer.hb
    came, since_s = 0, monotonic()
    while came < jobs and monotonic() - since_s < WAIT_S:
        # Of the jobs that ended early, some may have come: they do not live.
        living = sum(is_held(folder / each.decode()) for each in tuple(beats.came))
        if living >= jobs - len([*folder.glob(f"{GONE}*")]):
            break
        sleep(0.1)
        if len(beats.came) > came:
            came, since_s = len(beats.came), monotonic()
    if not beats.came:
        raise AdvisorError("No job came to the shared loader. Start the jobs.")
    beats.closed, size = True, loader.batch_size
    beats.hearts = {each for each in beats.hearts if beats.heart_batch_size[str(each)] == size}
    served = {"batch_size": size, "batches": batches, "jobs": [*map(bytes.decode, beats.hearts)]}
    write(folder / SERVED, json.dumps(served))
    while beats.hearts:
        try:
            producer.get_sample()
        except StopIteration:
            if not producer.sent:
                raise InvalidInput(_TOO_FEW) from None
            producer.sent = 0
            for progress in producer.consumers.values():
                progress.reset()  # the next epoch follows at once
