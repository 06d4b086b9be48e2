"""Every error a user can cause or meet, with the exit code of the command that met it.

* AdvisorError             exit 1   something failed
  + InvalidInput           exit 2   wrong use, or a file or number that cannot be true
    - UnknownName          exit 2   no such GPU, workload or profile; lists the near ones
  + NothingFits            exit 3   no plan fits, or the one asked for is impossible on that GPU
  + GpuUnavailable         exit 4   no driver, no permission, or somebody else holds the GPU
  + OutsideInterval        exit 5   measured, and not where the prediction said

A message says what, where, and what to do next. Library code raises; `main` alone prints.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class AdvisorError(Exception):
    exit_code = 1


class InvalidInput(AdvisorError):
    exit_code = 2


class UnknownName(InvalidInput):
    """A name that is not known.

    Args:
        kind: What the name should have named, e.g. ``"GPU"``.
        name: The name as given.
        known: Every name that would have done.
        remedy: What to do where none of the near names is meant.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str) -> None:
        near = get_close_matches(name.lower(), sorted(known), n=4, cutoff=0.4)
        hint = f" Near: {', '.join(near)}." if near else ""
        super().__init__(f"no {kind} is called {name!r}.{hint} {remedy}")


class NothingFits(AdvisorError):
    exit_code = 3


class GpuUnavailable(AdvisorError):
    exit_code = 4


class OutsideInterval(AdvisorError):
    exit_code = 5
