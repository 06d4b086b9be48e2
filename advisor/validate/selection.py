"""Which runs are scored, which are panels of plans, and who is left out in turn.

Scored are the runs that a seed drew before anything was predicted, never those that a person or
a model chose.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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
        scored: Drawn by a seed; every tenant ran to the end and has a profile, and the speed of
            its host was recorded.
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
    scored = tuple(run for run in drawn if _usable(run, profiles) and _host_known(run))
    if not scored:
        raise InvalidInput(
            f"{gpu.key}: no run to score. Wanted are drawn runs whose tenants all "
            f"ran to the end, have profiles and say how fast their host was; read: "
            f"{counted(len(runs), 'run')}."
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


def _host_known(run: Run) -> bool:
    """Whether the run says how fast its tenants' cores were: on virtual machines they vary by 40 %.

    Runs of before that was recorded teach about jobs that the GPU paces, and are not scored.
    """
    return all(tenant.host_check_s is not None for tenant in run.tenants)


def _usable(run: Run, profiles: Mapping[str, Profile]) -> bool:
    known = all(tenant.workload.name in profiles for tenant in run.tenants)
    return run.ok and known and together(parse_sharing(run.sharing)) is not None
