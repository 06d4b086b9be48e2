"""Trains a workload of the zoo as an ordinary script: ``python -m advisor.zoo WORKLOAD``."""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence
from time import perf_counter

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.catalogue import workload as workload_named
from advisor.workload.spec import Workload

# Waiting for the GPU more often would slow a step that never waits for it.
_PRINTED_EVERY_S = 1.0


def main(argv: Sequence[str]) -> int:
    """Train until the steps are done, or until this process is ended; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m advisor.zoo", description=__doc__)
    parser.add_argument("workload", help="its name, or a JSON object with its fields")
    parser.add_argument("--steps", type=int, help="training steps [until it is ended]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    words = parser.parse_args(argv)
    text = words.workload
    try:
        workload = Workload(**json.loads(text)) if text[:1] == "{" else workload_named(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{text[:60]}: not a workload: {error}") from None

    import torch

    from advisor.zoo.task import build

    step = build(workload, words.device)
    on_gpu = words.device == "cuda"
    printed, printed_s = 0, perf_counter()
    for done in range(1, words.steps + 1) if words.steps else itertools.count(1):
        step()
        if perf_counter() - printed_s >= _PRINTED_EVERY_S:
            if on_gpu:
                torch.cuda.synchronize()
            now_s = perf_counter()
            pace_s = (now_s - printed_s) / (done - printed)
            print(f"step {done}, {pace_s:.6f} s/step", flush=True)
            printed, printed_s = done, now_s
    if on_gpu:
        torch.cuda.synchronize()
    step.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
