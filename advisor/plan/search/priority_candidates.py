"""MPS client priorities that are worth a forecast: few, since blocks that run are not stopped."""

from collections.abc import Iterator, Sequence

from advisor.sharing import Mps
from advisor.workload.job import Job

# Limits for the mates of protected jobs, in per cent; None: no limits.
_MATES: tuple[float | None, ...] = (None, 57.0, 43.0, 28.0, 14.0)


def priority_candidates(jobs: Sequence[Job]) -> list[Mps]:
    """Sharings by MPS in which some of `jobs` have priority over the others.

    Protected jobs have priority, with their mates limited or not. Where no job is protected, those
    with the shortest steps have it: otherwise they wait for the blocks of long steps, and they take
    little from these.
    """
    protected = {at for at, job in enumerate(jobs) if job.protect is not None}
    if protected:
        return list(_protecting(protected, len(jobs))) if len(protected) < len(jobs) else []
    order = sorted(range(len(jobs)), key=lambda at: jobs[at].profile.step_s)
    return [
        _first(set(order[:first]), len(jobs))
        for first in sorted({1, len(jobs) // 2, len(jobs) - 1})
        if jobs[order[first - 1]].name != jobs[order[first]].name
    ]


def _protecting(protected: set[int], jobs: int) -> Iterator[Mps]:
    first = _first(protected, jobs)
    for limit in _MATES:
        if limit is None:
            yield first
            continue
        limits = tuple(100.0 if at in protected else limit for at in range(jobs))
        yield from (Mps(limits), Mps(limits, first.priorities))


def _first(chosen: set[int], jobs: int) -> Mps:
    return Mps(priorities=tuple(int(at not in chosen) for at in range(jobs)))
