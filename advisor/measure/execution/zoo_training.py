"""Trains a workload of the zoo as a job of its own, which counts its steps for whoever watches.

python -m advisor.measure.execution.zoo_training NAME [--steps N] [--device cuda]
"""

import argparse
import os
import sys
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, cast

from advisor.errors import AdvisorError
from advisor.measure.process.in_place import ProgressWriter
from advisor.measure.process.tenant_verbs import load, memory, synchronise
from advisor.measure.process.trainable import PhasedStep, trained
from advisor.measure.process.worker import TenantState, one_thread_versions
from advisor.measure.shared.strict_record import workload_of
from advisor.workload.files import parse_json
from advisor.workload.spec import Workload

# How often steps are counted for others to see.
_REPORT_S = 0.2
# Steps in the queue of a GPU at most, so that what is counted as done lags by little.
_QUEUED = 256


def main(argv: Sequence[str]) -> int:
    """Train until the steps are done, or for ever; the exit code."""
    asked = _parser().parse_args(argv)
    if isinstance(named := asked.workload, str) and named.startswith("{"):
        named = parse_json(named, "workload")
    train(workload_of(named, "workload"), asked.device, asked.steps)
    return 0


def train(workload: Workload, device: str, steps: int | None) -> None:
    """Do so many steps of `workload`; None: until this process is ended."""
    state = TenantState("cpu" if device == "cpu" else "cuda")
    writer = ProgressWriter()
    found = one_thread_versions()
    loaded = trained(load(state, workload), lambda: state.trainable)
    step = cast("PhasedStep", state.trainable)
    writer.report(0, versions=found, sms=loaded["sms"], memory=loaded["memory"])
    count, said_at = _Count(state.device), monotonic()
    while steps is None or count.begun < steps:
        step()
        count.mark()
        if monotonic() - said_at >= _REPORT_S:
            writer.report(count.done())
            said_at = monotonic()
    synchronise(state)
    writer.report(count.begun, memory=memory(state))


class _Count:
    """Steps that the device has done, of those that were begun."""

    def __init__(self, device: str) -> None:
        self.begun = 0
        self._on_gpu = device == "cuda"
        self._queued: deque[Any] = deque()

    def mark(self) -> None:
        self.begun += 1
        if self._on_gpu:
            import torch

            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            self._queued.append(event)
            if len(self._queued) > _QUEUED:
                self._queued.popleft().synchronize()

    def done(self) -> int:
        while self._queued and self._queued[0].query():
            self._queued.popleft()
        return self.begun - len(self._queued)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m advisor.measure.execution.zoo_training")
    parser.add_argument("workload", help="its name, or all of it as JSON")
    parser.add_argument("--steps", type=int, help="how many [until it is ended]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
