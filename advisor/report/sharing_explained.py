"""What the notation of a sharing says of jobs, in a few words."""

from collections import Counter
from collections.abc import Sequence

from advisor.english import counted
from advisor.sharing import Mode, Sharing
from advisor.sharing.traversal import groups, partitions

_EXPLAINED: dict[Mode, str] = {
    "serial": "one after another",
    "naive": "the driver gives the GPU to each in turn",
    "mps": "kernels of all run side by side",
}
_SLICE = "compute slice"

NOTATION: dict[Mode, str] = {
    "mps-limits": "mps=: per cent of the SMs that each may use",
    "mps-priority": "priority: 0 goes before 1",
    "mig": "mig=: an instance each, @ where it starts",
    "hybrid": "[]: jobs by number on an instance, 3c: three of its compute slices",
    "phases": ";: one group after the other, [] its jobs by number",
}
"""How to read a way to share, for those that stand in a line of their own without an example."""


def explained(sharing: Sharing, jobs: Sequence[str]) -> str:
    """What the notation of `sharing` says of `jobs`, named in their order, in a few words."""
    if sharing.mode == "mps-limits":
        if len(set(sharing.limits)) == 1:
            return f"each may use {sharing.limits[0]:g} % of the SMs"
        first, *rest = _counted(
            [f"{job} {each:g} %" for job, each in zip(jobs, sharing.limits, strict=True)]
        )
        return ", ".join([f"of the SMs at most {first}", *rest])
    if sharing.mode == "mps-priority":
        ahead = [job for job, each in zip(jobs, sharing.priorities, strict=True) if not each]
        limits = "; limits are per cent of the SMs" if sharing.limits else ""
        return f"{', '.join(_counted(ahead))} before the others{limits}"
    if sharing.mode == "phases":
        together = [each.jobs for each in groups(sharing, len(jobs))]
        return ", then ".join(_named(each, jobs) for each in together)
    if sharing.instances:
        return "; ".join(
            f"{_named(part.jobs, jobs)} on "
            f"{f'{counted(part.slices, _SLICE)} of ' if part.slices else ''}"
            f"{part.instance.profile if part.instance else ''}"
            for part in partitions(sharing, len(jobs))
        )
    return _EXPLAINED[sharing.mode]


def _named(numbers: Sequence[int], jobs: Sequence[str]) -> str:
    return ", ".join(_counted([jobs[number - 1] for number in numbers]))


def _counted(words: Sequence[str]) -> list[str]:
    """Each of `words` once, with how often it comes."""
    return [f"{count} x {word}" if count > 1 else word for word, count in Counter(words).items()]
