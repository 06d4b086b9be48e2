"""Every error a user can cause or meet, with the exit code of the command that met it.

* AdvisorError             exit 1   something failed
 + InvalidInput           exit 2   wrong use, or a file or number that is not valid
   - UnknownName          exit 2   no such GPU, workload or profile; lists the near ones
 + NothingFits            exit 3   no plan fits, or the chosen one does not fit on that GPU
 + GpuUnavailable         exit 4   no driver, no permission, or the GPU is in use
 + OutsideInterval        exit 5   measured outside the predicted interval

A message names what failed, where, and how to fix it. Library code raises; `main` alone prints.
"""

import re
import sys
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from importlib.util import find_spec
from typing import Literal

_MOST_QUOTED = 60

# Near names: how many at most, how similar at least, and how much less than the first.
_MOST_NEAR, _LEAST_ALIKE, _LESS_ALIKE = 4, 0.4, 0.08


class AdvisorError(Exception):
    """An error that a user can cause or meet; its `exit_code` is that of the command."""

    exit_code = 1


class InvalidInput(AdvisorError):
    exit_code = 2


class UnknownName(InvalidInput):
    """A name that is unknown.

    Args:
        kind: Kind of the thing, e.g. ``"GPU"``.
        name: The wrong name.
        known: All right names; the near ones are proposed.
        remedy: Remedy if none of the near names is meant.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str) -> None:
        near = ", ".join(near_names(name, known))
        hint = f" Did you mean {near}?" if near else ""
        super().__init__(f"{kind} {name!r} not found.{hint} {remedy}")


def check_choice(kind: str, value: object, choices: Iterable[str]) -> None:
    """Check that `value`, the name of a `kind` of thing, is among `choices`.

    Raises:
        UnknownName: It is not; the message lists all choices.
    """
    if value not in (names := tuple(choices)):
        raise UnknownName(kind, str(value)[:_MOST_QUOTED], names, f"Use one of {', '.join(names)}.")


def near_names(word: str, choices: Iterable[str], alike: float = _LEAST_ALIKE) -> list[str]:
    """Return the `choices` that begin with `word`; else those about as near as the nearest.

    Their similarity is at least `alike`, 0..1 (`difflib.SequenceMatcher.ratio`).
    """
    word, names = word.lower(), sorted(choices)
    if beginning := [each for each in names if word and each.startswith(word)]:
        return beginning[:_MOST_NEAR]
    near = get_close_matches(word, names, _MOST_NEAR, alike)
    ratios = [SequenceMatcher(None, each, word).ratio() for each in near]
    return [
        each for each, ratio in zip(near, ratios, strict=True) if ratio >= ratios[0] - _LESS_ALIKE
    ]


Extra = Literal["page", "fit", "profile", "ray", "mlflow", "metrics", "loader", "browser"]


def require_extra(what: str, extra: Extra, *modules: str) -> None:
    """Check that the `modules` that `what` imports are installed; `extra` contains them.

    Raises:
       AdvisorError: One is not installed.
    """
    if missing := next((name for name in modules if find_spec(name) is None), None):
        if extra == "profile" and missing != "torch":  # the extra would replace that torch
            remedy = "Install advisor with that extra into an environment without torch."
        elif find_spec("pip") is None:
            remedy = f"Run: uv pip install --python {sys.executable} 'gpu-advisor[{extra}]'"
        else:
            remedy = f"Run: {sys.executable} -m pip install 'gpu-advisor[{extra}]'"
        raise AdvisorError(
            f"{what} needs the extra '{extra}': advisor's own environment lacks {missing}. {remedy}"
        )


class NothingFits(AdvisorError):
    exit_code = 3


class GpuUnavailable(AdvisorError):
    exit_code = 4


class OutsideInterval(AdvisorError):
    exit_code = 5


# Letters whose names begin with a vowel: an A100, an H200, an RTX 4090; but a B200, a GH200.
_SPOKEN_WITH_VOWEL = "aefhilmnorsx"


def counted(number: float, noun: str) -> str:
    """Return a number with its noun, e.g. ``"1 job"``, ``"1,200 slices"``, ``"0.5 epochs"``."""
    amount = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    if number == 1:
        return f"{amount} {noun}"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{amount} {noun[:-1]}ies"
    return f"{amount} {noun}{'es' if noun.endswith(('s', 'x', 'sh')) else 's'}"


def in_percent(share: float, digits: int = 0) -> str:
    """Return a `share` of 1 in per cent, with `digits` after the point."""
    return f"{100 * share:.{digits}f} %"


def shortened(text: str) -> str:
    """Return `text` in quotes for a message, cut where it is long."""
    return repr(text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}...")


def is_or_are(number: int) -> str:
    """Return the verb for so many."""
    return "is" if number == 1 else "are"


def with_article(gpu: str) -> str:
    """Return `gpu`, which is read out letter by letter, after its article: ``"an h200-141gb"``."""
    return f"{'an' if gpu[:1].lower() in _SPOKEN_WITH_VOWEL else 'a'} {gpu}"


# Control characters (ESC and BEL among them), line ends of Unicode, what turns the direction of
# writing, what takes no place, and halves of characters that no encoding has.
_OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def clean(text: str, *, keep: str = "") -> str:
    r"""Replace each character of `text` that is not text by an escape such as ``\x1b``.

    Characters in `keep` stay, e.g. line ends in a text of several lines.
    """

    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        return character if character in keep else character.encode("unicode_escape").decode()

    return _OBEYED.sub(escaped, text)
