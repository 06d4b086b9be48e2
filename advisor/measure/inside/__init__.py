"""Code inside a measured program, found as `advisor_inside`: standard library and torch 2.1 alone.

Its modules import each other relatively. This one imports no torch: who measures needs it, too.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_OLDEST = (3, 10)

if sys.version_info < _OLDEST:
    here = ".".join(map(str, sys.version_info[:2]))
    raise ImportError(f"its Python is {here}, and advisor measures Python 3.10 or newer")

FOLDER = Path(__file__).resolve().parent

VARIABLE = "ADVISOR_HOOK"
"""Name of the variable with a hook's settings as JSON, of one of three kinds.

* ``address`` and ``folder``: steps are found, and requests answered between them;
* ``address`` and ``aside``: a thread answers requests, and steps are not looked for;
* ``count``: steps are counted, and no requests answered.
"""

PROGRESS = "ADVISOR_PROGRESS"
"""The variable with the file in which a job's process counts steps."""

# A record is written in place into a file of this size, which needs no room on a full disk.
RECORD_BYTES = 512

MARK = "advisor:"
"""Prefix of the name of a phase's marks in a trace."""

# Messages of CUDA's libraries when the device has no memory left and torch does not raise its own.
_NO_MEMORY = (
    "out of memory",
    "ALLOC_FAILED",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
)


def lacks_memory(printed: str) -> bool:
    """Return whether an error message means that the device has no memory left."""
    return any(sign in printed for sign in _NO_MEMORY)


def installed_version(package: str) -> "str | None":
    """Return the version of `package` without importing it; None if it is not installed here."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
