"""The numbers in documents that people wrote: README.md, docs/ and the data card, by block."""

from collections.abc import Mapping
from pathlib import Path

from advisor.validate.regret import MODEL, Choices
from advisor.validate.score_row import ALL
from advisor.validate.score_tables import (
    CHOICE_HEADINGS,
    MODE_WORDS,
    choice_rows,
    markdown,
    percent,
    score_cells,
)
from research import (
    advice_score,
    another_host,
    breakdown,
    choices_by_host,
    data_card,
    gpu_left_out,
    recommended,
    set_aside,
)
from research.figures import Figures
from research.own_pace_score import own_pace_table
from research.own_step_score import own_step_table
from research.priority_score import priority_table
from research.script_table import script_tables
from research.sections import joined, noise_text
from research.slice_table import slice_tables
from research.studies_reproduced import studies_in_short, studies_text
from research.translation_table import translation_table

_COLUMNS = (
    "sharing", "jobs", "n", "MAPE", "core speeds known", "median", "P90", "in 90 % interval",
    "width of it", "noise floor", "replay alone", "fair share",
)  # fmt: skip
_FEW_COLUMNS = (
    "sharing", "n", "MAPE", "GPU-bound jobs", "host-bound jobs", "in 90 % interval", "noise floor",
    "fair share",
)  # fmt: skip


def blocks(found: Figures) -> Mapping[Path, Mapping[str, str]]:
    """The marked blocks of each document that a hand wrote, by its path below the root."""
    measured = data_card.data_text(found.data)
    return {
        Path("README.md"): {
            "recommend": "\n".join(["```", *found.recommendation, "```"]),
            "data": measured,
            "accuracy": _accuracy_in_short(found),
            "studies": studies_in_short(),
        },
        Path("docs", "accuracy.md"): {
            "data": measured,
            "accuracy": _accuracy(found),
            "left-out": gpu_left_out.tables(found.left_out),
            "priorities": priority_table(),
            "validation": _advice(found),
            "own-pace": own_pace_table(),
            "own-steps": own_step_table(),
        },
        Path("docs", "other-gpus.md"): {
            "translated": translation_table(),
            "slices": slice_tables(),
            "studies": studies_text(),
        },
        Path("docs", "your-own-train-py.md"): {"measured": script_tables(_by_pace(found))},
        Path("profiles", "DATA_CARD.md"): data_card.blocks(found),
    }


def _by_pace(found: Figures) -> Mapping[tuple[str, str], float]:
    """MAPE of all hosts pooled, by mode and by what paces a job."""
    return {(row.mode, row.bound): row.mape for row in found.scores.pooled()}


def _accuracy_in_short(found: Figures) -> str:
    """What README says: a line for each way of sharing, and what choices gave away."""
    scores = {(row.mode, row.bound): row for row in found.scores.pooled()}
    rows = []
    for (mode, bound), row in scores.items():
        if bound == ALL:
            gpu, host = scores.get((mode, "gpu")), scores.get((mode, "host"))
            rows.append((
                MODE_WORDS[mode], str(row.n), percent(row.mape),
                *(percent(None if each is None else each.mape) for each in (gpu, host)),
                percent(row.coverage90), percent(row.noise_floor),
                percent(row.baselines.get("fair-share")),
            ))  # fmt: skip
    return joined(
        markdown(_FEW_COLUMNS, rows),
        *another_host.in_short(found.elsewhere),
        *_chosen_in_short(found.scores.chosen),
    )


def _chosen_in_short(judged: Choices) -> tuple[str, ...]:
    if not judged.sets:
        return ()
    ours, mps, serial = (judged.rules[rule] for rule in (MODEL, "always-mps", "always-serial"))
    return (
        f"Of {ours.n} job sets that ran under several plans, the choice by these predictions was "
        f"the best measured one for {ours.best}, and gave away {percent(ours.mean)} of the best "
        f"measured throughput in the mean, {percent(ours.worst)} at worst; always MPS "
        f"{percent(mps.mean)} and {percent(mps.worst)}, never sharing {percent(serial.mean)} and "
        f"{percent(serial.worst)}.",
    )


def _accuracy(found: Figures) -> str:
    """All hosts pooled, each host, and what was measured again."""
    scores = found.scores
    return joined(
        markdown(_COLUMNS, score_cells(scores, scores.pooled(), _COLUMNS)),
        "By host, MAPE of all jobs and in parentheses of GPU-bound ones:",
        markdown(breakdown.HOST_HEADINGS, breakdown.host_rows(scores)),
        *another_host.said(found.elsewhere),
        *set_aside.said(found.set_aside),
    )


def _advice(found: Figures) -> str:
    """How close the runs of advice came to their predictions, and what choices gave away."""
    came_true, judged = advice_score.came_true(found.advice), found.scores.chosen
    if not judged.sets:
        return came_true
    how_many = f"Job sets that ran in several ways: {judged.sets}."
    table = markdown(CHOICE_HEADINGS, choice_rows(judged))
    beforehand = recommended.summary(found.recommended)
    rest = filter(None, [choices_by_host.said(found.hosts), beforehand])
    return joined(came_true, f"{how_many} {noise_text(judged)}", table, *rest)
