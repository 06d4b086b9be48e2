"""``python -m advisor.confirm --without-mig``: measures the cases of published studies here."""

import sys
from collections.abc import Sequence

from advisor.measure.process.supervisor import supervised


def main(argv: Sequence[str]) -> int:
    """Do what the words `argv` ask for, under a supervisor; the exit code."""
    return supervised("advisor.measure.campaign.confirm_command:run", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
