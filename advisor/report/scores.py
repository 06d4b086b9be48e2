"""The scoreboard of predictions as table and JSON, with the words for modes, rules and shares."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from rich.box import SIMPLE
from rich.console import Group

from advisor.documents import Inline
from advisor.errors import counted
from advisor.learn.evaluate import SPLIT, Evaluation
from advisor.learn.regret import AT_RANDOM, MODEL, Choices, Regret
from advisor.learn.scoreboard import ALL, Bound, ScoreRow, Scores, scores_of
from advisor.report.format import FittedTable

MODE_WORDS = {"serial": "alone", "naive": "naive", "mps": "MPS", "mps-limits": "MPS limits"}
RULE_WORDS = {
    MODEL: "this model",
    AT_RANDOM: "a random choice",
    "alone": "as if alone",
    "fair-share": "fair share",
    "summed-utilisation": "summed utilisation",
    "miso": "our reading of MISO's rule",
    "kace": "our reading of KACE's regression",
    "capacity": "capacity",
    "replay": "replay alone",
    "always-serial": "always one after another",
    "always-naive": "always naive",
    "always-mps": "always MPS",
    "equal-limits": "equal limits",
}
BOUND_WORDS: Mapping[Bound, str] = {"all": "all", "gpu": "GPU-bound", "host": "host-bound"}

REGRET_HEADINGS = ("choice by", "job sets", "mean regret", "worst", "sets with the best choice")
CHOICE_HEADINGS = (*REGRET_HEADINGS, "worst beyond the noise", "this model, same sets")

HEADINGS = (
    "sharing",
    "jobs",
    "n",
    "MAPE",
    "median",
    "P90",
    "in 90 % interval",
    "width of it",
    "noise",
    "MAPE there",
    "throughput MAPE",
    "replay alone",
    "fair share",
    "as if alone",
)
# The same for a terminal of 80 columns, without units; mode and jobs share a column.
_NARROW = HEADINGS[2:-1]
_NARROW_WORDS = (
    "",
    "n",
    "MAPE",
    "med-\nian",
    "P90",
    "in\n90 %",
    "wide",
    "noise",
    "MAPE\nthere",
    "thr.",
    "only\nreplay",
    "fair\nshare",
)
_LEGEND = (
    "GPU-bound: jobs that keep the GPU busy for 90 % of a step alone. Wide: mean width of the "
    "interval. Noise: mean difference of two runs of the same jobs; there: of these jobs. Thr.: "
    "throughput of a run, as the sum of solo over shared steps. Last two: MAPE of answers without "
    "a fitted model."
)


def percent(share: float | None) -> str:
    """Return a share in per cent, or a dash for None."""
    return "-" if share is None else f"{100 * share:.1f} %"


def markdown(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; cells are text without bars."""
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _kind(row: ScoreRow) -> str:
    return BOUND_WORDS[row.bound] if row.degree is None else f"{row.degree}, {row.jobs}"


def score_cells(rows: Iterable[ScoreRow], shown: Sequence[str] = HEADINGS) -> list[list[str]]:
    """Return each of `rows` under those of `HEADINGS` that are `shown`."""
    table = []
    for row in rows:
        cells = {"sharing": MODE_WORDS[row.mode], "jobs": _kind(row), "n": str(row.n)}
        shares = {
            "MAPE": row.mape,
            "median": row.median,
            "P90": row.p90,
            "in 90 % interval": row.coverage90,
            "width of it": row.width90,
            "noise": row.noise,
            "MAPE there": row.noise_mape,
            "throughput MAPE": row.throughput_mape,
            **{RULE_WORDS[name]: mape for name, mape in row.baselines.items()},
        }
        cells |= {heading: percent(share) for heading, share in shares.items()}
        table.append([cells.get(heading, "-") for heading in shown])
    return table


def evaluation_table(evaluation: Evaluation) -> Group:
    """Return what ``advisor evaluate`` prints."""
    scores = scores_of(evaluation)
    title = f"{scores.gpu}, {SPLIT}: errors of step times in %"
    table = FittedTable(title=title, box=SIMPLE, padding=0, pad_edge=False)
    for heading in _NARROW_WORDS:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for label, row in _labelled(scores):
        if not label.startswith(" "):
            table.add_section()
        numbers = [] if row is None else score_cells([row], _NARROW)[0]
        table.add_row(label, *(cell.removesuffix(" %") for cell in numbers))
    return Group(table, _LEGEND, *remarks(scores))


def _labelled(scores: Scores) -> Iterator[tuple[str, ScoreRow | None]]:
    """Each mode with its pooled rows and each degree, then panels and each host; with labels."""
    for whole in scores.pooled():
        if whole.bound == ALL:
            yield MODE_WORDS[whole.mode], whole
            parts = [row for row in scores.pooled() if row.bound != ALL]
            parts += [row for row in scores.by_degree() if row.degree is not None]
            yield from ((f"  {_kind(row)}", row) for row in parts if row.mode == whole.mode)
    hosts = scores.hosts() if len(scores.hosts()) > 1 else ()
    further = {"panels": scores.pooled(part="panels")} | {h: scores.pooled(h) for h in hosts}
    for label, rows in further.items():
        if rows:
            yield label, None
            yield from ((f"  {MODE_WORDS[row.mode]}", row) for row in rows if row.bound == ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegretAnswer:
    """Regret of the model's choices, as shares; `baselines` are other rules."""

    model: Annotated[Regret, Inline("n", "mean", "worst", "best", "ours")]
    noise: float | None
    worst_beyond_noise: float | None
    baselines: dict[str, float | None]
    baselines_worst: dict[str, float | None]
    baselines_n: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationAnswer:
    """Scores of predictions for model families left out of the fit; errors are shares.

    Attributes:
        rows: An entry for each mode and degree, and one with degree null for each mode, of all
            hosts and jobs.
        rows_by_jobs: Equal jobs apart from mixes.
        panels: The rows of the runs from which plans are chosen.
    """

    gpu: str
    split: str
    families: tuple[str, ...]
    rows: tuple[ScoreRow, ...]
    regret: RegretAnswer
    rows_by_jobs: tuple[ScoreRow, ...]
    panels: tuple[ScoreRow, ...]
    unusable_runs: tuple[str, ...]


def evaluation_answer(evaluation: Evaluation) -> EvaluationAnswer:
    """Return what ``advisor evaluate --json`` prints: shares, not per cent."""
    scores = scores_of(evaluation)
    drawn = [row for row in scores.rows if row.part == "drawn"]
    panels = [row for row in scores.rows if row.part == "panels"]
    return EvaluationAnswer(
        gpu=scores.gpu,
        split=SPLIT,
        families=tuple(scores.families),
        rows=tuple(row for row in drawn if row.jobs == ALL),
        regret=regret_answer(scores.chosen),
        rows_by_jobs=tuple(row for row in drawn if row.jobs != ALL),
        panels=tuple(row for row in panels if row.jobs == ALL),
        unusable_runs=tuple(evaluation.chosen.unusable),
    )


def regret_answer(chosen: Choices) -> RegretAnswer:
    """Return mean, worst and n of the model's choices; `baselines` has the mean of each rule."""
    others = {name: each for name, each in chosen.rules.items() if name != MODEL}
    return RegretAnswer(
        model=chosen.rules[MODEL],
        noise=chosen.noise,
        worst_beyond_noise=chosen.worst_beyond_noise(MODEL),
        baselines={name: each.mean for name, each in others.items()},
        baselines_worst={name: each.worst for name, each in others.items()},
        baselines_n={name: each.n for name, each in others.items()},
    )


def remarks(scores: Scores) -> list[str]:
    """Return notes on families, regret, and runs that were not scored."""
    notes = [
        f"{counted(scores.runs, 'run')}; each of {counted(len(scores.families), 'family')} "
        f"predicted without it: {', '.join(scores.families)}."
    ]
    if scores.unusable:
        notes.append(
            f"{counted(scores.unusable, 'drawn run')} not scored: a tenant ended early or has no "
            "profile. `advisor evaluate --json` names them."
        )
    kinds = {"run to be chosen from": scores.chosen, "drawn in several modes": scores.drawn}
    for kind, regrets in ((kind, judged.rules) for kind, judged in kinds.items()):
        if not regrets[MODEL].n:
            continue
        rules = [
            f"{RULE_WORDS[name]} {percent(regrets[name].mean)} and {percent(regrets[name].worst)}"
            for name in ("fair-share", "always-mps", "equal-limits", "always-naive", AT_RANDOM)
            if name in regrets and regrets[name].n
        ]
        notes.append(
            f"Job sets {kind}: {regrets[MODEL].n}. Choosing as `recommend` does lost "
            f"{percent(regrets[MODEL].mean)} of the best measured one on average, "
            f"{percent(regrets[MODEL].worst)} at worst; {'; '.join(rules)}."
        )
    return notes


def regret_rows(
    rules: Mapping[str, Regret], words: Mapping[str, str] = RULE_WORDS
) -> list[tuple[str, ...]]:
    """Return a line under `REGRET_HEADINGS` for each rule of choice, best first."""
    return [
        (
            words.get(name, name),
            str(each.n),
            percent(each.mean),
            percent(each.worst),
            f"{each.best} of {each.n}",
        )
        for name, each in _ranked(rules)
    ]


def choice_rows(choices: Choices) -> list[tuple[str, ...]]:
    """Return a line under `CHOICE_HEADINGS` for each rule of choice, best first."""
    rows = zip(regret_rows(choices.rules), _ranked(choices.rules), strict=True)
    return [
        (*row, percent(choices.worst_beyond_noise(name)), percent(each.ours))
        for row, (name, each) in rows
    ]


def _ranked(rules: Mapping[str, Regret]) -> list[tuple[str, Regret]]:
    judged = [(name, each) for name, each in rules.items() if each.n]
    return sorted(judged, key=lambda pair: pair[1].mean or 0.0)
