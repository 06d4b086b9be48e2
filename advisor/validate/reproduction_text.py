"""What ``advisor reproduce`` says, as tables and as JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from advisor.english import counted
from advisor.validate.reproduce import Reproduced, Reproduction
from advisor.validate.study_claims import Claim
from advisor.validate.study_questions import GPU

if TYPE_CHECKING:
    from rich.console import Group

_UNSAID = "nobody found out why yet"


def reproduction_table(found: Reproduction) -> "Group":
    """A line for each row of the studies, then how many agree."""
    from rich.box import SIMPLE
    from rich.console import Group

    from advisor.terminal.terminal_tables import FittedTable

    rows = FittedTable(box=SIMPLE, padding=(0, 1), pad_edge=False, show_edge=False)
    for heading in (
        "row",
        "the study",
        "found",
        "predicted",
        "as told",
        "slower host",
        "agrees",
        "why not",
    ):
        rows.add_column(heading)
    for each in found.found:
        for name in each.claim.ids:
            rows.add_row(*_cells(found, each, name))
    return Group(rows, "", *_summary(found))


def _cells(found: Reproduction, each: Reproduced, name: str) -> tuple[str, ...]:
    return (
        name,
        each.claim.says,
        bounds_words(each.claim),
        span_words(each.claim, each.predicted),
        span_words(each.claim, each.from_alone),
        span_words(each.claim, each.slower_host),
        _verdict(each),
        _why(found, each, name),
    )


def _verdict(each: Reproduced) -> str:
    if each.agrees:
        return "yes" if each.agrees_as_told else "not as told"
    if each.agrees_as_told:
        return "as told"
    return "on a slower host" if each.agrees_on_slower_host else "no"


def _wholly(each: Reproduced) -> bool:
    """Whether nothing is to be explained: it agrees from the profiles and as told."""
    return each.agrees and each.agrees_as_told


def _why(found: Reproduction, each: Reproduced, name: str) -> str:
    parts = [] if _wholly(each) else [each.claim.contested or found.cause(name) or _UNSAID]
    parts += [f"{there} stands for {name}" for name, there in each.instead.items()]
    return "; ".join(parts)


def bounds_words(claim: Claim) -> str:
    """What the study found, without the tolerance."""
    low, high = claim.low, claim.high
    if low == high and low is not None:
        return _number(claim, low)
    if high is None:
        return f"at least {_number(claim, low or 0.0)}"
    if low is None:
        return f"at most {_number(claim, high)}"
    return f"{_plain(claim, low)} to {_number(claim, high)}"


def span_words(claim: Claim, values: Mapping[str, float]) -> str:
    """The least and the greatest of the values that the bounds hold for."""
    taken = claim.taken(tuple(values.values()))
    low, high = min(taken), max(taken)
    if _plain(claim, low) == _plain(claim, high):
        return _number(claim, low)
    return f"{_plain(claim, low)} to {_number(claim, high)}"


def _number(claim: Claim, value: float) -> str:
    unit = {"share": " %", "points": " points", "x": "x"}.get(claim.unit, f" {claim.unit}")
    return _plain(claim, value) + unit


def _plain(claim: Claim, value: float) -> str:
    if claim.unit in ("share", "points"):
        return f"{100 * value:.{1 if abs(value) < 0.1 else 0}f}"
    return f"{value:,.{0 if value >= 100 else 2}f}"


def _summary(found: Reproduction) -> Iterator[str]:
    for each in found.scores:
        yield (
            f"{each.kind}: {each.agree} of {counted(each.rows, 'row')} agree, "
            f"{each.agree_as_told} as told, {each.agree_on_slower_host} on a host "
            f"{found.claims.slower_host:g} times as slow"
        )
    left = len(found.claims.unchecked)
    contested = sum(len(each.claim.ids) for each in found.found if each.claim.contested)
    yield (
        f"Predicted for {GPU}, where nothing was measured. Not counted: "
        f"{counted(contested, 'row')} that the same authors contest later, and "
        f"{counted(left, 'row')} that ask nothing of a prediction (--json lists them)."
    )


def reproduction_document(found: Reproduction) -> dict[str, Any]:
    """What ``advisor reproduce --json`` prints."""
    return {
        "schema": 1,
        "gpu": GPU,
        "slower_host": found.claims.slower_host,
        "scores": [asdict(each) for each in found.scores],
        "rows": [_row(found, each, name) for each in found.found for name in each.claim.ids],
        "unchecked": [{"id": name, "why": why} for name, why in found.claims.unchecked.items()],
    }


def _row(found: Reproduction, each: Reproduced, name: str) -> dict[str, Any]:
    claim = each.claim
    return {
        "id": name,
        "kind": claim.kind,
        "says": claim.says,
        "metric": claim.metric,
        "unit": claim.unit,
        "found": {"low": claim.low, "high": claim.high, "tolerance": claim.tolerance},
        "predicted": dict(each.predicted),
        "predicted_as_told": dict(each.from_alone),
        "predicted_on_slower_host": dict(each.slower_host),
        "agrees": each.agrees,
        "agrees_as_told": each.agrees_as_told,
        "agrees_on_slower_host": each.agrees_on_slower_host,
        "contested": claim.contested,
        "why_not": None if _wholly(each) else claim.contested or found.cause(name),
        "instead": dict(each.instead),
    }
