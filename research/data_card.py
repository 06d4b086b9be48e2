"""Counts of what was measured, on which machines and how often, and the data card's blocks."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

from advisor.hardware.machine import Provenance
from advisor.report.format import percent
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from research.evaluate import Selection, of_pace
from research.score_tables import markdown
from research.scoreboard import Scores
from research.steps import RepeatSummary, joined

_PURPOSES = ("drawn", "repeat", "chosen", "validation", "solo", "control")
_KINDS: Mapping[str, str] = {
    "naive": "time-sliced",
    "mps": "under MPS",
    "mps limits": "under MPS with SM limits",
}
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
    """A family's workloads, and the shared runs with a job of it."""

    family: str
    workloads: tuple[str, ...]
    shared_runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurposeData:
    """Runs of one purpose by kind of sharing, and those in which a job ended early."""

    purpose: str
    runs: Mapping[str, int]
    ended_early: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DegreeData:
    """Shared runs of so many jobs by kind of sharing."""

    jobs: int
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Absolute differences between profiles and the `n` solo runs among shared ones, as shares."""

    n: int
    median: float
    worst: float
    worst_job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFigures:
    """All counts of one GPU's data.

    Attributes:
        device: Of the first profile, as are `driver` and `torch`.
        busy: Least and largest GPU-busy share of a workload's step; None if not measured.
        memory_trials: Runs that try memory on a GPU made to look smaller.
        whole_jobs: Runs of whole jobs to their ends.
        kinds: Shared runs by kind of sharing.
        conditions: Values of each condition.
        scored: Runs that are scored.
        panels: Runs of plans to choose from.
        repeated: Scored runs that were repeated.
        drift: None if no solo run lies between the shared ones.
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
    drift: Drift | None


def data_figures(selection: Selection) -> DataFigures:
    """Count everything."""
    profiles, runs = selection.profiles, selection.runs
    busy = [profile.busy_share for profile in profiles.values() if profile.busy_share is not None]
    shared = [run for run in of_pace(runs) if len(run.tenants) > 1]
    origins = [profile.provenance for profile in profiles.values() if profile.provenance]
    counts = Counter(run.purpose for run in runs)
    origins_of_all = [*origins, *(run.provenance for run in runs)]
    return DataFigures(
        device=str(origins[0].device),
        driver=str(origins[0].driver),
        torch=str(origins[0].torch),
        busy=(min(busy), max(busy)) if busy else None,
        families=_families(profiles, shared),
        purposes=tuple(
            PurposeData(
                purpose=purpose,
                runs=_by_kind(of_purpose),
                ended_early=sum(not run.ok for run in of_purpose),
            )
            for purpose in _PURPOSES
            if (of_purpose := [run for run in runs if run.purpose == purpose])
        ),
        memory_trials=counts["memory"],
        whole_jobs=counts["completion"],
        degrees=tuple(
            DegreeData(jobs=n, runs=_by_kind(run for run in shared if len(run.tenants) == n))
            for n in sorted({len(run.tenants) for run in shared})
        ),
        kinds=_by_kind(shared),
        repeats=counts["repeat"],
        conditions={
            name: tuple(sorted({str(value_of(origin)) for origin in origins_of_all}))
            for name, value_of in _CONDITIONS.items()
        },
        scored=len(selection.scored),
        panels=len(selection.advice),
        repeated=len(selection.repeats),
        drift=drift_of(selection),
    )


def drift_of(selection: Selection) -> Drift | None:
    """Compare solo runs between shared ones with the profiles; None without any."""
    apart = [
        (abs(run.tenants[0].step_s / selection.profiles[run.names[0]].step_s - 1), run.names[0])
        for run in selection.alone
        if run.purpose == "solo"
    ]
    if not apart:
        return None
    worst, worst_job = max(apart)
    middle = median(difference for difference, _ in apart)
    return Drift(n=len(apart), median=middle, worst=worst, worst_job=worst_job)


def drift_text(drift: Drift) -> str:
    """Return how much the pace of solo runs drifted, in a sentence."""
    return (
        f"{drift.n} solo runs between the shared ones lie {percent(drift.median)} off their "
        f"profiles in the median, {percent(drift.worst)} at worst ({drift.worst_job})."
    )


def _by_kind(runs: Iterable[Run]) -> dict[str, int]:
    kinds = (run.sharing.partition("=")[0] + " limits" * ("=" in run.sharing) for run in runs)
    return dict(sorted(Counter(kinds).items()))


def _families(profiles: Mapping[str, Profile], shared: Sequence[Run]) -> tuple[FamilyData, ...]:
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


def data_text(data: DataFigures) -> str:
    """Return in four sentences what was measured."""
    busy = ""
    if data.busy is not None:
        least, most = (100 * share for share in data.busy)
        busy = f" They keep the GPU busy for {least:.0f} to {most:.0f} % of a step."
    kinds = [f"{data.kinds[each]} {words}" for each, words in _KINDS.items() if each in data.kinds]
    return (
        f"We measured {sum(len(row.workloads) for row in data.families)} workloads alone on an "
        f"{data.device} (driver {data.driver}, torch {data.torch}).{busy} In "
        f"{sum(data.kinds.values())} runs {data.degrees[0].jobs} to {data.degrees[-1].jobs} jobs "
        f"shared it: {', '.join(kinds)}. {data.repeats} of these runs repeat another with new "
        "processes."
    )


def card_blocks(data: DataFigures, scores: Scores, steadiness: RepeatSummary) -> Mapping[str, str]:
    """Return the card's marked blocks by name."""
    families = [
        (row.family, str(len(row.workloads)), ", ".join(row.workloads), str(row.shared_runs))
        for row in data.families
    ]
    purposes = [
        (row.purpose, *(str(row.runs.get(kind, 0)) for kind in _KINDS), str(row.ended_early))
        for row in data.purposes
    ]
    apart = {
        "try memory on a GPU made to look smaller": data.memory_trials,
        "run whole jobs to their ends": data.whole_jobs,
    }
    degrees = [
        (str(row.jobs), *(str(row.runs.get(kind, 0)) for kind in _KINDS)) for row in data.degrees
    ]
    noise = (
        f"{data.repeated} scored runs were repeated with new processes; {steadiness.steady} of "
        f"{steadiness.workloads} workloads in them repeat within 5 % in the median."
    )
    return {
        "data": data_text(data),
        "families": markdown(("family", "workloads", "which", "shared runs"), families),
        "purposes": joined(
            markdown(("purpose", *_KINDS, "of these ended early"), purposes),
            *(f"{count} more {what}." for what, count in apart.items() if count),
        ),
        "degrees": markdown(("jobs at once", *_KINDS), degrees),
        "conditions": markdown(
            ("what", "value"),
            [(name, ", ".join(values)) for name, values in data.conditions.items()],
        ),
        "noise": f"{noise} {drift_text(data.drift)}" if data.drift else noise,
        "split": (
            f"{data.scored} runs are scored, {data.panels} are panels of plans to choose from, and "
            f"{len(scores.families)} families are left out in turn: {', '.join(scores.families)}."
        ),
    }
