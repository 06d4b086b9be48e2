"""``python -m advisor.calibration --device 0``: measures what is the machine's own."""

import sys
from collections.abc import Sequence

from advisor.measure.process.supervisor import supervised


def main(argv: Sequence[str]) -> int:
    """Calibrate as the words `argv` ask, under a supervisor that cleans up; the exit code."""
    return supervised("advisor.measure.calibrate_command:run", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
