"""Sentences in the words of the page, which has fields where the command has options."""

import re
from collections.abc import Callable
from string import punctuation

from advisor.plan.objectives import OBJECTIVES


def _goal(option: re.Match[str]) -> str:
    goal = next((each.choice for each in OBJECTIVES.values() if each.name == option[1]), option[1])
    return f"the goal “{goal}”"


# What the page calls an option; the first that fits counts. Options are names that do not change.
_FIELDS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"`advisor profile --from-numbers[^`]*`(?: with --[a-z-]+)?", "“Add your own job”"),
    (r"`advisor recommend --gpus [N\d]+`", "“Several GPUs”"),
    (r"`NAME@EPOCHS`", "the column “epochs”"),
    (r"--objective (\w[\w-]*)", _goal),
    (r"--memory-margin", "“Memory to keep free”"),
    (r"--max-slowdown", "“Max slowdown”"),
    (r"--running(?: JOB,JOB)?", "“Jobs that run already”"),
    (r"--sharing", "“They share the GPU by”"),
    (r"--power-cap", "“Power cap”"),
    (r"--(?:no-)?root", "“MIG and power caps may be set”"),
    (r"--steps", "“Steps an epoch”"),
)
_OPTION = r"--[a-z][a-z-]+"
_ASIDE = re.compile(rf"\s*\({_OPTION}\)|,? by `{_OPTION}`")
_COMMAND = re.compile(r"`[^`]+`")
_LEFT = re.compile(rf"(?<![\w-]){_OPTION}")
_BETWEEN = re.compile(r"(?<=[.!?])\s+(?=[A-Z`“-])")

_LITERAL = str.maketrans({mark: f"\\{mark}" for mark in punctuation})
# The page makes links of URLs, "www." and addresses, unless an invisible word joiner is in them.
_STARTS_OF_LINKS = {
    ":\\/": ":\u2060\\/",
    "w\\.": "w\u2060\\.",
    "W\\.": "W\u2060\\.",
    "\\@": "\u2060\\@",
}


def plain(text: str) -> str:
    """Return `text` in the page's words, so that Markdown shows it as it is.

    Names in it come from files and links.
    """
    literal = in_page_words(text).translate(_LITERAL)
    for start, broken in _STARTS_OF_LINKS.items():
        literal = literal.replace(start, broken)
    return literal


def in_page_words(text: str) -> str:
    """Return `text` with the names of the page's fields instead of options of the command.

    Sentences about options that the page lacks are left out. Whole commands in backticks stay: they
    measure something on another machine.
    """
    text = _ASIDE.sub("", text)
    for option, field in _FIELDS:
        text = re.sub(option, field, text)
    sentences = _BETWEEN.split(text)
    kept = [each for each in sentences if not _LEFT.search(_COMMAND.sub("", each))]
    return " ".join(kept)
