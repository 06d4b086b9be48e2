"""Where torch tells a script's hook of what happens: optimizers, backward passes, graphs, loaders.

Steps are found by torch's own global hook (`register_optimizer_step_post_hook`,
https://github.com/pytorch/pytorch/issues/88446), which is not called where a gradient scaler skips
a step, nor where a CUDA graph replays one: so these two are wrapped.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from advisor.measure.process.script_feeds import timed_fetches
from advisor.measure.process.script_folder import unlinked

if TYPE_CHECKING:
    from advisor.measure.process.script_hook import ScriptHook


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
