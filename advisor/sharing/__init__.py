"""The ways in which jobs share one GPU, as values, and the words that name them.

``serial``, ``naive``, ``mps``, ``mps=43,57`` (limits in per cent, one for each job) and
``mig=3g.71gb,4g.71gb@0`` (an instance for each job, ``@start`` in memory slices if it matters).

These forms name jobs by their numbers from 1, in the order in which they were given:

* ``mig=4g.71gb@0[1]+3g.71gb@4[2,3]/mps=50,50``: several jobs on an instance, under ``/naive``
  (the default) or ``/mps``, with limits in per cent of its SMs, or ``/serial``: one after another;
* ``mig=7g.141gb@0/ci=3c[1]+4c[2]``: compute instances with SMs of their own and one memory
  (``mig=`` may be left out);
* ``naive[1,2];mps[3]``: one group of jobs after another, each with a sharing of its own;
* ``mps/2[3,1,2]``: a queue in this order, as ``mps/2`` is in the order in which they were given: at
  most two jobs at once, the next starts when one ends. It may be one of several groups.
"""

import re
from collections.abc import Sequence

from advisor.errors import InvalidInput, UnknownName, counted, shortened
from advisor.sharing.modes import (
    SHARED_MODES,
    Arrangement,
    Concurrent,
    Group,
    Hybrid,
    Instance,
    Mig,
    Mode,
    Mps,
    Naive,
    Part,
    PartitionSharing,
    Phases,
    Place,
    Queue,
    Serial,
    SharedPartition,
    Sharing,
    one_job_each,
    plain_group,
)

__all__ = [
    "SHARED_MODES",
    "Arrangement",
    "Concurrent",
    "Group",
    "Hybrid",
    "Instance",
    "Mig",
    "Mode",
    "Mps",
    "Naive",
    "Part",
    "PartitionSharing",
    "Phases",
    "Place",
    "Queue",
    "Serial",
    "SharedPartition",
    "Sharing",
    "one_job_each",
    "parse_sharing",
]

MODES = ("serial", "naive", "mps", "mig")
"""The words with which notations begin."""

_PLAIN: dict[str, PartitionSharing] = {"serial": Serial(), "naive": Naive()}
_PROFILE = r"\d+g\.\d+gb(?:[+-][a-z.]+)?"
_JOBS = r"\[(?P<jobs>\d{1,4}(?:,\d{1,4})*)\]"
_INSTANCE = rf"(?P<profile>{_PROFILE})(?:@(?P<start>\d{{1,3}}))?"
_SETTINGS = r"(?:=[\d.,]+)?"
_SHARED = rf"{_JOBS}(?:/(?P<sharing>serial|naive|mps{_SETTINGS}))?"

_LIMIT = r"\d{1,3}(?:\.\d+)?"
_MPS = re.compile(rf"mps(?:=(?P<limits>{_LIMIT}(?:,{_LIMIT})*))?")
_PLACED = re.compile(_INSTANCE)
_SLOT = re.compile(_INSTANCE + _SHARED)
_COMPUTE = re.compile(rf"(?:{_INSTANCE}/ci=)?(?P<slices>\d)c{_SHARED}")
_QUEUE = re.compile(rf"(?P<sharing>[a-z]+{_SETTINGS})/(?P<at_once>\d{{1,4}})")
_GROUP = re.compile(rf"(?P<sharing>[a-z]+{_SETTINGS}(?:/\d{{1,4}})?){_JOBS}")
# NVIDIA's name of naive sharing.
_TIME_SLICING = re.compile(r"\btime[-_ ]?slic(?:e[ds]?|ing)\b")
# The plus between places and parts, not that in "1g.18gb+me".
_NEXT = re.compile(r"\+(?=\d)")
# Spaces around signs, a % behind a number, and a colon or space for the = behind a mode.
_SPACE = re.compile(r"\s*([=,;+/@\[\]])\s*|(?<=\d)\s*%|(?<=^mps)[:\s]+(?=\d)|(?<=^mig)[:\s]+(?=\d)")
# A MIG profile without its memory.
_SHORT = re.compile(r"(?<![\w.])(\d+g)(?![\w.])")
_OF_AN_H200 = ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")


class _NoSharingError(Exception):
    """The words have none of the forms of a sharing."""


def parse_sharing(text: str, offered: Sequence[str] = _OF_AN_H200) -> Sharing:
    """Return the sharing that `text` names, in letters of any case; time-slicing is naive.

    Args:
        text: The notation; spaces around signs and a % behind a number are ignored.
        offered: Names of the GPU's MIG profiles, smallest first, one of which ``3g`` is.

    Raises:
        InvalidInput: `text` has none of the forms in this package's docstring.
    """
    words = _SPACE.sub(
        lambda match: match[1] or ("" if match[0].endswith("%") else "="),
        _TIME_SLICING.sub("naive", text.strip().lower()),
    )
    try:
        return _parse(_SHORT.sub(lambda match: full_profile(match[0], offered), words))
    except _NoSharingError:
        remedy, name = _how_to_write(words, offered), re.match(r"[a-z]*", words)
        if name is not None and name[0] not in ("", *MODES):
            raise UnknownName("sharing", name[0], MODES, remedy) from None
        raise InvalidInput(f"{shortened(text)} is not a sharing. {remedy}") from None


def full_profile(word: str, offered: Sequence[str]) -> str:
    """Return the MIG profile among `offered` whose name without memory is `word`; else `word`.

    Raises:
        InvalidInput: There are several.
    """
    names = [name for name in _for_training(offered) if name.startswith(f"{word}.")]
    if len(names) > 1:
        raise InvalidInput(f"{word} may be {' or '.join(names)}. Write one of these.")
    return names[0] if names else word


def _parse(words: str) -> Sharing:
    if ";" in words:
        return Phases(tuple(map(_group, words.split(";"))))
    if "[" in words:
        group = _group(words)
        if isinstance(group, Hybrid):
            return group
        if isinstance(group.sharing, Queue):  # in an order of its own
            return Phases((group,))
        if "/" not in words:
            raise _NoSharingError
        # The words name jobs, and what is left of them would not.
        jobs = counted(len(group.jobs), "job")
        raise InvalidInput(
            f"{shortened(words)}: all {jobs} jobs run at once. Write {group.sharing}."
        )
    matches = [_PLACED.fullmatch(part) for part in words.removeprefix("mig=").split(",")]
    if all(matches):
        return Mig(tuple(_instance(match) for match in matches if match))
    return _whole(words)


def _whole(words: str) -> PartitionSharing | Queue:
    if match := _QUEUE.fullmatch(words):
        sharing, at_once = _shared(match["sharing"]), int(match["at_once"])
        if isinstance(sharing, Serial):
            raise InvalidInput(
                f"{words}: serial runs one job at a time. Write serial, or naive/{max(2, at_once)}."
            )
        return Queue(sharing, at_once)
    return _shared(words)


def _shared(words: str) -> PartitionSharing:
    if plain := _PLAIN.get(words):
        return plain
    if match := _MPS.fullmatch(words):
        return Mps(tuple(map(float, match["limits"].split(","))) if match["limits"] else ())
    raise _NoSharingError


def _group(words: str) -> Group | Hybrid:
    if match := _GROUP.fullmatch(words):
        return plain_group(Group(_numbers(match), _whole(match["sharing"])))
    return _hybrid(words)


def _hybrid(words: str) -> Hybrid:
    places: list[Place] = []
    for word in _NEXT.split(words.removeprefix("mig=")):
        match = _SLOT.fullmatch(word) or _COMPUTE.fullmatch(word)
        if match is None:
            raise _NoSharingError
        sharing, slices = _shared(match["sharing"] or "naive"), match.groupdict().get("slices")
        numbers = _numbers(match)
        sharing = Naive() if sharing == Serial() and len(numbers) == 1 else sharing
        part = Part(numbers, sharing, None if slices is None else int(slices))
        if match["profile"]:
            places.append(Place(_instance(match), (part,)))
        elif places and places[-1].parts[0].slices is not None:
            places[-1] = Place(places[-1].instance, (*places[-1].parts, part))
        else:
            raise _NoSharingError
    return Hybrid(tuple(places))


def _instance(match: re.Match[str]) -> Instance:
    start = match["start"]
    return Instance(match["profile"], None if start is None else int(start))


def _numbers(match: re.Match[str]) -> tuple[int, ...]:
    return tuple(map(int, match["jobs"].split(",")))


def _for_training(names: Sequence[str]) -> list[str]:
    """`names` of MIG profiles without those that differ in media engines only."""
    return [name for name in names if name.endswith("gb")]


def _how_to_write(words: str, offered: Sequence[str]) -> str:
    """The remedy for `words` that name no sharing."""
    if (match := _GROUP.fullmatch(words)) is not None:
        return (
            f"One group is all jobs. Write {match['sharing']}, or naive[1,2];mps[3] for two groups."
        )
    slices = {name: int(name.partition("g")[0]) for name in _for_training(offered)}
    most = max(slices.values(), default=0)
    half = next((name for name in reversed(slices) if 2 * slices[name] <= most), "")
    with_numbers = re.search(r"\w\[|;", words)
    if words.startswith("mig") or re.search(r"\dg\b", words):
        if not offered:
            return "The GPU has no MIG: write serial, naive, mps or mps=50,50."
        if with_numbers:
            cut = f"{[*slices][-1]}/ci={most - most // 2}c[1]+{most // 2}c[2]"
            return f"Write jobs by their numbers: mig={half}[1]+{half}[2,3]/mps or mig={cut}."
        return (
            f"Write an instance for each job: mig={half},{half}. The GPU has {', '.join(offered)}."
        )
    if with_numbers:
        return "Write jobs by their numbers: naive[1,2];mps[3], one group after another."
    mig = f" or mig={half},{half} (an instance for each)" if half else ""
    return (
        f"Write serial, naive, mps, mps/2 (at most 2 at once), mps=50,50 (per cent for each job)"
        f"{mig}."
    )
