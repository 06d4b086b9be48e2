"""What a command prints for a newcomer: shipped data alone, in a terminal of a given width."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from advisor.prediction import engine
from research.files import ROOT

_HIDDEN = {"ADVISOR_PROFILES", "ADVISOR_MODELS", "ADVISOR_GPU"}


def newcomers_environment(data: str) -> dict[str, str]:
    """This process's variables, but that what its user measured or refitted is left out.

    Args:
        data: An empty folder, for what is measured meanwhile.
    """
    environment = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
    return environment | {"XDG_DATA_HOME": data, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}


def terminal_output(words: Sequence[str], columns: int, folder: Path = ROOT) -> tuple[str, ...]:
    """The lines that `advisor` prints when `words` follow it, run in `folder`.

    What a user measured or refitted on this machine is left out.

    Raises:
        subprocess.CalledProcessError: The exit code is not 0.
    """
    engine.load()  # else the first command on this machine would say that it compiles
    with TemporaryDirectory() as nobody:
        shown = subprocess.run(
            [sys.executable, "-c", "from advisor.cli import main; main()", *words],
            env=newcomers_environment(nobody) | {"COLUMNS": str(columns)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        ).stdout
    return tuple(line.rstrip() for line in shown.strip("\n").splitlines())
