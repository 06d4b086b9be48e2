"""Says in a file how many steps a script has taken, as the script itself counts."""

import os
from pathlib import Path

_FILE = Path(os.environ.get("COUNT", os.devnull))
_steps = 0


def count():
    global _steps  # noqa: PLW0603
    _steps += 1
    _FILE.write_text(str(_steps))
