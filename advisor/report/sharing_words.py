"""The words for each way to share: its name, the advice to use it, its caption and meaning."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypedDict

from advisor.english import counted
from advisor.report.units import collapsed, numbers
from advisor.sharing import Mode, Sharing
from advisor.sharing.traversal import groups, kind_of, one_by_one, partitions, running_together

_SLICE = "compute slice"
# Of more jobs than can be told apart at a glance.
_JOBS, _SHARES = re.compile(r"(?<=\[)(\d+,){8,}\d+"), re.compile(r"(?<==)(\d[\d.]*,){8,}\d[\d.]*")
_TURNS = "[1,2];[3]: one group after the other, jobs by number"


class ModeWords(NamedTuple):
    """The words for plans of one mode.

    Attributes:
        kind: Its name, in a word or two.
        advice: First words of the advice to use it.
        caption: Caption of a drawing of the GPU.
        meaning: What it does, where that is the same for all jobs.
        notation: How to read its notation where no example is at hand; empty: it explains itself.
    """

    kind: str
    advice: str
    caption: str
    meaning: str = ""
    notation: str = ""


# So that a mode without words is a mistake that the type checker finds.
_ByMode = TypedDict("_ByMode", {
    "serial": ModeWords, "naive": ModeWords, "mps": ModeWords, "mps-limits": ModeWords,
    "mig": ModeWords, "hybrid": ModeWords, "phases": ModeWords,
})  # fmt: skip
_WORDS: _ByMode = {
    "serial": ModeWords(
        "serial",
        "Don't share, one after another",
        "One job at a time: each has all memory and all SMs to itself.",
        "one after another",
    ),
    "naive": ModeWords(
        "naive",
        "Time-sliced, without MPS",
        "Memory adds up; the jobs take turns on all SMs.",
        "the driver gives the GPU to each in turn",
    ),
    "mps": ModeWords(
        "mps",
        "MPS",
        "Memory adds up; the jobs run side by side on whatever SMs are free.",
        "kernels of all run side by side",
    ),
    "mps-limits": ModeWords(
        "mps with limits",
        "MPS with limits",
        "Memory adds up; a limit is a cap, so the jobs' SMs may overlap.",
        notation="mps=: per cent of the SMs that each may use",
    ),
    "mig": ModeWords(
        "mig, estimated",
        "MIG, an instance for each",
        "Each job has memory and SMs of its own; the frame is its MIG instance.",
        notation="mig=: an instance each, @ where it starts",
    ),
    "hybrid": ModeWords(
        "mig, estimated",
        "MIG, jobs together on an instance",
        "Jobs on one MIG instance share what it has; the frame is the instance.",
        notation="[1,2]: jobs by number on an instance, 3c: three of its compute slices",
    ),
    "phases": ModeWords(
        "phases",
        "In groups, one after another",
        "One group of jobs at a time: each group has all memory and all SMs to itself.",
        notation=_TURNS,
    ),
}


def words_of(sharing: Sharing) -> ModeWords:
    """The words for plans that share by `sharing`."""
    words = _WORDS[kind_of(sharing)]
    return words._replace(notation=_TURNS) if sharing.mode == "phases" else words


def kind_of_mode(mode: Mode) -> str:
    """The name of the kind of plans that share in `mode`."""
    return _WORDS[mode].kind


def way_advised(sharing: Sharing, jobs: int) -> str:
    """First words of the advice that `jobs` jobs share by `sharing`."""
    if sharing.mode == "phases" and one_by_one(sharing):
        order = ", ".join(str(number) for each in groups(sharing, jobs) for number in each.jobs)
        return f"{words_of(sharing).advice} in this order of jobs: {order}"
    if sharing.mode == "phases":
        return f"In {len(groups(sharing, jobs))} groups, one after another"
    if sharing.mode == "hybrid" and all(part.slices for part in partitions(sharing, jobs)):
        return "MIG, compute slices of an instance for each"
    return words_of(sharing).advice


def explained(sharing: Sharing, jobs: Sequence[str]) -> str:
    """What the notation of `sharing` means for `jobs`, which are names, in order."""
    if sharing.mode == "mps-limits":
        if len(set(sharing.limits)) == 1:
            return f"each may use {sharing.limits[0]:g} % of the SMs"
        first, *rest = _counted(
            [f"{job} {each:g} %" for job, each in zip(jobs, sharing.limits, strict=True)]
        )
        return ", ".join([f"of the SMs at most {first}", *rest])
    if sharing.mode == "phases":
        together = running_together(sharing, len(jobs))
        return ", then ".join(_named([at + 1 for at in each], jobs) for each in together)
    if sharing.instances:
        return "; ".join(
            f"{_named(part.jobs, jobs)} on "
            f"{f'{counted(part.slices, _SLICE)} of ' if part.slices else ''}"
            f"{part.instance.profile if part.instance else ''}"
            for part in partitions(sharing, len(jobs))
        )
    return words_of(sharing).meaning


def shortened(notation: str) -> str:
    """`notation`, or words with it: in long lists, ranges of jobs, and equal shares counted."""
    return _JOBS.sub(_range, _SHARES.sub(_count, notation))


def _range(jobs: re.Match[str]) -> str:
    return numbers(map(int, jobs.group().split(",")))


def _count(shares: re.Match[str]) -> str:
    """Equal shares that follow each other as ``14 x40``."""
    runs = groupby(shares.group().split(","))
    return ",".join(collapsed(list(run)) for _, run in runs)


def _named(numbers: Sequence[int], jobs: Sequence[str]) -> str:
    return ", ".join(_counted([jobs[number - 1] for number in numbers]))


def _counted(words: Sequence[str]) -> list[str]:
    """Each different one of `words`, with the number of times it occurs."""
    return [f"{count} x {word}" if count > 1 else word for word, count in Counter(words).items()]
