"""A measured program: trains on request between its steps, or counts them in a file."""

import atexit
import json
import os
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, _DummyThread, current_thread
from time import monotonic, time
from typing import Any
from weakref import WeakKeyDictionary

from . import PROGRESS, RECORD_BYTES
from .clocks import context_sms, memory_mib, on_gpu
from .routines import VERBS, Over, Part, Routine, Verb, attempt, train, versions
from .steps import Feeds, StepFinder


class Program(Feeds):
    """The training loop of this process, and the connection to the process that measures it.

    The process that takes the first step connects, and from then on trains only on request. CUDA
    is not touched before that.

    Attributes:
        passing: The thread of the backward pass that goes on; None while none does.
        stepping: Optimizers inside whose step it is: passes there, of a closure, are parts of it.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.passing: int | None = None
        self.stepping: set[int] = set()
        self.verbs: dict[str, Verb] = {**VERBS, "load": self._load}
        self._precision, self._graphed = "default", False
        self._stepped: list[object] = []  # inside the backward pass that goes on
        # Calls of the finder that a CUDA graph makes at each replay; those of the graph that is
        # being captured.
        self._captured: WeakKeyDictionary[Any, list[Callable[[], bool]]] = WeakKeyDictionary()
        self._capturing: list[Callable[[], bool]] | None = None
        self._address = address
        self._trainer: tuple[int, int | None] | None = None  # process and thread of the first step
        self._claiming = Lock()
        self._finder = StepFinder()
        self._unattended = False
        self._serving: Generator[Part, bool, None] | None = None
        self._part: Part = "step"

    def optimizer_stepped(self, optimizer: object) -> None:
        """Note that an optimizer stepped, or that its gradient scaler skipped the step."""
        if self.trains_elsewhere():
            return
        if self.passing == self._here()[1]:  # the profiler cannot begin or end inside a pass
            self._stepped.append(optimizer)
        elif self._capturing is not None:
            self._capturing.append(partial(self._finder.optimizer_stepped, optimizer))
        elif self._finder.optimizer_stepped(optimizer):
            self.claim_step()

    def pass_ended(self, *, whole: bool) -> None:
        """Note that a backward pass has ended, `whole` if by ``backward()``: a phase, or a step."""
        if self.trains_elsewhere() or self.stepping:
            return
        if self._address and self._finder.steps == 0:
            with suppress(OSError):  # the measurement has ended
                Path(self._address).with_name("passes").touch()
        if self._capturing is not None:
            self._capturing.append(partial(self._finder.pass_ended, whole=whole))
        elif self._finder.pass_ended(whole=whole):
            self.claim_step()
        elif whole:
            self.phase_ended()
        stepped, self._stepped = self._stepped, []
        for optimizer in stepped:
            self.optimizer_stepped(optimizer)

    def capture_began(self, graph: object, *_: object, **__: object) -> None:
        """Note that a CUDA graph is captured, which takes no step itself."""
        self._captured[graph] = self._capturing = []

    def capture_ended(self, _graph: object) -> None:
        """Note that no CUDA graph is captured any more."""
        self._capturing = None

    def replayed(self, graph: object) -> None:
        """Note that a CUDA graph was replayed, which does all that it captured."""
        for call in self._captured.get(graph, []):
            if not self.trains_elsewhere() and call():
                self._graphed = True
                self.claim_step()

    def autocast_entered(self, autocast: Any) -> None:
        """Note the precision of the first autocast that has one, in the words of a workload."""
        words = {"torch.float16": "fp16", "torch.bfloat16": "amp"}
        if self._precision == "default" and autocast._enabled:
            self._precision = words.get(str(autocast.fast_dtype), "default")

    def stepped_explicitly(self) -> None:
        """Note that the program itself ended a step."""
        if not self.trains_elsewhere():
            self._finder.stepped_explicitly()
            self.claim_step()

    def trains_elsewhere(self) -> bool:
        """Return whether the process and thread that are measured are not these, or not any more.

        They are those of the first step: forks and other threads train on by themselves.
        """
        return self._unattended or self._trainer not in (None, self._here())

    def _here(self) -> tuple[int, int | None]:
        """This process and thread; a thread of torch's own works for that of the backward pass."""
        thread = current_thread()
        own = isinstance(thread, _DummyThread) and self.passing is not None
        return os.getpid(), self.passing if own else thread.ident

    def phase_ended(self) -> None:
        """Note that a phase of the step has ended, and another begins."""
        if self._serving is None or self._part != "phase" or self.stepping:
            return
        if not self.trains_elsewhere():
            self._part = self._serving.send(False)

    def claim_step(self) -> None:
        """End a step, if no other thread has taken the first."""
        with self._claiming:
            self._trainer = self._trainer or self._here()
        if not self.trains_elsewhere():
            self._step_ended()

    def _step_ended(self) -> None:
        self.note_step()
        if self._serving is None:
            atexit.register(self._end)
            self._serving = self._answers()
            self._part = next(self._serving)
        else:
            self._part = self._serving.send(True)

    def _answers(self) -> Generator[Part, bool, None]:
        """Connect, and answer requests; end as if by Ctrl-C when the measurement does."""
        try:
            ours = socket.socket(socket.AF_UNIX)
            ours.connect(self._address)
            with Connection(ours.detach()) as connection:
                message: Any = {"pid": os.getpid(), "versions": versions()}
                while True:
                    connection.send_bytes(json.dumps(message).encode())
                    _hold_up_no_other(True)
                    request = json.loads(connection.recv_bytes())
                    _hold_up_no_other(False)
                    verb = self.verbs[request["verb"]]
                    message = yield from attempt(partial(verb, self, **request["arguments"]))
        except (EOFError, OSError):
            raise KeyboardInterrupt from None
        finally:
            self._unattended = True

    def _end(self) -> None:
        if self._serving is None or self.trains_elsewhere() or hasattr(sys, "last_type"):
            return
        with suppress(KeyboardInterrupt, Over):
            self._serving.throw(Over)

    def _load(self, _program: Feeds, warm_steps: int = 5, partly: bool = False) -> Routine:
        """Train until a step is clear, then the first steps, which are slower than later ones.

        Return also the SMs of the CUDA context, and what is ``found`` of the script as a workload.
        """
        began, steps = time(), warm_steps + 2
        answer = yield from train(self, began, lambda _: self._finder.clear, partly=partly)
        if not answer["over"]:
            self.forget_batches()
            answer = yield from train(self, began, lambda n: n >= steps, partly=partly)
        ends = [began, *answer["completed_at"]]
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
        execution = "graph" if self._graphed else "compiled" if compiled else "eager"
        workload = {"precision": self._precision, "execution": execution}
        return answer | {
            "sms": context_sms(),
            "warm_step_s": (ends[-1] - ends[-3]) / 2 if len(ends) > 2 else ends[-1] - began,
            "device": "cuda" if on_gpu() else "cpu",
            "found": self.data(max(1, len(ends) - 1)) | workload,
        }


def _hold_up_no_other(waiting: bool) -> None:
    """While this program is `waiting`, drop its batches of a loader that others share."""
    if (loader := sys.modules.get("advisor.shared_loader.consumer")) is not None:
        loader.dropping = waiting  # type: ignore[attr-defined]


class Served(Program):
    """A program of ours whose verbs set its `step`, and `held`, which stays in memory."""

    step: Callable[[], object]
    held: object = None


def serve(address: str, verbs: Mapping[str, Verb]) -> None:
    """Answer `verbs` too, for the process that listens at `address`, until it hangs up."""
    served = Served(address)
    served.verbs |= verbs
    with suppress(KeyboardInterrupt):
        while True:
            served.claim_step()
            served.step()


class StepCounter(Program):
    """Counts steps in a file, if there is one; of several ranks, only the first counts.

    It counts a step when the script enqueues it. On a GPU that is earlier than its end by up to a
    launch queue. A report is one JSON object, written by a single call.
    """

    def __init__(self) -> None:
        super().__init__("")
        self._reported, self._reported_at = 0, 0.0
        self._unattended = any(os.environ.get(name, "0") != "0" for name in ("RANK", "LOCAL_RANK"))
        self._descriptor: int | None = None
        if path := os.environ.get(PROGRESS):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        atexit.register(self._end)

    def _step_ended(self) -> None:
        if monotonic() - self._reported_at >= 0.2:
            self._report()

    def _end(self) -> None:
        if self._trainer is not None and self._trainer[0] == os.getpid():
            self._report()

    def _report(self) -> None:
        self._reported, self._reported_at = max(self._reported, self._finder.steps), monotonic()
        if self._descriptor is None:
            return
        report = {"steps": self._reported, "at": self._reported_at}
        memory = {"memory": memory_mib()} if on_gpu() else {}
        record = json.dumps({**report, **memory, "versions": versions()}).encode()
        os.pwrite(self._descriptor, record.ljust(RECORD_BYTES)[:RECORD_BYTES], 0)
