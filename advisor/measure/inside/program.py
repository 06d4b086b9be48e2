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
from typing import Any, NoReturn

from .clocks import context_sms, memory_mib, on_gpu
from .feeds import Feeds
from .routines import VERBS, Over, Part, Routine, Verb, attempt, train, versions
from .steps import StepFinder


class Program(Feeds):
    """The training loop of this process, and the connection to the process that measures it.

    The process that takes the first step connects, and from then on trains only on request. CUDA
    is not touched before that.

    Attributes:
        precision: In the words of a workload, as far as it was seen.
        graphed: Whether its steps are replays of a CUDA graph.
        capturing: What a CUDA graph that is being captured will do at each replay, in calls of
            the finder; None while none is.
        passing: The thread of the backward pass that goes on; None while none does.
        stepping: Optimizers inside whose step it is: passes there, of a closure, are parts of it.
        stepped: Optimizers that stepped inside the backward pass that goes on.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.precision = "default"
        self.graphed = False
        self.capturing: list[Callable[[], bool]] | None = None
        self.passing: int | None = None
        self.stepping: set[int] = set()
        self.stepped: list[object] = []
        self._address = address
        self._trainer: tuple[int, int | None] | None = None  # process and thread of the first step
        self._claiming = Lock()
        self._finder = StepFinder()
        self._connection: Connection | None = None
        self._unattended = False
        self._routine: Routine | None = None
        self._part: Part = "step"
        self._verbs: Mapping[str, Verb] = {**VERBS, "load": self._load}

    def optimizer_stepped(self, optimizer: object) -> None:
        """Note that an optimizer stepped, or that its gradient scaler skipped the step."""
        if self.trains_elsewhere():
            return
        if self.passing == self._here()[1]:  # the profiler cannot begin or end inside a pass
            self.stepped.append(optimizer)
        elif self.capturing is not None:
            self.capturing.append(partial(self._finder.optimizer_stepped, optimizer))
        elif self._finder.optimizer_stepped(optimizer):
            self._claim_step()

    def pass_ended(self, *, whole: bool) -> None:
        """Note that a backward pass has ended, `whole` if by ``backward()``: a phase, or a step."""
        if self.trains_elsewhere() or self.stepping:
            return
        if self._address and self._finder.steps == 0:
            with suppress(OSError):  # the measurement has ended
                Path(self._address).with_name("passes").touch()
        if self.capturing is not None:
            self.capturing.append(partial(self._finder.pass_ended, whole=whole))
        elif self._finder.pass_ended(whole=whole):
            self._claim_step()
        elif whole:
            self.phase_ended()
        stepped, self.stepped = self.stepped, []
        for optimizer in stepped:
            self.optimizer_stepped(optimizer)

    def replayed(self, calls: "list[Callable[[], bool]]") -> None:
        """Note that a CUDA graph was replayed that makes these calls."""
        for call in calls:
            if not self.trains_elsewhere() and call():
                self.graphed = True
                self._claim_step()

    def stepped_explicitly(self) -> None:
        """Note that the program itself ended a step."""
        if not self.trains_elsewhere():
            self._finder.stepped_explicitly()
            self._claim_step()

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
        inside = self._routine is not None and self._part == "phase" and not self.stepping
        if inside and not self.trains_elsewhere():
            self._resume(False)

    def _claim_step(self) -> None:
        """End a step, if no other thread has taken the first."""
        with self._claiming:
            self._trainer = self._trainer or self._here()
        if not self.trains_elsewhere():
            self._step_ended()

    def _step_ended(self) -> None:
        self.note_step()
        if self._connection is None:
            self._connect()
        if self._routine is None:
            self._serve()
        else:
            self._resume(True)

    def _connect(self) -> None:
        ours = socket.socket(socket.AF_UNIX)
        try:
            ours.connect(self._address)
        except OSError:
            self._stop()
        self._connection = Connection(ours.detach())
        atexit.register(self._end)
        self._send({"pid": os.getpid()})

    def _serve(self) -> None:
        """Answer requests until one needs training to go on."""
        while self._routine is None:
            assert self._connection is not None
            try:
                request = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                self._stop()
            verb = self._verbs[request["verb"]]
            self._answer(partial(self._begin, verb, request["arguments"]))

    def _begin(self, verb: Verb, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = verb(self, **arguments)
        if not isinstance(answer, Generator):
            return answer
        self._routine = answer
        return self._advanced(partial(next, answer))

    def _resume(self, ended: bool) -> None:
        routine = self._routine
        assert routine is not None
        self._answer(lambda: self._advanced(partial(routine.send, ended)))
        if self._routine is None:
            self._serve()

    def _advanced(self, advance: Callable[[], Part]) -> dict[str, Any]:
        """The answer of the routine at its end; empty while it goes on."""
        try:
            self._part = advance()
        except StopIteration as end:
            self._routine = None
            answer: dict[str, Any] = end.value
            return answer
        return {}

    def _answer(self, request: Callable[[], dict[str, Any]]) -> None:
        answer = attempt(request)
        if answer[0] != "done":
            self._routine = None
        if self._routine is None:
            self._send(answer)

    def _send(self, message: object) -> None:
        assert self._connection is not None
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self._stop()

    def _stop(self) -> NoReturn:
        """End the program as if by Ctrl-C, since the measurement has ended."""
        self._unattended = True
        raise KeyboardInterrupt

    def _end(self) -> None:
        """Answer with the steps so far at an end without an error; wait until that is read."""
        if self._routine is None or self.trains_elsewhere() or hasattr(sys, "last_type"):
            return
        try:
            self._routine.throw(Over)
        except StopIteration as end:
            self._send(("done", end.value))
            with suppress(EOFError, OSError):
                assert self._connection is not None
                self._connection.recv_bytes()
        except Over:
            pass

    def _load(self, _program: Feeds, warm_steps: int = 5, partly: bool = False) -> Routine:
        """Train until a step is clear, then the first steps, which are slower than later ones.

        Returns:
            That of `run`; ``pid``, ``sms`` as the CUDA context reports them, ``warm_step_s``, and
            ``versions``, ``device`` and ``found``: properties of the script as a workload.
        """
        began, steps = time(), warm_steps + 2
        answer = yield from train(self, began, lambda _: self._finder.clear, partly=partly)
        if not answer["over"]:
            self.forget_batches()
            answer = yield from train(self, began, lambda n: n >= steps, partly=partly)
        ends = [began, *answer["completed_at"]]
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
        execution = "graph" if self.graphed else "compiled" if compiled else "eager"
        workload = {"precision": self.precision, "execution": execution}
        return answer | {
            "pid": os.getpid(),
            "sms": context_sms(),
            "warm_step_s": (ends[-1] - ends[-3]) / 2 if len(ends) > 2 else ends[-1] - began,
            "versions": versions(),
            "device": "cuda" if on_gpu() else "cpu",
            "found": self.data(max(1, len(ends) - 1)) | workload,
        }


_REPORT_S = 0.2

# A record is written in place into a file of this size, which needs no room on a full disk.
RECORD_BYTES = 512

PROGRESS = "ADVISOR_PROGRESS"
"""The variable with the file in which a job's process counts steps."""


class StepCounter(Program):
    """Counts steps in a file; of several ranks, only the first counts.

    It counts a step when the script enqueues it. On a GPU that is earlier than its end by up to a
    launch queue. A report is one JSON object in a file of a fixed size, written by a single call;
    without a file nothing is written.
    """

    def __init__(self) -> None:
        super().__init__("")
        self._reported, self._reported_at = 0, 0.0
        ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK"))
        self._unattended = any(rank != "0" for rank in ranks)
        self._versions: dict[str, Any] = {}
        self._descriptor: int | None = None
        if path := os.environ.get(PROGRESS):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _step_ended(self) -> None:
        self._versions = self._versions or versions()
        if monotonic() - self._reported_at >= _REPORT_S:
            self._reported_at = monotonic()
            self._report()

    def end(self) -> None:
        """Report the number of steps, at the end of the process that took them."""
        if self._trainer is not None and self._trainer[0] == os.getpid():
            self._report()

    def _report(self) -> None:
        self._reported = max(self._reported, self._finder.steps)
        report: dict[str, Any] = {"steps": self._reported, "at": monotonic()}
        if on_gpu():
            report["memory"] = memory_mib()
        report["versions"] = self._versions
        if self._descriptor is not None:
            record = json.dumps(report).encode()
            os.pwrite(self._descriptor, record.ljust(RECORD_BYTES)[:RECORD_BYTES], 0)
