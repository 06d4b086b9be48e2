"""What a hook in a measured script is asked to do only here: to tell how long it takes itself."""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from advisor.measure.process.tenant_verbs import run
from advisor.measure.process.trainable import Routine
from advisor.measure.process.worker import TenantState, Verb
from advisor.measure.solo.profiling_verbs import profiling_verbs

# Where torch enters the hook (`advisor.measure.process.script_patches`).
_ENTRIES = ("optimizer_stepped", "phase_ended")


def script_verbs() -> Mapping[str, Verb]:
    """The profiling verbs and `timed_run`."""
    return {**profiling_verbs(), "timed_run": timed_run}


def timed_run(state: TenantState, start_at: float, stop_at: float) -> Routine:
    """As `run`; its answer has ``in_hook_s`` too: seconds of the script's thread in the hook."""
    hook: Any = state.trainable
    in_hook_s = 0.0

    def counted(method: Callable[..., None]) -> Callable[..., None]:
        def entered(*arguments: object) -> None:
            nonlocal in_hook_s
            began = perf_counter()
            method(*arguments)
            in_hook_s += perf_counter() - began

        return entered

    for name in _ENTRIES:
        setattr(hook, name, counted(getattr(hook, name)))
    try:
        answer = yield from run(state, start_at, stop_at)
    finally:
        for name in _ENTRIES:
            delattr(hook, name)
    return answer | {"in_hook_s": in_hook_s}
