"""Write `accuracy.json` again: `python -m tests.accuracy`, in a minute; `--all`, in half an hour.

Write it again only where predictions are meant to change.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.accuracy.scoring import figures_of, read, write


def main() -> None:
    """Score three families, or all, and store the figures."""
    which = "all families" if "--all" in sys.argv else "three families"
    with TemporaryDirectory() as folder:
        write(read() | {which: figures_of(Path(folder), whole="--all" in sys.argv)})


if __name__ == "__main__":
    main()
