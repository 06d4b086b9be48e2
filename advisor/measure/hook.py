"""The hook in a user's training loop: it finds training steps, and serves requests between them.

`attach` runs right after the script has imported torch. Torch calls
`ScriptHook.optimizer_stepped` after each step of an optimizer. The process that takes the first one
connects to the process that started the script, and from then on trains only on request. CUDA is
not touched before that.

Requests are routines (`advisor.measure.worker`), which run in the script's own thread.
With several optimizers, a training step ends when the one that steps least often has stepped: so a
round of a GAN is one step, and so is a backward pass that steps an optimizer for each parameter.
"""

import atexit
import json
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from functools import partial, wraps
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from advisor.measure.script import ProgressWriter, guard_links, replace_link
from advisor.measure.worker import (
    Part,
    Routine,
    TenantState,
    Verb,
    attempt,
    begin,
    memory,
    versions,
    warmed,
)

VARIABLE = "ADVISOR_HOOK"
"""Name of the variable with a hook's settings as JSON, of one of three kinds.

* ``address``, ``verbs`` and ``folder``: the hook finds steps, and answers requests between them;
* ``address``, ``verbs`` and ``aside``: a thread answers requests, and steps are not looked for;
* ``count``: the hook counts steps, and answers no requests.
"""

_MEASURE = Path(__file__).resolve().parent


def hook_variables(
    folder: Path, settings: Mapping[str, object], pythonpath: str | None
) -> dict[str, str]:
    """Make the `folder` of a script's hook; return the variables by which it attaches to torch.

    `settings` are as for `VARIABLE`; `pythonpath` is the script's own.
    """
    folder.mkdir(exist_ok=True)
    for target in (_MEASURE / "sitecustomize.py", _MEASURE.parent):
        link = folder / target.name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    paths = ":".join(filter(None, [str(folder), pythonpath]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths}


_hook: "ScriptHook | None" = None


def attach() -> None:
    """Make torch call a hook from now on, once for this process and those it forks."""
    global _hook  # noqa: PLW0603 - torch has one list of hooks for a process, too
    if _hook is not None:
        return
    settings = json.loads(os.environ[VARIABLE])
    if "count" in settings:
        _hook = counter = StepCounter()
        report_steps(counter)
        atexit.register(counter.end)
    elif "aside" in settings:
        begin(settings)
    else:
        guard_links(Path(settings["folder"]))
        _hook = ScriptHook(settings)
        patch_torch(_hook, Path(settings["folder"]))


def step_ended() -> None:
    """Note that the script itself ended a step; see `advisor.step`."""
    if _hook is not None:
        _hook.stepped_explicitly()


def patch_torch(hook: "ScriptHook", folder: Path) -> None:
    """Make torch, just imported, call `hook` when the script trains; guard links in `folder`."""
    import torch
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    hook.watch_loaders(_BaseDataLoaderIter)
    report_steps(hook)
    torch.autograd.backward = _cut_phases(hook, torch.autograd.backward)
    torch.amp.autocast_mode.autocast.__enter__ = _note_precision(  # type: ignore[method-assign]
        hook, torch.amp.autocast_mode.autocast.__enter__
    )
    torch.save = torch.serialization.save = _guard_save(torch.save, folder)


def report_steps(hook: "ScriptHook") -> None:
    """Make torch, just imported, call `hook` at each step of an optimizer.

    Torch's global hook (https://github.com/pytorch/pytorch/issues/88446) is not called if a
    gradient scaler skips a step, or if a CUDA graph replays one. So both of these are wrapped.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    fires = 0

    def fired(optimizer: object, _arguments: object, _named: object) -> None:
        nonlocal fires
        fires += 1
        hook.optimizer_stepped(optimizer)

    register_optimizer_step_post_hook(fired)
    scaled = torch.amp.GradScaler.step

    @wraps(scaled)
    def step(self: Any, optimizer: Any, *arguments: Any, **named: Any) -> Any:
        before = fires
        returned = scaled(self, optimizer, *arguments, **named)
        if fires == before:  # gradients were not finite: a step as long as any other
            hook.optimizer_stepped(optimizer)
        return returned

    torch.amp.GradScaler.step = step  # type: ignore[method-assign]
    _report_graphs(hook, torch.cuda.CUDAGraph)


def _report_graphs(hook: "ScriptHook", graph_class: Any) -> None:
    """Make each replay of a CUDA graph a step, and its capture none."""
    begin, end, replay = graph_class.capture_begin, graph_class.capture_end, graph_class.replay
    captured: WeakKeyDictionary[Any, list[object]] = WeakKeyDictionary()

    def capture_begin(self: Any, *arguments: Any, **named: Any) -> Any:
        captured[self] = hook.capturing = []
        return begin(self, *arguments, **named)

    def capture_end(self: Any) -> Any:
        hook.capturing = None
        return end(self)

    def replayed(self: Any) -> Any:
        returned = replay(self)
        for optimizer in captured.get(self, ()):
            hook.graphed = True
            hook.optimizer_stepped(optimizer)
        return returned

    graph_class.capture_begin, graph_class.capture_end = capture_begin, capture_end
    graph_class.replay = replayed


def _cut_phases(hook: "ScriptHook", backward: Callable[..., Any]) -> Callable[..., Any]:
    inside = False

    @wraps(backward)
    def cut(*arguments: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:  # a checkpointed layer's own backward pass
            return backward(*arguments, **named)
        hook.phase_ended()
        inside = True
        try:
            returned = backward(*arguments, **named)
        finally:
            inside = False
        hook.phase_ended()
        return returned

    return cut


def _note_precision(hook: "ScriptHook", enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter autocast; note the precision of the first that has one."""
    words = {"torch.float16": "fp16", "torch.bfloat16": "amp"}

    @wraps(enter)
    def entered(self: Any) -> Any:
        if hook.precision == "default" and self._enabled:
            hook.precision = words.get(str(self.fast_dtype), "default")
        return enter(self)

    return entered


def _guard_save(save: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Replace a link before `save`: torch opens the file by itself, not by Python's `open`."""

    @wraps(save)
    def saved(obj: object, f: object, *arguments: Any, **named: Any) -> Any:
        replace_link(f, folder, keep=False)
        return save(obj, f, *arguments, **named)

    return saved


class _Loader(NamedTuple):
    """Properties of a loader; they stay the same if the script makes it again for each pass."""

    data: int
    batch: int | None
    batches: int | None
    workers: int


class Feeds:
    """The batches that a script takes from torch loaders: the part of a `Trainable` that has data.

    Attributes:
        fetched_s: Seconds spent so far on taking batches.
        loader_workers: Processes of the loader that feeds the training; 0 without.
    """

    def __init__(self) -> None:
        self.fetched_s = 0.0
        self.loader_workers = 0
        self._batches: Counter[_Loader] = Counter()
        self._feeding: _Loader | None = None
        self._live: Any = None

    def watch_loaders(self, kind: Any) -> None:
        """Make each loader's iterator, of torch's base class `kind`, note its batches here."""
        make, take = kind.__init__, kind.__next__

        def __init__(iterator: Any, loader: Any, *arguments: Any, **named: Any) -> None:
            make(iterator, loader, *arguments, **named)
            batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
            batches = None
            with suppress(TypeError):  # an iterable data set has no length
                batches = len(loader)
            data = id(loader.dataset)
            iterator._advisor_loader = _Loader(data, batch, batches, loader.num_workers)

        def __next__(iterator: Any) -> Any:
            began = perf_counter()
            batch = take(iterator)
            self.fetched_s += perf_counter() - began
            loader = getattr(iterator, "_advisor_loader", None)
            if self._feeding is None and loader is not None:
                self._batches[loader] += 1
            if self._feeding in (None, loader):
                self._live = ref(iterator)
            return batch

        kind.__init__, kind.__next__ = __init__, __next__

    def forget_batches(self) -> None:
        """Count batches from now on: some of those before fed no training."""
        self._batches.clear()

    def data(self, steps: int) -> dict[str, int | None]:
        """``batch``, examples a step, ``steps_per_epoch`` and ``loader_workers``, None if unknown.

        By the batches of `steps` since `forget_batches`.
        """
        if not self._batches:
            return {"batch": None, "steps_per_epoch": None, "loader_workers": 0}
        self._feeding, taken = self._batches.most_common(1)[0]
        # A loader that is read ahead gives one batch more or less than was trained on.
        a_step = max(1, round(taken / steps)) if taken >= steps - 1 else taken / steps
        _, batch, batches, self.loader_workers = self._feeding
        return {
            "batch": None if batch is None else max(1, round(batch * a_step)),
            "steps_per_epoch": None if batches is None else max(1, round(batches / a_step)),
            "loader_workers": self.loader_workers,
        }

    def next_batch(self) -> object:
        """The next batch that the training would take; the end of an iteration, if none is left."""
        iterator = None if self._live is None else self._live()
        if iterator is None:
            raise StopIteration
        return next(iterator)


# An optimizer counts if it steps at least once in so many steps of the busiest.
_SELDOM = 64
# Rounds of all optimizers, before it is clear which ends a step.
_ROUNDS = 3

_EXPLICIT = -1


class ScriptHook(Feeds):
    """A user's script as a `Trainable`, and the connection to the process that measures it.

    Attributes:
        precision: In the words of a workload, as far as it was seen.
        graphed: Whether its steps are replays of a CUDA graph.
        capturing: Optimizers that step while a CUDA graph is captured; None while none is.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self.precision = "default"
        self.graphed = False
        self.capturing: list[object] | None = None
        self._settings = settings
        self._process: int | None = None  # the one that trains, once it has stepped
        self._optimizer_steps: Counter[int] = Counter()
        self._step_ender: int | None = None  # the optimizer that ends a step, once it is clear
        self._connection: Connection | None = None
        self._unattended = False
        self._routine: Routine | None = None
        self._part: Part = "step"
        self._state: TenantState | None = None
        self._verbs: Mapping[str, Verb] = {}

    def close(self) -> None:
        """Let the script run on by itself."""
        self._unattended = True

    def optimizer_stepped(self, optimizer: object) -> None:
        """Note that an optimizer stepped, or that its gradient scaler skipped the step."""
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
        """Note that the script itself ended a step."""
        if not self._not_for_us():
            self._step_ender = _EXPLICIT
            self._step_ended()

    def _not_for_us(self) -> bool:
        """True after the measurement, and in a fork of the process that is measured."""
        return self._unattended or self._process not in (None, os.getpid())

    def phase_ended(self) -> None:
        """Note that a phase of the step has ended, and another begins."""
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
        except OSError:  # the measurement has ended
            self._unattended = True
            return
        self._connection, self._process = Connection(ours.detach()), os.getpid()
        module, _, function = self._settings["verbs"].partition(":")
        self._verbs = getattr(import_module(module), function)() | {"load": self._load}
        self._state = TenantState("cpu", self)
        self._send({"pid": os.getpid()})

    def _serve(self) -> None:
        """Answer requests until one needs training to go on."""
        while not self._unattended and self._routine is None:
            assert self._connection is not None
            try:
                request = json.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                self._unattended = True
                raise KeyboardInterrupt from None  # as if by Ctrl-C: the measurement has ended
            verb = self._verbs[request["verb"]]
            self._answer(partial(self._begin, verb, request["arguments"]))

    def _begin(self, verb: Verb, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = verb(state=self._state, **arguments)
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
            self._unattended = True

    def _load(self, state: TenantState, warm_steps: int = 5) -> Routine:
        """Train until a step is clear, then see `warmed`.

        Returns:
            Also ``versions``, ``device`` and ``found``: properties of the script as a workload.
        """
        import torch

        while self._step_ender is None:
            yield "step"
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        state.device = "cuda" if on_gpu else "cpu"
        self.forget_batches()
        answer = yield from warmed(state, warm_steps)
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and dynamo.counters["stats"]["unique_graphs"] > 0
        execution = "graph" if self.graphed else "compiled" if compiled else "eager"
        workload = {"precision": self.precision, "execution": execution}
        return answer | {
            "versions": versions(),
            "device": state.device,
            "found": self.data(warm_steps + 2) | workload,
        }


_REPORT_S = 0.2


class StepCounter(ScriptHook):
    """Counts steps in a file; of several ranks, only the first counts.

    It counts a step when the script enqueues it. On a GPU that is earlier than its end by up to a
    launch queue.
    """

    def __init__(self) -> None:
        super().__init__({})
        self._count = 0
        self._reported_at = 0.0
        ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK"))
        self._unattended = any(rank != "0" for rank in ranks)
        self._writer = ProgressWriter()

    def _step_ended(self) -> None:
        if self._process is None:
            self._process = os.getpid()
            self._writer.report(0, versions=versions())
        self._count += 1
        if monotonic() - self._reported_at >= _REPORT_S:
            self._reported_at = monotonic()
            self._report()

    def end(self) -> None:
        """Report the number of steps, at the end of the process that took them."""
        if self._process == os.getpid():
            self._report()

    def _report(self) -> None:
        import torch

        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        more = {"memory": memory(TenantState("cuda"))} if on_gpu else {}  # else CUDA would start
        self._writer.report(self._count, **more)
