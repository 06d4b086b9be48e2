"""Counts of what was measured, on which machines and how often, for the data card."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from advisor.validate.selection import of_pace
from advisor.workload.measured import Provenance
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.findings import Findings

PURPOSES = ("drawn", "repeat", "chosen", "validation", "solo", "control")
KINDS = ("naive", "mps", "mps limits")
_PRIORITIES = "mps priorities"

_CONDITIONS: Mapping[str, Callable[[Provenance], object]] = {
    "GPU": attrgetter("device"),
    "driver": attrgetter("driver"),
    "CUDA": attrgetter("cuda"),
    "torch": attrgetter("torch"),
    "timm": attrgetter("timm"),
    "Python": attrgetter("python"),
    "SM clock, MHz": attrgetter("sm_clock_mhz"),
    "memory clock, MHz": attrgetter("memory_clock_mhz"),
    "host CPU": attrgetter("host_cpu"),
    "host cores": attrgetter("host_cores"),
    "days": lambda origin: origin.date[:10],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyData:
    """A family's workloads, and the shared runs in which it has a tenant."""

    family: str
    workloads: tuple[str, ...]
    shared_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurposeData:
    """Runs of one purpose by kind of sharing, and those in which a tenant ended early."""

    purpose: str
    runs: Mapping[str, int]
    ended_early: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeData:
    """Shared runs of so many jobs by kind of sharing."""

    jobs: int
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFigures:
    """All counts of one GPU's data.

    Attributes:
        device: Of the first profile, as are `driver` and `torch`.
        busy: Least and largest share of its step for which a workload keeps the GPU, 0..1; None
            where it was measured of none.
        families: Of all workloads.
        purposes: Of runs; memory trials and whole jobs apart.
        memory_trials: Runs that try memory on a GPU made to look smaller.
        whole_jobs: Runs of whole jobs to their ends.
        degrees: Of shared runs, fewest jobs first.
        kinds: Shared runs by kind of sharing, likewise.
        repeats: Runs that do another one again.
        conditions: Values of each condition, several where there were several.
        scored: Runs that are scored.
        panels: Runs of plans to choose from.
        repeated: Scored runs that were repeated.
    """

    device: str
    driver: str
    torch: str
    busy: tuple[float, float] | None
    families: tuple[FamilyData, ...]
    purposes: tuple[PurposeData, ...]
    memory_trials: int
    whole_jobs: int
    degrees: tuple[DegreeData, ...]
    kinds: Mapping[str, int]
    repeats: int
    conditions: Mapping[str, tuple[str, ...]]
    scored: int
    panels: int
    repeated: int


def data_figures(found: Findings) -> DataFigures:
    """The counts of what `found` was found in."""
    busy = [each.busy_share for each in found.profiles.values() if each.busy_share is not None]
    shared = [run for run in of_pace(found.runs) if len(run.tenants) > 1]
    where = next(each.provenance for each in found.profiles.values() if each.provenance)
    counts = Counter(run.purpose for run in found.runs)
    return DataFigures(
        device=str(where.device),
        driver=str(where.driver),
        torch=str(where.torch),
        busy=(min(busy), max(busy)) if busy else None,
        families=_families(found.profiles, shared),
        purposes=_purposes(found.runs),
        memory_trials=counts["memory"],
        whole_jobs=counts["completion"],
        degrees=_degrees(shared),
        kinds=_by_kind(shared),
        repeats=counts["repeat"],
        conditions=_conditions(found),
        scored=len(found.selection.scored),
        panels=len(found.selection.advice),
        repeated=len(found.evaluation.repeats),
    )


def _by_kind(runs: Iterable[Run]) -> dict[str, int]:
    return dict(sorted(Counter(map(_kind, runs)).items()))


def _kind(run: Run) -> str:
    if "/priority=" in run.sharing:
        return _PRIORITIES
    return run.sharing.partition("=")[0] + " limits" * ("=" in run.sharing)


def _families(
    profiles: Mapping[str, Profile], shared: Sequence[Run]
) -> tuple[FamilyData, ...]:  # fmt: skip
    names: dict[str, list[str]] = {}
    for name, profile in sorted(profiles.items()):
        names.setdefault(profile.workload.family, []).append(name)
    counts = Counter(
        family for run in shared for family in {t.workload.family for t in run.tenants}
    )
    return tuple(
        FamilyData(family=family, workloads=tuple(members), shared_runs=counts[family])
        for family, members in sorted(names.items())
    )


def _purposes(runs: Sequence[Run]) -> tuple[PurposeData, ...]:
    return tuple(
        PurposeData(
            purpose=purpose,
            runs=_by_kind(of_it),
            ended_early=sum(not run.ok for run in of_it),
        )
        for purpose in PURPOSES
        if (of_it := [run for run in runs if run.purpose == purpose])
    )


def _degrees(shared: Sequence[Run]) -> tuple[DegreeData, ...]:
    return tuple(
        DegreeData(jobs=degree, runs=_by_kind(run for run in shared if len(run.tenants) == degree))
        for degree in sorted({len(run.tenants) for run in shared})
    )


def _conditions(found: Findings) -> dict[str, tuple[str, ...]]:
    origins = [each.provenance for each in found.profiles.values() if each.provenance]
    origins += [run.provenance for run in found.runs]
    return {
        name: tuple(sorted({str(of(each)) for each in origins})) for name, of in _CONDITIONS.items()
    }
