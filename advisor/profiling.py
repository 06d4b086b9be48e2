"""``python -m advisor.profiling WORKLOAD... --out DIR``: measures workloads alone on a GPU."""

import sys
from collections.abc import Sequence

from advisor.measure.process.supervisor import supervised


def main(argv: Sequence[str]) -> int:
    """Profile what the words `argv` name, under a supervisor that cleans up; the exit code."""
    return supervised("advisor.measure.solo.profile_command:run", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
