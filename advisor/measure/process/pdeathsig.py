"""Ties a process to its parent: when the parent dies, however it dies, the kernel ends it too.

Run as a script, ties itself and then becomes the command it was given.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

_LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send `how` to this process when its parent dies.

    Not inherited by children. Does not see a parent that died before the call.
    """
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(how), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def leashed(command: list[str]) -> list[str]:
    """The words of a command that runs `command` and dies, by SIGTERM, with its parent."""
    return [sys.executable, "-I", str(Path(__file__).resolve()), *command]


if __name__ == "__main__":
    die_with_parent(signal.SIGTERM)
    os.execvp(sys.argv[1], sys.argv[1:])
