"""Writes numbers, modes and rules in the same way in all results."""

from collections.abc import Iterable, Sequence

MODEL = "model"
MODE_WORDS = {"naive": "naive", "mps": "MPS", "mps-limits": "MPS limits"}
RULE_WORDS = {
    MODEL: "this model",
    "alone": "as if alone",
    "fair-share": "fair share",
    "summed-utilisation": "summed utilisation",
    "capacity": "capacity",
    "replay": "replay alone",
    "always-serial": "always one after another",
    "always-naive": "always naive",
    "always-mps": "always MPS",
    "equal-limits": "equal limits",
}


def percent(share: float | None) -> str:
    """A share as per cent; a dash where there is none."""
    return "-" if share is None else f"{100 * share:.1f} %"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are text without bars."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
