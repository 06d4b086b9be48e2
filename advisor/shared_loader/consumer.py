"""A job of a shared loader: the consumer of tensorsocket, which here owns its batches."""

import atexit
import json
from contextlib import suppress
from pathlib import Path
from queue import Empty, Full
from threading import Thread
from time import monotonic
from typing import Any

import tensorsocket.consumer as engine
import torch
from torch import Tensor

from advisor.errors import AdvisorError, InvalidInput
from advisor.shared_loader.folder import ENDED, PRODUCER, REASON, SERVED, hold, is_held
from advisor.shared_loader.producer import WAIT_S

dropping = False
"""Whether batches are dropped instead of kept: while what measures this job lets it wait."""

_LOOK_S = 0.5
_CLOSED = "A batch of the shared loader cannot be opened"


class _Heart(engine.Heart):  # type: ignore[misc]
    folder: Path

    def __init__(self, consumer: Any, uuid: Any, *arguments: Any) -> None:
        hold(self.folder / str(uuid))
        super().__init__(consumer, uuid, *arguments)


class _Consumer(engine.TensorConsumer):  # type: ignore[misc]
    """The batches of the shared loader: tuples of tensors that belong to this job alone."""

    folder: Path
    batches: int | None = None
    consumer_id: Any = None
    _closed = False

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("the data of this shared loader has no length")
        return self.batches

    def __next__(self) -> tuple[Tensor, ...]:
        while True:
            with suppress(Empty):
                batch: Any = self.buffer.get(timeout=_LOOK_S)
                break
            self.check_producer()
        if isinstance(batch, Exception):
            raise batch
        for tensor in batch:
            if tensor.is_cuda:  # it was made on another stream
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return tuple(batch)

    def _fetch_loop(self) -> None:
        """Receive batches in the background, and answer when they are copied.

        The copies are this job's to change and to keep, and the producer may overwrite its own.
        They have a stream of their own: closing memory of another process waits for the stream.
        """
        stream = torch.cuda.Stream() if torch.cuda.is_available() else None  # type: ignore[no-untyped-call]
        message: Any = None
        try:
            with torch.cuda.stream(stream):
                while not self._closed:
                    if self.socket.poll(200):
                        # The last one stays until the next has come: opening its memory takes long.
                        message = self.socket.recv_pyobj()
                        self._take(message, stream)
        except Exception as error:
            self._put(
                AdvisorError(f"{_CLOSED}: {error}. Start the producer on the GPU of its jobs.")
            )

    def _take(self, message: Any, stream: Any) -> None:
        if "stop_iteration" in message:
            self._put(StopIteration())
            self.batch_max = -1
        for part in message.get("-1", ()):
            if part["current_batch_index"] == self.batch_max + 1:
                # If CUDA refuses to open it, the engine has something else in place of the tensor.
                batch = tuple(torch.clone(each.tensor) for each in part["data"])
                if stream is not None:  # without keeping a core busy
                    copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
                    copied.record(stream)
                    copied.synchronize()
                self._put(batch)
                self.batch_max += 1
        if "-1" in message:
            answer = (str(self.consumer_id), str(self.batch_max), "1")
            self.ack_socket.send_multipart([word.encode() for word in answer])

    def _put(self, batch: Any) -> None:
        while not self._closed:
            with suppress(Full):
                self.buffer.put(batch, timeout=0.01 if dropping else _LOOK_S)
                return
            with suppress(Empty):
                oldest = self.buffer.get_nowait() if dropping else None
                batch = oldest if isinstance(oldest, StopIteration) else batch  # no end is lost

    def close(self) -> None:
        """Stop receiving: a thread that uses CUDA while the process ends aborts it."""
        self._closed = True
        self.fetch_thread.join(10 * _LOOK_S)

    def check_producer(self) -> None:
        """Raise AdvisorError if the producer has ended."""
        if not is_held(self.folder / PRODUCER):
            reason = self.folder / REASON
            cause = reason.read_text() if reason.exists() else "The loader was ended."
            raise AdvisorError(
                f"The shared loader has ended. {cause} Start it with its jobs again."
            )

    def check_served(self) -> None:
        """Raise an error if the producer serves other jobs than this."""
        if not (self.folder / SERVED).exists():
            return
        served = json.loads((self.folder / SERVED).read_text())
        if served["batch_size"] != self.batch_size:
            raise InvalidInput(
                f"The shared loader has batches of {served['batch_size']}, this job "
                f"{self.batch_size}. Pass all jobs of a loader the same batch size."
            )
        if str(self.consumer_id) not in served["jobs"]:
            raise AdvisorError("The shared loader began without this job. Start all jobs together.")
        self.batches = served["batches"]


def connect(folder: Path, batch_size: int) -> _Consumer:
    """Return the shared loader of `folder`, once the producer serves it."""
    wait_until_s = monotonic() + WAIT_S
    _Heart.folder = _Consumer.folder = folder
    engine.Heart = _Heart
    consumer = _Consumer.__new__(_Consumer)
    consumer.batch_size = batch_size
    starting = Thread(
        target=_Consumer.__init__, args=(consumer,), kwargs={"batch_size": batch_size}, daemon=True
    )
    starting.start()  # the engine waits for the producer without end
    while starting.is_alive():
        starting.join(_LOOK_S)
        if (folder / PRODUCER).exists() or (folder / ENDED).exists():
            consumer.check_producer()
            consumer.check_served()
        elif monotonic() > wait_until_s:
            raise AdvisorError(
                f"{folder}: no shared loader started within {WAIT_S:.0f} s. Start it."
            )
    atexit.register(consumer.close)
    consumer.check_served()
    return consumer
