"""``python -m advisor.doctor``: says what on this machine spoils measuring or sharing."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """Look at this machine as the words `argv` ask; the exit code."""
    from advisor.measure.doctor.doctor_command import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
