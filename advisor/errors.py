"""Every error a user can cause or meet, with the exit code of the command that met it.

* AdvisorError             exit 1   something failed
  + InvalidInput           exit 2   wrong use, or a file or number that is not valid
    - UnknownName          exit 2   no such GPU, workload or profile; lists the near ones
  + NothingFits            exit 3   no plan fits, or the one asked for does not fit on that GPU
  + GpuUnavailable         exit 4   no driver, no permission, or somebody else holds the GPU
  + OutsideInterval        exit 5   measured, and not where the prediction said

A message says what, where, and what to do next. Library code raises; `main` alone prints.
"""

import re
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


_SIBILANTS = ("s", "x", "sh")
_VOWELS = "aeiou"
# Letters whose names begin with a vowel: an A100, an H200, an NVIDIA H200, an RTX
# 4090; but a B200, a GH200, a Tesla V100.
_SPOKEN_WITH_VOWEL = "aefhilmnorsx"


def counted(number: float, noun: str) -> str:
    """So many of `noun`, e.g. ``"1 job"``, ``"1,200 memory slices"``, ``"0.5 epochs"``.

    Args:
        number: How many.
        noun: In the singular; of several words the last is counted.
    """
    said = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{said} {noun if number == 1 else _plural(noun)}"


def is_or_are(number: int) -> str:
    """The verb for so many."""
    return "is" if number == 1 else "are"


def with_article(gpu: str) -> str:
    """`gpu`, a name that is read out letter by letter, after its article: ``"an h200-141gb"``."""
    return f"{'an' if gpu[:1].lower() in _SPOKEN_WITH_VOWEL else 'a'} {gpu}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in _VOWELS:
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(_SIBILANTS) else "s")


# Control characters (ESC and BEL among them), line ends of Unicode, what turns the direction of
# writing, what takes no place, and halves of characters that no encoding has.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str, *, keep: str = "") -> str:
    r"""`text` with an escape such as ``\x1b`` in place of each character that is no writing.

    Args:
        text: From anywhere: a file, a folder's name, a driver.
        keep: Characters that stay all the same, e.g. line ends in a text of several lines.
    """

    def escaped(match: re.Match[str]) -> str:
        found = match[0]
        return found if found in keep else found.encode("unicode_escape").decode()

    return _OBEYED.sub(escaped, text)
