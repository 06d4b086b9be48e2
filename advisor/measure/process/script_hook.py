"""The hook in a user's training loop: it finds training steps, and serves requests between them.

`attach` runs right after the script has imported torch. Torch calls
`ScriptHook.optimizer_stepped` after each step of an optimizer. The process that takes the first one
connects to the process that started the script, and from then on trains only as it is asked to.
CUDA is not touched before that.

Requests are routines (`advisor.measure.process.trainable`), which run in the script's own thread.
With several optimizers, a training step ends when the one that steps least often has stepped: so a
round of a GAN is one step, and so is a backward pass that steps an optimizer for each parameter.
"""

import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from advisor.measure.process.script_feeds import Feeds
from advisor.measure.process.script_folder import guard_links
from advisor.measure.process.script_patches import patch_torch
from advisor.measure.process.tenant_verbs import warmed
from advisor.measure.process.trainable import Part, Routine
from advisor.measure.process.worker import TenantState, Verb, attempted, versions

VARIABLE = "ADVISOR_HOOK"
"""Name of the variable with a hook's settings as JSON: ``address``, ``verbs`` and ``folder``; or
``count``, where its steps are counted and nothing is asked; or ``address``, ``verbs`` and
``aside``, where nobody looks for its steps."""

# An optimizer counts where it steps at least once in so many steps of the busiest.
_SELDOM = 64
# Rounds of all optimizers, before it is clear which ends a step.
_ROUNDS = 3

_EXPLICIT = -1

_hook: "ScriptHook | None" = None


def attach() -> None:
    """Make torch call a hook from now on, once for this process and those it forks."""
    global _hook  # noqa: PLW0603 - torch has one list of hooks for a process, too
    if _hook is None:
        settings = json.loads(os.environ[VARIABLE])
        if "count" in settings:
            from advisor.measure.process.step_counter import counting

            _hook = counting()
            return
        if "aside" in settings:
            from advisor.measure.process.side_thread import begin

            begin(settings)
            return
        guard_links(Path(settings["folder"]))
        _hook = ScriptHook(settings)
        patch_torch(_hook, Path(settings["folder"]))


def step_ended() -> None:
    """See `advisor.step`."""
    if _hook is not None:
        _hook.stepped_explicitly()


class ScriptHook:
    """A user's script as something to train, and the connection to whoever measures it.

    Attributes:
        feeds: The loaders that it takes batches from.
        precision: In the words of a workload, as far as it was seen.
        graphed: Whether its steps are replays of a CUDA graph.
        capturing: Takes optimizers that step while a CUDA graph is captured; None while none is.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.feeds = Feeds()
        self.precision = "default"
        self.graphed = False
        self.capturing: list[object] | None = None
        self._settings = settings
        self._process: int | None = None  # the one that trains, once known
        self._optimizer_steps: Counter[int] = Counter()
        self._step_ender: int | None = None  # the optimizer that ends a step, once known
        self._connection: Connection | None = None
        self._unattended = False
        self._routine: Routine | None = None
        self._part: Part = "step"
        self._state: TenantState | None = None
        self._verbs: Mapping[str, Verb] = {}

    @property
    def fetched_s(self) -> float:
        return self.feeds.fetched_s

    @property
    def loader_workers(self) -> int:
        return self.feeds.workers

    def next_batch(self) -> object:
        """Take the next batch of the loader that feeds the training."""
        return self.feeds.next_batch()

    def close(self) -> None:
        """Let the script run on by itself."""
        self._unattended = True

    def optimizer_stepped(self, optimizer: object) -> None:
        """An optimizer stepped, or its gradient scaler skipped the step."""
        if self._step_ender == _EXPLICIT or self._not_for_us():
            return
        if self.capturing is not None:
            self.capturing.append(optimizer)
            return
        key = id(optimizer)
        if self._step_ender is None:
            self._optimizer_steps[key] += 1
            often = max(self._optimizer_steps.values())
            if min(n for n in self._optimizer_steps.values() if n * _SELDOM >= often) >= _ROUNDS:
                self._step_ender = key
        elif key != self._step_ender:
            return
        self._step_ended()

    def stepped_explicitly(self) -> None:
        """The script says itself that a step has ended."""
        if not self._not_for_us():
            self._step_ender = _EXPLICIT
            self._step_ended()

    def _not_for_us(self) -> bool:
        """Whether nobody measures any more, or this is a fork of the process that is measured."""
        return self._unattended or self._process not in (None, os.getpid())

    def phase_ended(self) -> None:
        """A phase of the step has ended, and another begins."""
        if self._routine is not None and self._part == "phase":
            self._resume(False)

    def _step_ended(self) -> None:
        if self._connection is None:
            self._connect()
        if self._routine is None:
            self._serve()
        else:
            self._resume(True)

    def _connect(self) -> None:
        ours = socket.socket(socket.AF_UNIX)
        try:
            ours.connect(self._settings["address"])
        except OSError:  # nobody measures any more
            self._unattended = True
            return
        self._connection, self._process = Connection(ours.detach()), os.getpid()
        module, _, function = self._settings["verbs"].partition(":")
        self._verbs = getattr(import_module(module), function)() | {"load": self._load}
        self._state = TenantState("cpu", self)
        self._send({"pid": os.getpid()})

    def _serve(self) -> None:
        """Answer requests until one wants training to go on."""
        while not self._unattended and self._routine is None:
            assert self._connection is not None
            try:
                request = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                self._unattended = True
                raise KeyboardInterrupt from None  # as if by Ctrl-C: nobody waits for it any more
            verb = self._verbs[request["verb"]]
            self._begin(partial(verb, state=self._state, **request["arguments"]))

    def _begin(self, request: Callable[[], dict[str, Any] | Routine]) -> None:
        def first() -> dict[str, Any]:
            answer = request()
            if not isinstance(answer, Generator):
                return answer
            self._routine = answer
            return self._advanced(partial(next, answer))

        self._answer(first)

    def _resume(self, ended: bool) -> None:
        routine = self._routine
        assert routine is not None
        self._answer(lambda: self._advanced(partial(routine.send, ended)))
        if self._routine is None:
            self._serve()

    def _advanced(self, advance: Callable[[], Part]) -> dict[str, Any]:
        """What the routine answers in the end; empty while it goes on."""
        try:
            self._part = advance()
        except StopIteration as end:
            self._routine = None
            answer: dict[str, Any] = end.value
            return answer
        return {}

    def _answer(self, request: Callable[[], dict[str, Any]]) -> None:
        answer = attempted(request)
        if answer[0] != "done":
            self._routine = None
        if self._routine is None:
            self._send(answer)

    def _send(self, message: object) -> None:
        assert self._connection is not None
        try:
            self._connection.send_bytes(json.dumps(message).encode())
        except OSError:
            self._unattended = True

    def _load(self, state: TenantState, warm_steps: int = 5) -> Routine:
        """Train until it is known what a step is; then as `warmed`, and what the script is like.

        Returns:
            As `warmed`, and ``versions``, ``device`` and ``found``.
        """
        while self._step_ender is None:
            yield "step"
        state.device = self._device()
        self.feeds.begin()
        answer = yield from warmed(state, warm_steps)
        found = self.feeds.found(warm_steps + 2) | {
            "precision": self.precision,
            "execution": self._execution(),
        }
        return answer | {"versions": versions(), "device": state.device, "found": found}

    def _device(self) -> Any:
        import torch

        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return "cuda" if on_gpu else "cpu"

    def _execution(self) -> str:
        if self.graphed:
            return "graph"
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
        return "compiled" if compiled else "eager"
