"""Which tracked runs were alone on their GPU, and which shared it, and how.

radT starts the rows of a workload together, and names each by its device, a letter where several
are on it, and how they share it: ``0``, ``0_A``, ``0_B_mps``, ``0_A_3g.20gb`` (parameters
``workload`` and ``letter``, radT 0.2).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.workload.tracked_runs import TrackedRun

_LETTER = re.compile(
    r"(?P<device>[\d+]+)(?:_(?P<one>[A-Z]))?(?:_(?P<how>mps|\d+g\.\d+gb\S*))?", re.I
)
# Of the shorter of two runs; below, one merely began while another ended.
_OVERLAP = 0.1


@dataclass(frozen=True, slots=True)
class TogetherOnGpu:
    """Runs that were on one GPU at the same time; one: alone.

    Attributes:
        sharing: As `advisor.sharing.parse_sharing` reads it; None: nobody wrote down how.
    """

    runs: tuple[TrackedRun, ...]
    sharing: str | None


def together_on_gpus(runs: Sequence[TrackedRun]) -> tuple[TogetherOnGpu, ...]:
    """`runs` of a store, grouped into those that ran beside each other on a GPU.

    Runs that radT did not start are taken to be on one GPU, since nothing says otherwise.
    """
    found: list[list[TrackedRun]] = []
    for run in runs:
        mates = [each for each in found if any(_beside(run, other) for other in each)]
        found = [each for each in found if each not in mates]
        found.append([other for each in mates for other in each] + [run])
    return tuple(TogetherOnGpu(tuple(each), _sharing(each)) for each in found)


def _beside(one: TrackedRun, other: TrackedRun) -> bool:
    ours, theirs = _place(one), _place(other)
    if ours and theirs and ours[:2] != theirs[:2]:
        return False
    if None in (one.start_s, one.end_s, other.start_s, other.end_s):
        return ours is not None and theirs is not None
    begin, end = max(one.start_s or 0, other.start_s or 0), min(one.end_s or 0, other.end_s or 0)
    shorter_s = min((each.end_s or 0) - (each.start_s or 0) for each in (one, other))
    return end - begin > _OVERLAP * shorter_s


def _place(run: TrackedRun) -> tuple[str, str, str | None] | None:
    """RadT's workload, the device, and how it was shared; None: radT did not start it."""
    found = _LETTER.fullmatch(run.params.get("letter", ""))
    if found is None or "workload" not in run.params:
        return None
    workload = f"{run.experiment} {run.params['workload']}"
    return workload, found["device"], found["how"] and found["how"].lower()


def _sharing(runs: Sequence[TrackedRun]) -> str | None:
    places = [_place(run) for run in runs]
    ways = {place[2] if place else "unknown" for place in places}
    if ways == {None} or (len(runs) == 1 and ways == {"unknown"}):
        return "naive"
    if ways == {"mps"}:
        return "mps"
    slices = [place[2] for place in places if place and place[2] and place[2] != "mps"]
    return f"mig={','.join(slices)}" if len(slices) == len(runs) else None
