"""The scoreboard as a table for the terminal, and the same cells as Markdown."""

from typing import TYPE_CHECKING

from advisor.english import counted
from advisor.validate.evaluate import Drift, Evaluation
from advisor.validate.score_words import MODE_WORDS, MODEL, RULE_WORDS, percent
from advisor.validate.scoreboard import ScoreRow
from advisor.validate.scores import Scores, scores_of
from advisor.validate.selection import SPLIT

if TYPE_CHECKING:
    from rich.console import Group

HEADINGS = (
    "sharing",
    "jobs",
    "n",
    "MAPE",
    "median",
    "P90",
    "in 90 % interval",
    "noise floor",
    "throughput MAPE",
    "as if alone",
    "fair share",
    "capacity",
    "replay alone",
)
# The same for a terminal of 80 columns, where per cent go without saying; mode and jobs are one.
_NARROW = (
    "", "n", "MAPE", "med-\nian", "P90", "in\n90 %", "noise\nfloor", "thr.\nMAPE",
    "as if\nalone", "fair\nshare", "capa-\ncity", "only\nreplay",
)  # fmt: skip
_LEGEND = (
    "thr.: throughput of a run, as the sum of solo over shared steps; last four: MAPE of answers "
    "without a fitted model."
)
_BASELINES = ("alone", "fair-share", "capacity", "replay")


def cells(row: ScoreRow) -> tuple[str, ...]:
    """`row` under `HEADINGS`."""
    kind = "all" if row.degree is None else f"{row.degree}, {row.jobs}"
    return (
        MODE_WORDS[row.mode],
        kind,
        str(row.n),
        percent(row.mape),
        percent(row.median),
        percent(row.p90),
        percent(row.coverage90),
        percent(row.noise_floor),
        percent(row.throughput_mape),
        *(percent(row.baselines.get(name)) for name in _BASELINES),
    )


def evaluation_table(evaluation: Evaluation) -> "Group":
    """What ``advisor evaluate`` prints."""
    from rich.box import SIMPLE
    from rich.console import Group

    from advisor.terminal.terminal_tables import FittedTable

    scores = scores_of(evaluation)
    title = f"{scores.gpu}, {SPLIT}: errors of step times in %"
    table = FittedTable(title=title, box=SIMPLE, padding=0, pad_edge=False)
    for heading in _NARROW:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in scores.rows:
        mode, jobs, *numbers = cells(row)
        if row.degree is None:
            table.add_section()
        label = mode if row.degree is None else f"  {jobs}"
        table.add_row(label, *(number.removesuffix(" %") for number in numbers))
    return Group(table, _LEGEND, *remarks(scores))


def remarks(scores: Scores) -> list[str]:
    """What the table cannot say: families, memory, drift, and runs that were not scored."""
    said = [
        f"{counted(scores.runs, 'run')}; each of {counted(len(scores.families), 'family')} "
        f"predicted without it: {', '.join(scores.families)}."
    ]
    said += [
        f"Memory under {MODE_WORDS[row.mode]}: {percent(row.memory_mape)} off a process, "
        f"{percent(row.memory_total_mape)} off the total."
        for row in scores.pooled
        if row.memory_mape is not None
    ]
    if scores.drift:
        said.append(drift_text(scores.drift))
    if scores.unusable:
        said.append(
            f"{scores.unusable} drawn runs are not scored: a tenant ended early or has no "
            "profile, or the speed of its host's cores was not recorded, as before the third "
            "campaign. `advisor evaluate --json` names them."
        )
    return [*said, *regret_lines(scores)]


def drift_text(drift: Drift) -> str:
    """How much pace alone moved, in a sentence."""
    return (
        f"{drift.n} solo runs between the shared ones lie {percent(drift.median)} off their "
        f"profiles in the median, {percent(drift.worst)} at worst ({drift.worst_job})."
    )


def regret_lines(scores: Scores) -> list[str]:
    """The regret of the model's choices and of rules, in measured throughput."""
    kinds = {"run to be chosen from": scores.chosen, "drawn in several modes": scores.drawn}
    said = []
    for kind, judged in kinds.items():
        found = judged.rules
        if ours := found[MODEL].n:
            rules = [
                f"{RULE_WORDS[name]} {percent(found[name].mean)} and {percent(found[name].worst)}"
                for name in ("always-mps", "equal-limits", "always-naive")
                if found[name].n
            ]
            said.append(
                f"Job sets {kind}: {ours}. Choosing the highest predicted throughput gave away "
                f"{percent(found[MODEL].mean)} of the best measured one on average, "
                f"{percent(found[MODEL].worst)} at worst; {'; '.join(rules)}."
            )
    return said
