"""Start the processes of a measurement that run code of this package; no user starts them.

``inner`` is the one under the supervisor of a command; ``sweep`` sweeps once both are gone, however
they end; ``serve`` answers requests.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from time import sleep

from advisor.measure.inside import VARIABLE
from advisor.measure.process import run_inner, sweep


def main(argv: Sequence[str]) -> int:
    """Be the process that `argv` describes; return the exit code."""
    what, words = argv[0], argv[1:]
    if what == "inner":
        return run_inner(*words)
    if what == "sweep":
        sys.stdin.read()  # until both processes have ended
        sleep(0.5)  # the kernel closes the files of a killed process in turn, locks perhaps last
        sweep()
        return 0
    from advisor.measure.inside.program import serve

    module, _, name = words[0].partition(":")
    address = json.loads(os.environ[VARIABLE])["address"]
    serve(address, getattr(import_module(module), name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
