"""The parameters of a link to the page: which are known, and which values fit."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf

from advisor.errors import InvalidInput
from advisor.files.units import MOST_W
from advisor.plan import MOST_GPUS
from advisor.sharing import parse_sharing

MOST_FREE = 99.0
"""Per cent of memory that may stay free at most."""

AS_NOW = "as now on GPU "
"""Before the index of a GPU of this machine, in place of a sharing."""


def _is_number(text: str, least: float, most: float, read: Callable[[str], float] = float) -> bool:
    try:
        return least <= read(text) <= most
    except ValueError:
        return False


def _is_sharing(text: str) -> bool:
    try:
        parse_sharing(text)
    except InvalidInput:
        return text.startswith(AS_NOW)
    return True


_PARAMETERS: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(
        ("root", "shared", "caps", "upper"),
        lambda text: text.lower() in ("true", "false"),  # as streamlit reads it
    ),
    "free": partial(_is_number, least=0.0, most=MOST_FREE),
    "cap": partial(_is_number, least=1.0, most=MOST_W),
    "max_slowdown": partial(_is_number, least=0.0, most=inf),
    "gpus": partial(_is_number, least=2, most=MOST_GPUS, read=int),
    "by": _is_sharing,
}
_SAID_ELSEWHERE = ("jobs", "plan")  # what shows the jobs and the plans says what is wrong with them


def misread(
    parameters: Mapping[str, Sequence[str]], choices: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """Return a sentence for each parameter of a link that is unknown, or whose value does not fit.

    Args:
        parameters: The values of each parameter.
        choices: The values of the parameters that stand in a list.
    """
    sentences = {}
    for key, values in parameters.items():
        listed = " and ".join(map(repr, values))
        fits = choices[key].__contains__ if key in choices else _PARAMETERS.get(key)
        if key in _SAID_ELSEWHERE:
            continue
        if fits is None:
            sentences[key] = f"{key}: the page has no such field, so {listed} has no effect."
        elif len(values) > 1 and key != "running":
            sentences[key] = f"{key}: expected one value, got {listed}. Choose one."
        elif not all(map(fits, values)):
            sentences[key] = f"{key}: {listed} does not fit. Choose another."
    return sentences
