"""Tables of all kinds of steps: that of docs/accuracy.md, and rules to compare."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from research.score_tables import BOUND_WORDS, MODE_HEADINGS, MODE_WORDS, RULE_WORDS, markdown
from research.scoreboard import ALL, PARTS, Bound, Part, ScoreRow, Scores
from research.scripts import ScriptErrors
from research.steps import joined

_HEADINGS = (
    "steps of",
    "sharing",
    "steps",
    "MAPE",
    "noise",
    "MAPE there",
    "fair share",
    "in 90 % interval",
)
_BY_MODE = tuple(MODE_HEADINGS.values())
_PEERS = ("fair-share", "summed-utilisation", "miso", "kace")
_RULES = ("replay", *_PEERS, "capacity", "alone")
_Value = Callable[[ScoreRow], float | None]


@dataclass(frozen=True, slots=True)
class _Line:
    """The rows of one line, by mode; those of a mode are pooled."""

    name: str
    rows: Sequence[ScoreRow]

    def n(self, mode: Mode | None = None) -> int:
        """Return the number of jobs of `mode`, or of all."""
        return sum(row.n for row in self.rows if mode in (None, row.mode))

    def pooled(self, value: _Value, mode: Mode | None = None) -> float | None:
        """Return the mean over the jobs of `mode`, or of all; None if a row has none."""
        rows = [row for row in self.rows if mode in (None, row.mode)]
        shares = [(share, row.n) for row in rows if (share := value(row)) is not None]
        if not rows or len(shares) < len(rows):
            return None
        return sum(share * n for share, n in shares) / sum(n for _, n in shares)

    def repeated(self, value: _Value, mode: Mode | None = None) -> float | None:
        """Return the mean over the jobs of `mode`, or of all, that ran twice; None without any."""
        rows = [row for row in self.rows if mode in (None, row.mode) and row.noise_n]
        shares = [(share, row.noise_n) for row in rows if (share := value(row)) is not None]
        return sum(share * n for share, n in shares) / sum(n for _, n in shares) if shares else None


def _lines(scores: Scores, bound: Bound = ALL) -> list[_Line]:
    """Return the lines of the zoo: other hosts than the profiles', the profiles' host, all."""
    words: dict[Part, str] = {"drawn": "drawn runs", "panels": "panels"}
    pooled, of_hosts = [], []
    for part in PARTS:
        pooled += [row for row in scores.pooled(part=part) if row.bound == bound]
        for host in scores.hosts(part):
            of_hosts += [row for row in scores.pooled(host, part) if row.bound == bound]
    lines = [
        _Line(
            f"zoo, {where}, {words[part]}",
            [row for row in of_hosts if row.part == part and (row.host == scores.home) is home],
        )
        for where, home in (("other hosts", False), ("the profiles' host", True))
        for part in PARTS
    ]
    return [line for line in (*lines, _Line("**all of the zoo**", pooled)) if line.rows]


def pooled_zoo(scores: Scores) -> list[_Line]:
    """Return the line of all of the zoo; none if it has no runs."""
    return _lines(scores)[-1:]


def headline(scores: Scores, scripts: Iterable[ScriptErrors]) -> str:
    """Return two tables of docs/accuracy.md in Markdown: steps by sharing, rules to compare."""
    lines = _lines(scores)
    rows = [*_scripts_rows(scripts), *(row for line in lines for row in _zoo_rows(line))]
    rules = [(RULE_WORDS[name], *_rule_cells(lines[-1], name)) for name in _PEERS if lines]
    return joined(
        markdown(_HEADINGS, rows),
        "The MAPE of simple rules for all of the zoo:",
        markdown(("rule", "steps", *_BY_MODE), rules),
    )


def _scripts_rows(scripts: Iterable[ScriptErrors]) -> Iterator[tuple[str, ...]]:
    by_name = {row.name: row for row in scripts}
    for name, words in {**MODE_HEADINGS, "all": "all"}.items():
        if row := by_name.get(name):
            shares = (row.mape, row.noise, row.noise_mape, row.fair_share, row.inside)
            yield (
                "**scripts, which the model never saw**",
                words,
                str(row.steps),
                *map(percent, shares),
            )


def _zoo_rows(line: _Line) -> Iterator[tuple[str, ...]]:
    for mode, words in zip((*SHARED_MODES, None), (*_BY_MODE, "all"), strict=True):
        shares = (
            line.pooled(lambda row: row.mape, mode),
            line.repeated(lambda row: row.noise, mode),
            line.repeated(lambda row: row.noise_mape, mode),
            line.pooled(lambda row: row.baselines.get("fair-share"), mode),
            line.pooled(lambda row: row.coverage90, mode),
        )
        yield line.name, words, str(line.n(mode)), *map(percent, shares)


def _rule_cells(line: _Line, rule: str) -> tuple[str, ...]:
    """Return the number of jobs that the rule covers, and its errors by mode."""
    errors = {mode: line.pooled(lambda row: row.baselines.get(rule), mode) for mode in SHARED_MODES}
    n = sum(row.n for row in line.rows if errors[row.mode] is not None)
    return str(n), *map(percent, errors.values())


def rules_section(scores: Scores) -> str:
    """Return the errors by every rule and with a factor for the host, with headings."""
    parts = [
        "## Rules for the same steps",
        "MAPE of the steps of drawn runs and panels together:",
        rules_table(scores),
    ]
    if scores.pooled(view="host-checked"):
        parts += [
            "All drawn runs, with and without a factor for the host where one was recorded:",
            host_checked_table(scores),
        ]
    return joined(*parts)


def rules_table(scores: Scores) -> str:
    """Return the errors of this model and of every rule for the same steps, in Markdown."""
    rows = []
    for bound in BOUND_WORDS:
        for line in _lines(scores, bound)[-1:]:
            ours = (line.pooled(lambda row: row.mape, mode) for mode in SHARED_MODES)
            model = (RULE_WORDS["model"], str(line.n()), *map(percent, ours))
            others = ((RULE_WORDS[rule], *_rule_cells(line, rule)) for rule in _RULES)
            rows += [(BOUND_WORDS[bound], *cells) for cells in (model, *others)]
    return markdown(("jobs", "rule", "steps", *_BY_MODE), rows)


def host_checked_table(scores: Scores) -> str:
    """Return errors with and without a factor for the host, for the same runs, in Markdown."""
    pairs = zip(scores.pooled(), scores.pooled(view="host-checked"), strict=True)
    rows = [
        (
            MODE_WORDS[row.mode],
            BOUND_WORDS[row.bound],
            str(row.n),
            percent(raw.mape),
            percent(row.mape),
        )
        for raw, row in pairs
    ]
    headings = ("sharing", "jobs", "n", "MAPE", "MAPE, host checked")
    return markdown(headings, rows)
