"""Attaches to torch in a training program: it reports steps, phases, batches and what is saved.

The settings decide who is called: a `Program`, a `StepCounter`, or a thread that needs no step.
"""

import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Thread, get_ident
from time import perf_counter
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data.dataloader import _BaseDataLoaderIter

from . import VARIABLE
from .files import guard_links, replace_link
from .program import Program, StepCounter, serve

_program: "Program | None" = None


def attach() -> None:
    """Make torch call a hook from now on, once for this process and those it forks."""
    global _program  # noqa: PLW0603 - torch has one list of hooks for a process, too
    if _program is not None:
        return
    settings = json.loads(os.environ[VARIABLE])
    if "aside" in settings:
        # So does each Python process of the program that imports torch.
        Thread(target=serve, args=(settings["address"], {}), daemon=True).start()
    elif "count" in settings:
        _program = StepCounter()
        report_steps(_program)
    else:
        if folder := settings["folder"]:
            guard_links(Path(folder))
        _program = Program(settings["address"])
        report_steps(_program)
        report_loop(_program, folder)


def step_ended() -> None:
    """Note that the program itself ended a step; see `advisor.step`."""
    if _program is not None:
        _program.stepped_explicitly()


def report_loop(program: Program, folder: str) -> None:
    """Make torch call `program` when it loads, saves or validates; guard links in `folder`."""
    program.watch_loaders(_BaseDataLoaderIter)
    _note(torch.amp.autocast_mode.autocast, "__enter__", program.autocast_entered)
    _note(torch.nn.Module, "train", program.mode_changed)
    save = torch.save

    @wraps(save)
    def saved(obj: object, f: Any, *arguments: Any, **named: Any) -> Any:
        if folder:  # torch does not open the file by Python's `open`
            replace_link(f, Path(folder), keep=False)
        began = perf_counter()
        try:
            return save(obj, f, *arguments, **named)
        finally:
            program.between["save_s"] += perf_counter() - began

    torch.save = torch.serialization.save = saved


def report_steps(program: Program) -> None:
    """Make torch, just imported, call `program` at each backward pass and step of an optimizer.

    Torch's global hook (https://github.com/pytorch/pytorch/issues/88446) is not called if a
    gradient scaler skips a step, or if a CUDA graph replays one. So both of these are wrapped.
    """
    torch.autograd.backward = _cut_phases(program, torch.autograd.backward, whole=True)
    torch.autograd.grad = _cut_phases(program, torch.autograd.grad, whole=False)
    fires = 0

    def fired(optimizer: object, _arguments: object, _named: object) -> None:
        nonlocal fires
        fires += 1
        program.stepping.discard(id(optimizer))
        program.optimizer_stepped(optimizer)

    optimizers.register_optimizer_step_pre_hook(
        lambda optimizer, *_: program.stepping.add(id(optimizer))
    )
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
    graphs = torch.cuda.CUDAGraph
    _note(graphs, "capture_begin", program.capture_began)
    _note(graphs, "capture_end", program.capture_ended)
    _note(graphs, "replay", program.replayed, after=True)


def _note(owner: Any, name: str, note: Callable[..., None], *, after: bool = False) -> None:
    """Make the function `name` of `owner` call `note` first, or `after`, with its arguments."""
    function = getattr(owner, name)

    @wraps(function)
    def noted(*arguments: Any, **named: Any) -> Any:
        if not after:
            note(*arguments, **named)
        returned = function(*arguments, **named)
        if after:
            note(*arguments, **named)
        return returned

    setattr(owner, name, noted)


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
