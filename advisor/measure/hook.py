"""The hook in a user's training loop: it finds training steps, and serves requests between them.

`attach` runs right after the script has imported torch. Torch calls
`ScriptHook.optimizer_stepped` after each step of an optimizer. The process that takes the first one
connects to the process that started the script, and from then on trains only as it is asked to.
CUDA is not touched before that.

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
from functools import partial, wraps
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from advisor.measure.script import ProgressWriter, guard_links, unlinked
from advisor.measure.tenant_verbs import memory, warmed
from advisor.measure.worker import Part, Routine, TenantState, Verb, attempted, versions


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


def patch_torch(hook: "ScriptHook", folder: Path) -> None:
    """Make torch, just imported, tell `hook` of what the script does.

    Args:
        hook: Of this process.
        folder: In which the script must not write through links.
    """
    import torch
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    timed_fetches(hook.feeds, _BaseDataLoaderIter)
    tell_of_steps(hook)
    torch.autograd.backward = _between_cuts(hook, torch.autograd.backward)
    torch.amp.autocast_mode.autocast.__enter__ = _noted(  # type: ignore[method-assign]
        hook, torch.amp.autocast_mode.autocast.__enter__
    )
    torch.save = torch.serialization.save = _guarded(torch.save, folder)


def tell_of_steps(hook: "ScriptHook") -> None:
    """Make torch, just imported, tell `hook` of each step of an optimizer."""
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
    _told_of_graphs(hook)


def _told_of_graphs(hook: "ScriptHook") -> None:
    """Optimizer steps that are captured are no steps; each replay of them is."""
    import torch

    graph_class: Any = torch.cuda.CUDAGraph
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


def _between_cuts(hook: "ScriptHook", backward: Callable[..., Any]) -> Callable[..., Any]:
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


def _noted(hook: "ScriptHook", enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enters autocast; the first that is for a GPU says in which precision the script trains."""
    words = {"torch.float16": "fp16", "torch.bfloat16": "amp"}

    @wraps(enter)
    def entered(self: Any) -> Any:
        if hook.precision == "default" and self._enabled:
            hook.precision = words.get(str(self.fast_dtype), "default")
        return enter(self)

    return entered


def _guarded(save: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Saves; torch opens the file by itself, where no audit sees it."""

    @wraps(save)
    def saved(obj: object, f: object, *arguments: Any, **named: Any) -> Any:
        unlinked(f, folder, keep=False)
        return save(obj, f, *arguments, **named)

    return saved


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
            _hook = counting()
            return
        if "aside" in settings:
            from advisor.measure.tenant_verbs import begin

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


_MEASURE = Path(__file__).resolve().parent


def hook_variables(
    folder: Path, settings: Mapping[str, object], pythonpath: str | None
) -> dict[str, str]:
    """Variables by which a script's hook attaches to torch, after making its folder.

    Args:
        folder: Made here.
        settings: For the hook; see `advisor.measure.hook.VARIABLE`.
        pythonpath: The script's own PYTHONPATH.
    """
    folder.mkdir(exist_ok=True)
    for name, target in (
        ("sitecustomize.py", _MEASURE / "sitecustomize.py"),
        ("advisor", _MEASURE.parent),
    ):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    paths = ":".join(filter(None, [str(folder), pythonpath]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths}


_REPORT_S = 0.2


def counting() -> "StepCounter":
    """A counter that torch, just imported, tells of steps until this process ends."""
    counter = StepCounter()
    tell_of_steps(counter)
    atexit.register(counter.ended)
    return counter


class StepCounter(ScriptHook):
    """Counts steps for whoever watches; of several ranks, the first alone."""

    def __init__(self) -> None:
        super().__init__({})
        self._count = 0
        self._said_at = 0.0
        ranks = (os.environ.get(name, "0") for name in ("RANK", "LOCAL_RANK"))
        self._unattended = any(rank != "0" for rank in ranks)
        self._writer = ProgressWriter()

    def _step_ended(self) -> None:
        if self._process is None:
            self._process = os.getpid()
            self._writer.report(0, versions=versions())
        self._count += 1
        if monotonic() - self._said_at >= _REPORT_S:
            self._said_at = monotonic()
            self._writer.report(self._count, **_memory())

    def ended(self) -> None:
        """Say how many there were, at the end of the process that took them."""
        if self._process == os.getpid():
            self._writer.report(self._count, **_memory())


def _memory() -> dict[str, Any]:
    """What torch holds on the GPU, without starting CUDA."""
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {"memory": memory(TenantState("cuda"))}
