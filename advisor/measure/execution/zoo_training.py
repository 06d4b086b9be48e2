"""Trains a workload of the zoo as a job of its own, which counts its steps for whoever watches.

python -m advisor.measure.execution.zoo_training NAME [--steps N] [--device cuda]
"""

import argparse
import os
import sys
from collections.abc import Sequence
from time import monotonic
from typing import cast

from advisor.errors import AdvisorError
from advisor.measure.process.progress_file import ProgressWriter
from advisor.measure.process.tenant_verbs import GpuQueue, load, memory, synchronise
from advisor.measure.process.trainable import PhasedStep, trained
from advisor.measure.process.worker import TenantState, one_thread_versions
from advisor.measure.shared.strict_record import workload_of
from advisor.workload.documents import parse_json
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
    begun, said_at = 0, monotonic()
    queue = GpuQueue(_QUEUED) if state.device == "cuda" else None
    while steps is None or begun < steps:
        step()
        begun += 1
        if queue is not None:
            queue.mark()
        if monotonic() - said_at >= _REPORT_S:
            writer.report(begun - (queue.ahead() if queue else 0))
            said_at = monotonic()
    synchronise(state)
    writer.report(begun, memory=memory(state))


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
