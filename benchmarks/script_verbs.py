"""What a hook in a measured script is asked to do only here: to be gone for a while."""

from collections.abc import Mapping
from threading import Timer
from typing import Any

from advisor.measure.process.trainable import Routine
from advisor.measure.process.worker import TenantState, Verb
from advisor.measure.solo.profiling_verbs import profiling_verbs


def script_verbs() -> Mapping[str, Verb]:
    """The profiling verbs and `unhooked`."""
    return {**profiling_verbs(), "unhooked": unhooked}


def unhooked(state: TenantState, seconds: float) -> Routine:  # noqa: ARG001 - as all verbs
    """Take every hook out of torch, let the script train on, and put them back."""
    import torch
    from torch.optim.optimizer import _global_optimizer_post_hooks
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    hooks = dict(_global_optimizer_post_hooks)
    backward, taken = torch.autograd.backward, _BaseDataLoaderIter.__next__
    own: Any = taken.__closure__

    def put_back() -> None:
        torch.autograd.backward = backward
        _BaseDataLoaderIter.__next__ = taken  # type: ignore[method-assign]
        _global_optimizer_post_hooks.update(hooks)

    _global_optimizer_post_hooks.clear()
    torch.autograd.backward = backward.__wrapped__  # type: ignore[attr-defined]
    original = next(cell.cell_contents for cell in own if _is_original(cell.cell_contents))
    _BaseDataLoaderIter.__next__ = original  # type: ignore[method-assign]
    Timer(seconds, put_back).start()
    yield "step"
    return {}


def _is_original(found: object) -> bool:
    return getattr(found, "__qualname__", "") == "_BaseDataLoaderIter.__next__"
