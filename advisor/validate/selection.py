"""Which runs are scored, which are panels of plans, and who is left out in turn.

Scored are the runs that a seed drew before anything was predicted, never those that a person or
a model chose.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

from advisor.english import counted
from advisor.errors import InvalidInput
from advisor.hardware.catalogue import Gpu
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import together
from advisor.workload.profile import Profile
from advisor.workload.run import Run

SPLIT = "leave-one-family-out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The runs of one GPU, by what evaluation does with them.

    Attributes:
        scored: Runs drawn by a seed, whose tenants all ran to the end and have profiles.
        unusable: Ids of drawn runs that cannot be scored.
        advice: Shared runs of advice and their repeats: the panels from which plans are chosen.
        alone: Runs of one tenant.
        repeats: Pairs of a scored run and its repeat with fresh workers.
    """

    scored: tuple[Run, ...]
    unusable: tuple[str, ...]
    advice: tuple[Run, ...]
    alone: tuple[Run, ...]
    repeats: tuple[tuple[Run, Run], ...]


def select(profiles: Mapping[str, Profile], runs: Sequence[Run], gpu: Gpu) -> Selection:
    """Sorts `runs` of `gpu`.

    Args:
        profiles: Solo profiles by name.
        runs: Every run on `gpu`.
        gpu: The GPU that all of them ran on.

    Raises:
        InvalidInput: No run can be scored.
    """
    ordinary = of_pace(runs)
    shared = [run for run in ordinary if len(run.tenants) > 1]
    drawn = [run for run in shared if run.purpose == "drawn"]
    scored = tuple(run for run in drawn if _usable(run, profiles))
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Wanted are drawn runs whose tenants all "
            f"ran to the end and have profiles; read: {counted(len(runs), 'run')}."
        )
    by_id = {run.id: run for run in scored}
    advised = {run.id for run in shared if run.purpose == "validation"}
    return Selection(
        scored=scored,
        unusable=tuple(run.id for run in drawn if run.id not in by_id),
        advice=tuple(
            run for run in shared
            if (run.id in advised or run.repeats in advised) and _usable(run, profiles)
        ),
        alone=tuple(
            run for run in ordinary if len(run.tenants) == 1 and _usable(run, profiles)
        ),
        repeats=tuple((by_id[run.repeats], run) for run in shared
                      if run.ok and run.repeats in by_id),
    )  # fmt: skip


def of_pace(runs: Iterable[Run]) -> list[Run]:
    """Those of `runs` whose tenants all ran all the time, in no experiment on memory or host."""
    return [run for run in runs if run.purpose not in ("memory", "control", "completion")]


def families_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Families of the tenants of `runs`, in alphabetical order."""
    return tuple(sorted({tenant.workload.family for run in runs for tenant in run.tenants}))


def cores_known(run: Run) -> bool:
    """Whether `run` says how fast the core of each tenant was; before the third campaign none did.

    Their speed varies by 40 % on virtual machines, and nobody who asks for a prediction knows it.
    """
    return all(tenant.host_check_s is not None for tenant in run.tenants)


# Campaigns whose ids begin otherwise than with their names.
_CAMPAIGNS = {"drawn": "first", "cross": "control"}


def hosts_of(runs: Iterable[Run]) -> dict[str, str]:
    """On which host each of `runs` was made, by id, the first first: the name of its campaign.

    Where a campaign ran on several processors, or on several days, these are said with it.
    """
    places = {run.id: _place(run) for run in sorted(runs, key=lambda run: run.provenance.date)}
    of_campaign: dict[str, list[tuple[str, str]]] = {}
    for campaign, *where in places.values():
        of_campaign.setdefault(campaign, []).append((where[0], where[1]))
    several = {
        campaign: [len(set(column)) > 1 for column in zip(*of_it, strict=True)]
        for campaign, of_it in of_campaign.items()
    }
    return {
        name: ", ".join((campaign, *compress(where, several[campaign])))
        for name, (campaign, *where) in places.items()
    }


def _place(run: Run) -> tuple[str, str, str]:
    """Campaign, processor and day."""
    begin, _, _ = run.id.partition("-")
    processor = re.sub(r"\(\w+\)| Processor$", "", run.provenance.host_cpu)
    return _CAMPAIGNS.get(begin, begin), processor, run.provenance.date[:10]


def _usable(run: Run, profiles: Mapping[str, Profile]) -> bool:
    known = all(tenant.workload.name in profiles for tenant in run.tenants)
    return run.ok and known and together(parse_sharing(run.sharing)) is not None
