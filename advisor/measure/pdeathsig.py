"""Makes a process end with its parent: the kernel signals it when the parent dies in any way.

Run as a script, it ties itself to its parent and then becomes the command in its arguments.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send `how` to this process when its parent dies.

    Children do not inherit it. A parent that died before the call is not noticed.
    """
    set_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    if ctypes.CDLL(None, use_errno=True).prctl(set_signal, int(how), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "a process could not be tied to its parent")


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """The words of a command that runs `command`, and that SIGTERM reaches when its parent dies."""
    return [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), *command]


if __name__ == "__main__":
    die_with_parent(signal.SIGTERM)
    if os.getppid() == int(sys.argv[1]):  # or it died before
        os.execvp(sys.argv[2], sys.argv[2:])
