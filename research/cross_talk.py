"""The effect of the other GPUs of a host on a run: controls done while those are busy and idle.

``[[control]]`` of a campaign's plan makes such runs; see `advisor.measure.campaign.campaign_file`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from advisor.measure.campaign.draw import idle_twin
from advisor.prediction.interval import all_known
from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from advisor.workload.profile import Profile
from advisor.workload.run import Run

HEADINGS = (
    "jobs", "sharing", "steps", "median difference", "worst", "median slowdown",
    "two idle runs differ by",
)  # fmt: skip

# Of its step alone, how long a job must keep the GPU busy to be bound by it, and how long at most
# to be bound by its host.
_GPU_BOUND, _HOST_BOUND = 0.9, 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTalk:
    """Controls of one kind of mix under one sharing; all as shares of the idle step.

    Attributes:
        kind: ``"GPU-bound"``, ``"host-bound"`` or ``"mixed"``.
        sharing: As the runs have it.
        n: Steps measured with the other GPUs busy and idle.
        median: Median absolute difference of the two.
        worst: The largest.
        slowdown: Median difference, above 0 if busy neighbours make steps longer.
        floor: Median absolute difference of two runs with the other GPUs idle: what cross-talk
            must exceed to be seen. None if nothing was run so twice.
    """

    kind: str
    sharing: str
    n: int
    median: float
    worst: float
    slowdown: float
    floor: float | None


def cross_talk(runs: Iterable[Run], profiles: Mapping[str, Profile]) -> tuple[CrossTalk, ...]:
    """What busy neighbours changed, by kind of mix and sharing.

    Args:
        runs: All of a GPU; controls that lack their twin, or whose jobs lack a profile, and those
            in which a tenant ended early are passed over.
        profiles: Solo profiles by name.
    """
    controls = {run.id: run for run in runs if run.purpose == "control" and run.ok}
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in controls.values():
        if (kind := _kind(run, profiles)) is not None:
            groups.setdefault((kind, run.sharing), []).append(run)
    found = (_row(*key, group, controls) for key, group in sorted(groups.items()))
    return tuple(row for row in found if row is not None)


def section(rows: Sequence[CrossTalk]) -> str:
    """Of profiles/REPORT.md; empty if no control was run."""
    if not rows:
        return ""
    return "\n\n".join([
        "## Cross-talk between the GPUs of a host",
        markdown(HEADINGS, map(_cells, rows)),
        "The same jobs were run on the same GPU while a campaign kept the host's other GPUs busy, "
        "and while those idled. Differences are shares of the step beside idle GPUs. The last "
        "column is how far two runs beside idle GPUs differ, each perhaps on a GPU of its own: "
        "what is not above it is not cross-talk. GPU-bound jobs keep the GPU busy for more than "
        f"{100 * _GPU_BOUND:.0f} % of a step alone, host-bound ones for at most "
        f"{100 * _HOST_BOUND:.0f} %.",
    ])  # fmt: skip


def _cells(row: CrossTalk) -> tuple[str, ...]:
    shares = (row.median, row.worst, row.slowdown, row.floor)
    sharing = MODE_WORDS.get(row.sharing, row.sharing)
    return (row.kind, sharing, str(row.n), *map(percent, shares))


def _kind(run: Run, profiles: Mapping[str, Profile]) -> str | None:
    alone = all_known(profiles.get(tenant.workload.name) for tenant in run.tenants)
    known = None if alone is None else all_known(each.busy_share for each in alone)
    if known is None:
        return None
    if min(known) > _GPU_BOUND:
        return "GPU-bound"
    return "host-bound" if max(known) <= _HOST_BOUND else "mixed"


def _row(
    kind: str, sharing: str, group: Sequence[Run], controls: Mapping[str, Run]
) -> CrossTalk | None:
    twins = [(run, controls.get(idle_twin(run.id))) for run in group]
    pairs = [(busy, idle) for busy, idle in twins if idle is not None and idle is not busy]
    apart = [each for busy, idle in pairs for each in _apart(busy, idle)]
    if not apart:
        return None
    quiet = [run for run in group if idle_twin(run.id) == run.id]
    alike = [(one, two) for one, two in combinations(quiet, 2) if _names(one) == _names(two)]
    noise = [abs(each) for one, two in alike for each in _apart(one, two)]
    return CrossTalk(
        kind=kind,
        sharing=sharing,
        n=len(apart),
        median=median(map(abs, apart)),
        worst=max(map(abs, apart)),
        slowdown=median(apart),
        floor=median(noise) if noise else None,
    )


def _names(run: Run) -> tuple[str, ...]:
    return tuple(tenant.workload.name for tenant in run.tenants)


def _apart(run: Run, other: Run) -> list[float]:
    """How much longer the steps of `run` are than those of `other`, as shares."""
    return [
        mine.step_s / its.step_s - 1 for mine, its in zip(run.tenants, other.tenants, strict=True)
    ]
