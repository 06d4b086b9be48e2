"""The numbers of profiles/DATA_CARD.md: what was measured, on what, how often."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from advisor.validation.findings import Findings
from advisor.validation.noise import steadiness
from advisor.validation.selection import of_pace
from advisor.validation.words import markdown
from advisor.workload.measured import Provenance
from advisor.workload.run import Purpose, Run

_PURPOSES = ("drawn", "repeat", "chosen", "validation", "solo", "control")
_APART: Mapping[Purpose, str] = {
    "memory": "try memory on a GPU made to look smaller",
    "completion": "run whole jobs to their ends",
}
_KINDS = ("naive", "mps", "mps limits")


def data_text(found: Findings) -> str:
    """What was measured, in two sentences."""
    busy = [each.busy_share for each in found.profiles.values() if each.busy_share is not None]
    shared = [run for run in of_pace(found.runs) if len(run.tenants) > 1]
    kinds = Counter(map(_kind, shared))
    degrees = sorted({len(run.tenants) for run in shared})
    repeated = sum(run.purpose == "repeat" for run in found.runs)
    where = next(iter(found.profiles.values())).provenance
    spread = f"busy {100 * min(busy):.0f} to {100 * max(busy):.0f} % of a step" if busy else ""
    how_many = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"Measured on {where.device}, driver {where.driver}, torch {where.torch}: "
        f"{len(found.profiles)} workloads alone, which keep the GPU {spread}, and {len(shared)} "
        f"shared runs ({how_many}) of {', '.join(map(str, degrees))} jobs, {repeated} of them "
        "repeats with fresh workers."
    )


def blocks(found: Findings) -> Mapping[str, str]:
    """The card's marked blocks by name."""
    return {
        "data": data_text(found),
        "families": _families(found),
        "purposes": _purposes(found.runs),
        "degrees": _degrees(found.runs),
        "conditions": _conditions(found),
        "noise": _noise(found),
        "split": _split(found),
    }


def _kind(run: Run) -> str:
    return run.sharing.partition("=")[0] + " limits" * ("=" in run.sharing)


def _families(found: Findings) -> str:
    """Each family's workloads, and the shared runs in which it has a tenant."""
    names: dict[str, list[str]] = {}
    for name, profile in sorted(found.profiles.items()):
        names.setdefault(profile.workload.family, []).append(name)
    shared = [run for run in of_pace(found.runs) if len(run.tenants) > 1]
    counts = Counter(
        family for run in shared for family in {t.workload.family for t in run.tenants}
    )
    rows = [
        (family, str(len(members)), ", ".join(members), str(counts[family]))
        for family, members in sorted(names.items())
    ]
    return markdown(("family", "workloads", "which", "shared runs"), rows)


def _purposes(runs: Sequence[Run]) -> str:
    """Runs by purpose and mode; memory trials and whole jobs apart."""
    rows = [
        (purpose, *(str(sum(_kind(run) == kind for run in of_it)) for kind in _KINDS),
         str(sum(not run.ok for run in of_it)))
        for purpose in _PURPOSES
        if (of_it := [run for run in runs if run.purpose == purpose])
    ]  # fmt: skip
    table = markdown(("purpose", *_KINDS, "of these ended early"), rows)
    counts = Counter(run.purpose for run in runs)
    said = [f"{counts[each]} more {what}." for each, what in _APART.items() if counts[each]]
    return "\n\n".join([table, *said])


def _degrees(runs: Sequence[Run]) -> str:
    shared = [run for run in of_pace(runs) if len(run.tenants) > 1]
    rows = [
        (str(degree), *(str(sum(_kind(run) == kind for run in of_it)) for kind in _KINDS))
        for degree in sorted({len(run.tenants) for run in shared})
        for of_it in [[run for run in shared if len(run.tenants) == degree]]
    ]
    return markdown(("jobs at once", *_KINDS), rows)


def _conditions(found: Findings) -> str:
    """What all of it was measured with; several values where there were several."""
    origins = [profile.provenance for profile in found.profiles.values()]
    origins += [run.provenance for run in found.runs]
    told: Mapping[str, Callable[[Provenance], object]] = {
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
    rows = [
        (name, ", ".join(sorted({str(of(each)) for each in origins}))) for name, of in told.items()
    ]
    return markdown(("what", "value"), rows)


def _noise(found: Findings) -> str:
    evaluation = found.evaluation
    steady = steadiness(evaluation.repeats)
    said = (
        f"{len(evaluation.repeats)} scored runs were repeated with fresh workers; "
        f"{steady.steady} of {steady.workloads} workloads in them repeat within 5 % in the median."
    )
    if drift := evaluation.drift:
        said += (
            f" {drift.n} solo runs between the shared ones lie {100 * drift.median:.1f} % off "
            f"their profiles in the median, {100 * drift.worst:.1f} % at worst ({drift.worst_job})."
        )
    return said


def _split(found: Findings) -> str:
    chosen = found.selection
    return (
        f"{len(chosen.scored)} runs are scored, {len(chosen.advice)} are panels of plans to choose "
        f"from, and {len(found.evaluation.families)} families are left out in turn: "
        f"{', '.join(found.evaluation.families)}."
    )
