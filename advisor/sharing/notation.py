"""Parses the notation of sharings into values; `str` of a value gives the notation back."""

import re

from advisor.errors import InvalidInput
from advisor.sharing.modes import (
    Group,
    Hybrid,
    Instance,
    Mig,
    Mps,
    Naive,
    Part,
    PartitionSharing,
    Phases,
    Place,
    Serial,
    Sharing,
)

_PLAIN: dict[str, PartitionSharing] = {"serial": Serial(), "naive": Naive()}
_PROFILE = r"\d+g\.\d+gb(?:[+-][a-z.]+)?"
_JOBS = r"\[(?P<jobs>\d{1,4}(?:,\d{1,4})*)\]"
_INSTANCE = rf"(?P<profile>{_PROFILE})(?:@(?P<start>\d{{1,3}}))?"
_SETTINGS = r"(?:=[\d.,]+)?"
_SHARED = rf"{_JOBS}(?:/(?P<sharing>naive|mps{_SETTINGS}))?"

_LIMIT = r"\d{1,3}(?:\.\d+)?"
_MPS = re.compile(rf"mps(?:=(?P<limits>{_LIMIT}(?:,{_LIMIT})*))?")
_PLACED = re.compile(_INSTANCE)
_SLOT = re.compile(_INSTANCE + _SHARED)
_COMPUTE = re.compile(rf"(?:{_INSTANCE}/ci=)?(?P<slices>\d)c{_SHARED}")
_GROUP = re.compile(rf"(?P<sharing>[a-z]+{_SETTINGS}){_JOBS}")
# NVIDIA's name of naive sharing.
_TIME_SLICING = re.compile(r"\btime[-_ ]?slic(?:e[ds]?|ing)\b")
# The plus between places and parts, not that in "1g.18gb+me".
_NEXT = re.compile(r"\+(?=\d)")


def parse_sharing(text: str) -> Sharing:
    """The sharing that `text` names, in letters of any case; time slicing is naive sharing.

    Raises:
        InvalidInput: `text` has none of the forms in this package's docstring.
    """
    words = _TIME_SLICING.sub("naive", text.strip().lower())
    if "/priority" in words:
        raise InvalidInput(
            f"{text!r}: MPS client priorities were removed; use MPS limits, such as mps=100,43"
        )
    if ";" in words:
        return Phases(tuple(_group(part, text) for part in words.split(";")))
    if "[" in words:
        return _hybrid(words, text)
    mode, equals, rest = words.partition("=")
    if mode == "mig" and equals:
        return Mig(tuple(_instance(part, text) for part in rest.split(",")))
    return _whole(words, text)


def _whole(words: str, text: str) -> PartitionSharing:
    if plain := _PLAIN.get(words):
        return plain
    if match := _MPS.fullmatch(words):
        return Mps(tuple(map(float, match["limits"].split(","))) if match["limits"] else ())
    raise _refusal(text)


def _group(words: str, text: str) -> Group | Hybrid:
    if match := _GROUP.fullmatch(words):
        return Group(_numbers(match), _whole(match["sharing"], text))
    return _hybrid(words, text)


def _hybrid(words: str, text: str) -> Hybrid:
    places: list[Place] = []
    for word in _NEXT.split(words.removeprefix("mig=")):
        places = _with_next(places, word, text)
    return Hybrid(tuple(places))


def _with_next(places: list[Place], word: str, text: str) -> list[Place]:
    """`places` and one more, or with one more part in the last if `word` is a part."""
    if match := _SLOT.fullmatch(word):
        return [*places, Place(_instance_of(match), (_part(match, text),))]
    if not (match := _COMPUTE.fullmatch(word)):
        raise _refusal(text)
    part = _part(match, text)
    if match["profile"]:
        return [*places, Place(_instance_of(match), (part,))]
    if not places or places[-1].parts[0].slices is None:
        raise _refusal(text)
    last = places[-1]
    return [*places[:-1], Place(last.instance, (*last.parts, part))]


def _part(match: re.Match[str], text: str) -> Part:
    found = _whole(match["sharing"] or "naive", text)
    assert not isinstance(found, Serial), "the expression allows no such word"
    slices = match.groupdict().get("slices")
    return Part(_numbers(match), found, None if slices is None else int(slices))


def _instance(words: str, text: str) -> Instance:
    match = _PLACED.fullmatch(words)
    if match is None:
        raise _refusal(text)
    return _instance_of(match)


def _instance_of(match: re.Match[str]) -> Instance:
    start = match["start"]
    return Instance(match["profile"], None if start is None else int(start))


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(map(int, match["jobs"].split(",")))


def _slip(text: str) -> str:
    """What is likely wrong with `text`, in a sentence; empty where nothing is likely."""
    words = text.strip().lower()
    mode, equals, rest = words.partition("=")
    if mode == "mps" and "%" in rest:
        return f" Limits have no % sign: {words.replace('%', '')}."
    parts = rest.split(",") if mode == "mig" and equals and not set("[;") & set(rest) else []
    if wrong := [each for each in parts if not _PLACED.fullmatch(each)]:
        return f" {wrong[0]!r} is no instance, such as 3g.20gb or 3g.20gb@4."
    if (match := _GROUP.fullmatch(words)) is not None:
        return f" One group alone is all jobs, {match['sharing']}; groups are joined by semicolons."
    return ""


def _refusal(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text!r} is not a sharing.{_slip(text)} "
        f"Use serial, naive, mps, mps=43,57 (limits in per cent, one a job), "
        f"mig=3g.71gb,4g.71gb (an instance a job, with @start where it matters), "
        f"mig=4g.71gb[1]+3g.71gb[2,3]/mps=50,50 "
        f"(numbers of the jobs on each instance, and how they share it), "
        f"mig=7g.141gb/ci=3c[1]+4c[2] (compute instances) or naive[1,2];mps[3] (one group of jobs "
        f"after another)"
    )
