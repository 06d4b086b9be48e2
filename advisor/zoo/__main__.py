"""Trains a workload of the zoo as an ordinary script.

``python -m advisor.zoo [--device cuda|cpu] [--steps N] WORKLOAD``, where WORKLOAD is its name, or a
JSON object with its fields. ``-`` imports torch first, and then reads from standard input a line
with such an object, and with variables to set under ``environment``. Without steps, it trains until
it is ended.
"""

import itertools
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.catalogue import workload as workload_named
from advisor.workload.spec import Workload

_PRINTED_EVERY_S = 1.0


def main(argv: Sequence[str]) -> int:
    """Train until the steps are done, or until this process is ended; return the exit code."""
    options, workloads = {"--device": "cuda", "--steps": "0"}, list[str]()
    words = iter(argv)
    for word in words:
        if word in options:
            options[word] = next(words, "")
        else:
            workloads.append(word)
    device, steps = options["--device"], options["--steps"]
    if len(workloads) != 1 or device not in ("cuda", "cpu") or not steps.isdecimal():
        raise InvalidInput(
            f"{' '.join(argv)[:60]}: expected [--device cuda|cpu] [--steps N] and one WORKLOAD. "
            f"`advisor workloads` lists them."
        )

    import torch

    from advisor.zoo.task import build
    from advisor.zoo.vision import import_timm

    text = workloads[0]
    fields: dict[str, Any] = {}
    if text == "-":
        with suppress(Exception):  # a missing or broken package is reported where it is needed
            import_timm()
        text = sys.stdin.readline()
    try:
        fields = json.loads(text) if text[:1] == "{" else {}
        os.environ.update(fields.pop("environment", {}))
        workload = Workload(**fields) if fields else workload_named(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{text[:60]}: not a workload: {error}") from None
    step, pace = build(workload, device), _Pace(device)
    for done in range(1, int(steps) + 1) if int(steps) else itertools.count(1):
        step()
        pace.note(done)
    if device == "cuda":
        torch.cuda.synchronize()
    step.close()
    return 0


class _Pace:
    """Prints the steps that the device has done, about once a second, without waiting for it."""

    def __init__(self, device: str) -> None:
        self._on_gpu = device == "cuda"
        self._printed, self._printed_s = 0, perf_counter()
        self._marked, self._mark = 0, None

    def note(self, done: int) -> None:
        now_s = perf_counter()
        if not self._marked and now_s - self._printed_s >= _PRINTED_EVERY_S:
            self._marked, self._mark = done, self._event()
        if self._marked and (self._mark is None or self._mark.query()):
            pace_s = (now_s - self._printed_s) / (self._marked - self._printed)
            print(f"step {self._marked}, {pace_s:.6f} s/step", flush=True)
            self._printed, self._printed_s, self._marked = self._marked, now_s, 0

    def _event(self) -> Any:
        """A mark in the GPU's queue; None on a CPU, whose steps are done when they return."""
        if not self._on_gpu:
            return None
        import torch

        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return event


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
