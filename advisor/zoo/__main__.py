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
    words = parser.parse_args(argv)
    text = words.workload
    try:
        workload = Workload(**json.loads(text)) if text[:1] == "{" else workload_named(text)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{text[:60]}: not a workload: {error}") from None

    import torch

    from advisor.zoo.task import build

    step = build(workload, words.device)
    for _ in range(words.steps) if words.steps else itertools.count():
        step()
    if words.device == "cuda":
        torch.cuda.synchronize()
    step.close()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except AdvisorError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(error.exit_code)
