"""The hook in a user's training loop that is run and not measured: it only counts steps.

They are counted where the script enqueues them; on a GPU that is ahead of it by its launch queue.
"""

import atexit
import os
from time import monotonic
from typing import Any

from advisor.measure.process.progress_file import ProgressWriter
from advisor.measure.process.script_hook import ScriptHook
from advisor.measure.process.script_patches import tell_of_steps
from advisor.measure.process.tenant_verbs import memory
from advisor.measure.process.worker import TenantState, versions

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
