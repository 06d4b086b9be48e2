"""The standard streams as a command finds them: closed, full, or with few characters."""

import codecs
import os
import sys
from contextlib import suppress
from io import TextIOWrapper

# What stands for a character that the encoding of a stream has not; of the same width.
_PLAIN = str.maketrans("·█▁▂▃▄▅▆▇≤…×–—’“”", '.#__.-=+*<~x--\'""')  # noqa: RUF001 - these are meant
_ERRORS = "advisor-plain"


def ready() -> None:
    """Make the streams such that to write on them fails cleanly, or not at all.

    A closed one is opened, so that no file takes its number: what is written on stdout fails
    as it would have, and what is written on stderr is lost.
    """
    _open(0, "stdin", os.O_RDONLY, "r")
    _open(1, "stdout", os.O_RDONLY, "w")
    _open(2, "stderr", os.O_WRONLY, "w")
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def forget_stdout() -> None:
    """Lose what is still to be written on stdout, and all that follows: nobody can read it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _open(number: int, name: str, how: int, mode: str) -> None:
    if getattr(sys, name) is not None:
        return
    nowhere = os.open(os.devnull, how)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(each if each.isascii() else "?" for each in found), error.end
