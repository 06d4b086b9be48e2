"""The numbers of profiles/DATA_CARD.md in words and tables."""

from collections.abc import Mapping, Sequence

from advisor.validate.score_tables import drift_text, markdown
from research.data_figures import KINDS, DataFigures
from research.figures import Figures


def data_text(data: DataFigures) -> str:
    """What was measured, in two sentences."""
    spread = ""
    if data.busy is not None:
        least, most = (100 * share for share in data.busy)
        spread = f"busy {least:.0f} to {most:.0f} % of a step"
    how_many = ", ".join(f"{count} {kind}" for kind, count in data.kinds.items())
    return (
        f"Measured on {data.device}, driver {data.driver}, torch {data.torch}: "
        f"{sum(len(each.workloads) for each in data.families)} workloads alone, which keep the GPU "
        f"{spread}, and {sum(data.kinds.values())} "
        f"shared runs ({how_many}) of {', '.join(str(each.jobs) for each in data.degrees)} jobs, "
        f"{data.repeats} of them repeats with fresh workers."
    )


def blocks(found: Figures) -> Mapping[str, str]:
    """The card's marked blocks by name."""
    return {
        "data": data_text(found.data),
        "families": _families(found.data),
        "purposes": _purposes(found.data),
        "degrees": _degrees(found.data),
        "conditions": _conditions(found.data),
        "noise": _noise(found),
        "split": _split(found),
    }


def _families(data: DataFigures) -> str:
    rows = [
        (each.family, str(len(each.workloads)), ", ".join(each.workloads), str(each.shared_runs))
        for each in data.families
    ]
    return markdown(("family", "workloads", "which", "shared runs"), rows)


def _purposes(data: DataFigures) -> str:
    """Runs by purpose and mode; memory trials and whole jobs apart."""
    kinds = _kinds(data)
    rows = [
        (each.purpose, *_by_kind(each.runs, kinds), str(each.ended_early)) for each in data.purposes
    ]
    table = markdown(("purpose", *kinds, "of these ended early"), rows)
    apart = {
        "try memory on a GPU made to look smaller": data.memory_trials,
        "run whole jobs to their ends": data.whole_jobs,
    }
    said = [f"{count} more {what}." for what, count in apart.items() if count]
    return "\n\n".join([table, *said])


def _degrees(data: DataFigures) -> str:
    kinds = _kinds(data)
    rows = [(str(each.jobs), *_by_kind(each.runs, kinds)) for each in data.degrees]
    return markdown(("jobs at once", *kinds), rows)


def _kinds(data: DataFigures) -> tuple[str, ...]:
    """The columns: kinds of sharing, and priorities where any run had them."""
    return tuple(dict.fromkeys((*KINDS, *data.kinds)))


def _by_kind(runs: Mapping[str, int], kinds: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(runs.get(kind, 0)) for kind in kinds)


def _conditions(data: DataFigures) -> str:
    """What all of it was measured with; several values where there were several."""
    rows = [(name, ", ".join(values)) for name, values in data.conditions.items()]
    return markdown(("what", "value"), rows)


def _noise(found: Figures) -> str:
    steady = found.steadiness
    said = (
        f"{found.data.repeated} scored runs were repeated with fresh workers; "
        f"{steady.steady} of {steady.workloads} workloads in them repeat within 5 % in the median."
    )
    return f"{said} {drift_text(found.scores.drift)}" if found.scores.drift else said


def _split(found: Figures) -> str:
    families = found.scores.families
    return (
        f"{found.data.scored} runs are scored, {found.data.panels} are panels of plans to choose "
        f"from, and {len(families)} families are left out in turn: {', '.join(families)}."
    )
