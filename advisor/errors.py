"""Every error a user can cause or meet, with the exit code of the command that met it.

* AdvisorError             exit 1   something failed
  + InvalidInput           exit 2   wrong use, or a file or number that is not valid
    - UnknownName          exit 2   no such GPU, workload or profile; lists the near ones
  + NothingFits            exit 3   no plan fits, or the one asked for does not fit on that GPU
  + GpuUnavailable         exit 4   no driver, no permission, or somebody else holds the GPU
  + OutsideInterval        exit 5   measured, and not where the prediction said

A message says what, where, and what to do next. Library code raises; `main` alone prints.
"""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

# Of names that are near: how many at most, how alike at least, and how much less than the first.
_MOST_NEAR, _LEAST_ALIKE, _LESS_ALIKE = 4, 0.4, 0.08


class AdvisorError(Exception):
    exit_code = 1


class AdvisorWarning(UserWarning):
    """The advisor skipped something and answers without it; `main` prints it on stderr."""


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
        near = _near(name.lower(), sorted(known))
        hint = f" Near: {', '.join(near)}." if near else ""
        super().__init__(f"no {kind} is called {name!r}.{hint} {remedy}")


def _near(name: str, known: Sequence[str]) -> list[str]:
    """Those of `known` that begin with `name`; else the most alike, and others about as alike."""
    if begun := [each for each in known if name and each.startswith(name)]:
        return begun[:_MOST_NEAR]
    near = get_close_matches(name, known, _MOST_NEAR, _LEAST_ALIKE)
    alike = [SequenceMatcher(None, each, name).ratio() for each in near]
    return [each for each, how in zip(near, alike, strict=True) if how >= alike[0] - _LESS_ALIKE]


class NothingFits(AdvisorError):
    exit_code = 3


class GpuUnavailable(AdvisorError):
    exit_code = 4


class OutsideInterval(AdvisorError):
    exit_code = 5
