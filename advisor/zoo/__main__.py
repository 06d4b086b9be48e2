"""Trains a workload of the zoo as an ordinary script: ``python -m advisor.zoo WORKLOAD``."""

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.catalogue import workload as workload_named
from advisor.workload.spec import Workload


def main(argv: Sequence[str]) -> int:
    """Train until the steps are done, or until this process is ended; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m advisor.zoo", description=__doc__)
    parser.add_argument("workload", help="its name, or a JSON object with its fields")
    parser.add_argument("--steps", type=int, help="training steps [until it is ended]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    asked = parser.parse_args(argv)
    workload = _workload(asked.workload)

    import torch

    from advisor.zoo.task import build

    step = build(workload, asked.device)
    for _ in range(asked.steps) if asked.steps else itertools.count():
        step()
    if asked.device == "cuda":
        torch.cuda.synchronize()
    step.close()
    return 0


def _workload(text: str) -> Workload:
    if not text.startswith("{"):
        return workload_named(text)
    try:
        return Workload(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{text[:60]}: not a workload: {error}") from None


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
