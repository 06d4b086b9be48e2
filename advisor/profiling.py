"""``python -m advisor.profiling WORKLOAD... --out DIR``: measures workloads alone on a GPU.

With ``--from-numbers`` it measures nothing, and writes a profile of numbers that are known already.
"""

import sys
from collections.abc import Sequence

from advisor.measure.process.supervisor import supervised


def main(argv: Sequence[str]) -> int:
    """Profile what the words `argv` name, under a supervisor that cleans up; the exit code."""
    words = argv[: argv.index("--")] if "--" in argv else argv  # what follows is a script's
    what = "from_numbers" if "--from-numbers" in words else "profile_command"
    return supervised(f"advisor.measure.solo.{what}:run", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
