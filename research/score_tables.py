"""The scoreboard of predictions as Markdown, with the words for modes, rules and shares."""

from collections.abc import Iterable, Mapping, Sequence

from advisor.errors import counted
from advisor.report.format import percent
from research.regret import AT_RANDOM, MODEL, Choices, Regret
from research.scoreboard import Bound, ScoreRow, Scores

MODE_WORDS = {"serial": "alone", "naive": "naive", "mps": "MPS", "mps-limits": "MPS limits"}
# Modes in tables, by the words for them in figures.json and others.json.
MODE_HEADINGS = {"naive": "time-slicing", "MPS": "MPS", "MPS limits": "SM limits"}
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


def remarks(scores: Scores) -> list[str]:
    """Return notes on families, regret, and runs that were not scored."""
    notes = [
        f"{counted(scores.runs, 'run')}; each of {counted(len(scores.families), 'family')} "
        f"predicted without it: {', '.join(scores.families)}."
    ]
    if scores.unusable:
        notes.append(
            f"{counted(scores.unusable, 'drawn run')} not scored: a tenant ended early or has no "
            "profile."
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
