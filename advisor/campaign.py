"""``python -m advisor.campaign PLAN.toml --devices 0-7 --out DIR``: measures many mixes.

On all GPUs of a host, or of a Ray cluster, out of one queue.
"""

import sys
from collections.abc import Sequence

from advisor.measure.process.supervisor import supervised


def main(argv: Sequence[str]) -> int:
    """Do the campaign that the words `argv` name, under a supervisor; the exit code."""
    return supervised("advisor.measure.campaign.campaign_command:run", argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
