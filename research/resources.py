"""Sections of profiles/REPORT.md on memory, power and activity of mixes."""

from collections.abc import Sequence

from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from research.memory_risk import RiskRow
from research.memory_score import MemoryScore
from research.power_score import PowerRow

POWER_HEADINGS = (
    "sharing", "pace", "n", "power MAPE", "in 90 % interval", "power noise", "GRACT off",
    "GRACT noise", "SMACT off", "SMACT noise",
)  # fmt: skip
MEMORY_HEADINGS = (
    "sharing", "processes", "held, MAPE", "held, worst", "least, MAPE", "runs", "total, MAPE",
)  # fmt: skip
RISK_HEADINGS = (
    "sharing", "trials", "ran out", "misfits said", "false alarms", "misfits said without caches",
    "false alarms likewise", "Brier score",
)  # fmt: skip
BIN_HEADINGS = ("sharing", "trials", "mean risk predicted", "share that ran out")


def power(scores: Sequence[PowerRow]) -> str:
    """Power and activity of the whole GPU, and how much two runs of the same jobs differ."""
    if not scores:
        return ""
    rows = [
        (MODE_WORDS[row.mode], row.pace, str(row.n), percent(row.power_mape),
         percent(row.power_coverage90), percent(row.power_noise), _points(row.gract_error),
         _points(row.gract_noise), _points(row.smact_error), _points(row.smact_noise))
        for row in scores
    ]  # fmt: skip
    return "\n\n".join([
        "## Power and activity of the GPU",
        markdown(POWER_HEADINGS, rows),
        "At the measured pace the laws of power stand alone; at the predicted pace is what a user "
        "gets. Activity is in points of a hundred: GRACT of time, SMACT of SMs and time.",
    ])  # fmt: skip


def memory(score: MemoryScore) -> str:
    """Memory of processes and mixes, and whether mixes run out as often as predicted."""
    rows = [
        (MODE_WORDS[row.mode], str(row.processes), percent(row.held_mape), percent(row.held_worst),
         percent(row.least_mape), str(row.runs), percent(row.total_mape))
        for row in score.rows
    ]  # fmt: skip
    said = ["## Memory", markdown(MEMORY_HEADINGS, rows)] if rows else []
    if said:
        said.append(
            "Held is what a process has on the device when nothing stops it, least what suffices "
            "when its allocator is capped."
        )
    return "\n\n".join([*said, *_risks(score)])


def _risks(score: MemoryScore) -> list[str]:
    if not score.risks:
        return []
    bins = [
        (MODE_WORDS[row.mode], f"{each.trials:.1f}", percent(each.predicted),
         percent(each.observed))
        for row in score.risks for each in row.bins
    ]  # fmt: skip
    return [
        "## Running out of memory",
        markdown(RISK_HEADINGS, map(_risk_cells, score.risks)),
        "Trials ran on the GPU made to look like smaller cards. A mix is said not to fit from a "
        "risk of 50 % on. The rule without caches takes it that no process gives up its cache. A "
        "trial of several families counts in parts, once for each family left out.",
        markdown(BIN_HEADINGS, bins),
    ]


def _risk_cells(row: RiskRow) -> tuple[str, ...]:
    shares = (row.recall, row.false_alarms, row.cautious_recall, row.cautious_false_alarms)
    counts = (str(row.trials), str(row.misfits))
    return (MODE_WORDS[row.mode], *counts, *map(percent, shares), f"{row.brier:.3f}")


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
