"""Client priorities under MPS that are worth forecasting: few, since blocks that run stay."""

from collections.abc import Iterator, Sequence

from advisor.sharing import Mps
from advisor.workload.job import Job

# Per cent of the SMs for the mates of protected jobs, which have all; None: no limits.
_MATES: tuple[float | None, ...] = (None, 57.0, 43.0, 28.0, 14.0)


def priority_candidates(jobs: Sequence[Job]) -> list[Mps]:
    """Ways to put some of `jobs` before the others under MPS.

    Those that are to be protected, with their mates free or limited; where there are none, those
    with the shortest steps: these wait for long ones' blocks otherwise, and take little from them.
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
