"""Attaches to torch in a training program: it reports steps, phases, batches and what is saved.

`attach` runs right after the program has imported torch. What is then called back depends on the
settings: a `Program` trains on request, a `StepCounter` counts, and a thread answers what needs no
step.
"""

import atexit
import json
import os
import socket
from collections.abc import Callable
from functools import partial, wraps
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread, get_ident
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

from .feeds import Feeds
from .files import guard_links, replace_link
from .program import Program, StepCounter
from .routines import VERBS, attempt

VARIABLE = "ADVISOR_HOOK"
"""Name of the variable with a hook's settings as JSON, of one of three kinds.

* ``address`` and ``folder``: steps are found, and requests answered between them;
* ``address`` and ``aside``: a thread answers requests, and steps are not looked for;
* ``count``: steps are counted, and no requests answered.
"""

_program: "Program | None" = None


def attach() -> None:
    """Make torch call a hook from now on, once for this process and those it forks."""
    global _program  # noqa: PLW0603 - torch has one list of hooks for a process, too
    if _program is not None:
        return
    settings = json.loads(os.environ[VARIABLE])
    if "count" in settings:
        _program = counter = StepCounter()
        report_steps(counter)
        atexit.register(counter.end)
    elif "aside" in settings:
        Thread(target=_answer_aside, args=(settings["address"],), daemon=True).start()
    else:
        if folder := settings["folder"]:
            guard_links(Path(folder))
        _program = Program(settings["address"])
        patch_torch(_program, folder)


def step_ended() -> None:
    """Note that the program itself ended a step; see `advisor.step`."""
    if _program is not None:
        _program.stepped_explicitly()


def _answer_aside(address: str) -> None:
    """Answer requests that need no step until the process that started this one hangs up.

    Each Python process of a program in which no hook finds steps does, once it imported torch.
    """
    ours = socket.socket(socket.AF_UNIX)
    try:
        ours.connect(address)
        with Connection(ours.detach()) as connection:
            while True:
                request = json.loads(connection.recv_bytes())
                verb = VERBS[request["verb"]]
                answer = attempt(partial(verb, Feeds(), **request["arguments"]))  # type: ignore[arg-type]
                connection.send_bytes(json.dumps(answer).encode())
    except (EOFError, OSError):  # the measurement has ended
        pass


def patch_torch(program: Program, folder: str) -> None:
    """Make torch, just imported, call `program` when it trains; guard links in `folder`."""
    import torch
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    program.watch_loaders(_BaseDataLoaderIter)
    report_steps(program)
    torch.amp.autocast_mode.autocast.__enter__ = _note_precision(  # type: ignore[method-assign]
        program, torch.amp.autocast_mode.autocast.__enter__
    )
    torch.save = torch.serialization.save = _watch_save(program, torch.save, folder)
    torch.nn.Module.train = _watch_mode(program, torch.nn.Module.train)  # type: ignore[method-assign]


def report_steps(program: Program) -> None:
    """Make torch, just imported, call `program` at each backward pass and step of an optimizer.

    Torch's global hook (https://github.com/pytorch/pytorch/issues/88446) is not called if a
    gradient scaler skips a step, or if a CUDA graph replays one. So both of these are wrapped.
    """
    import torch
    from torch.optim import optimizer as optimizers

    torch.autograd.backward = _cut_phases(program, torch.autograd.backward, whole=True)
    torch.autograd.grad = _cut_phases(program, torch.autograd.grad, whole=False)
    fires = 0

    def begun(optimizer: object, _arguments: object, _named: object) -> None:
        program.stepping.add(id(optimizer))

    def fired(optimizer: object, _arguments: object, _named: object) -> None:
        nonlocal fires
        fires += 1
        program.stepping.discard(id(optimizer))
        program.optimizer_stepped(optimizer)

    optimizers.register_optimizer_step_pre_hook(begun)
    optimizers.register_optimizer_step_post_hook(fired)
    # Torch 2.3 moved it out of torch.cuda.amp.
    scaler: Any = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    scaled = scaler.step

    @wraps(scaled)
    def step(self: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        before = fires
        returned = scaled(self, optimizer, *arguments, **named)
        if fires == before:  # gradients were not finite: a step as long as any other
            program.optimizer_stepped(optimizer)
        return returned

    scaler.step = step
    _report_graphs(program, torch.cuda.CUDAGraph)


def _report_graphs(program: Program, graph_class: Any) -> None:
    """Make each replay of a CUDA graph do what it captured, and its capture nothing."""
    begin, end, replay = graph_class.capture_begin, graph_class.capture_end, graph_class.replay
    captured: WeakKeyDictionary[Any, list[Callable[[], bool]]] = WeakKeyDictionary()

    def capture_begin(self: Any, *arguments: Any, **named: Any) -> Any:
        captured[self] = program.capturing = []
        return begin(self, *arguments, **named)

    def capture_end(self: Any) -> Any:
        program.capturing = None
        return end(self)

    def replayed(self: Any) -> Any:
        returned = replay(self)
        program.replayed(captured.get(self, []))
        return returned

    graph_class.capture_begin, graph_class.capture_end = capture_begin, capture_end
    graph_class.replay = replayed


def _cut_phases(program: Program, backward: Callable[..., Any], *, whole: bool) -> Any:
    """Call `backward`; note its begin and its end, unless it is a checkpointed layer's own pass."""

    @wraps(backward)
    def cut(*arguments: Any, **named: Any) -> Any:
        if program.passing is not None or program.trains_elsewhere():
            return backward(*arguments, **named)
        program.pass_began()
        if whole:
            program.phase_ended()
        program.passing = get_ident()
        try:
            returned = backward(*arguments, **named)
        finally:
            program.passing = None
        program.pass_ended(whole=whole)
        return returned

    return cut


def _note_precision(program: Program, enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter autocast; note the precision of the first that has one."""
    words = {"torch.float16": "fp16", "torch.bfloat16": "amp"}

    @wraps(enter)
    def entered(self: Any) -> Any:
        if program.precision == "default" and self._enabled:
            program.precision = words.get(str(self.fast_dtype), "default")
        return enter(self)

    return entered


def _watch_mode(program: Program, train: Callable[..., Any]) -> Callable[..., Any]:
    """Set a network to train or to be evaluated; note which."""

    @wraps(train)
    def switched(self: Any, mode: bool = True) -> Any:
        if not program.trains_elsewhere():
            program.mode_changed(mode)
        return train(self, mode)

    return switched


def _watch_save(program: Program, save: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """Time `save`; before it, replace a link: torch does not open the file by Python's `open`."""

    @wraps(save)
    def saved(obj: object, f: object, *arguments: Any, **named: Any) -> Any:
        if folder:
            replace_link(f, Path(folder), keep=False)
        began = perf_counter()
        try:
            return save(obj, f, *arguments, **named)
        finally:
            program.saved(perf_counter() - began)

    return saved
