"""Tables of all kinds of steps: that of docs/accuracy.md, and rules to compare."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from research.score_tables import BOUND_WORDS, MODE_WORDS, RULE_WORDS, markdown
from research.scoreboard import ALL, PARTS, Bound, Part, ScoreRow, Scores
from research.scripts import ScriptErrors
from research.steps import joined

_HEADINGS = (
    "steps of",
    "n",
    "MAPE: time-slicing / MPS / SM limits",
    "noise",
    "MAPE there",
    "fair share",
    "in 90 % interval",
)
_PEERS = ("fair-share", "summed-utilisation", "miso", "kace")
_RULES = ("replay", *_PEERS, "capacity", "alone")
_Value = Callable[[ScoreRow], float | None]


@dataclass(frozen=True, slots=True)
class _Line:
    """The rows of one line, by mode; those of a mode are pooled."""

    name: str
    rows: Sequence[ScoreRow]

    @property
    def n(self) -> int:
        return sum(row.n for row in self.rows)

    def pooled(self, value: _Value, mode: Mode | None = None) -> float | None:
        """Return the mean over the jobs of `mode`, or of all; None if a row has none."""
        rows = [row for row in self.rows if mode in (None, row.mode)]
        shares = [(share, row.n) for row in rows if (share := value(row)) is not None]
        if not rows or len(shares) < len(rows):
            return None
        return sum(share * n for share, n in shares) / sum(n for _, n in shares)

    def repeated(self, value: _Value, mode: Mode) -> float | None:
        """Return the mean over the jobs of `mode` that ran twice; None without any."""
        rows = [row for row in self.rows if row.mode == mode and row.noise_n]
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
    """Return the table of docs/accuracy.md in Markdown."""
    lines = _lines(scores)
    rows = [_scripts_row(scripts), *map(_zoo_row, lines)]
    peers = ((RULE_WORDS[name], lines[-1], name) for name in _PEERS) if lines else ()
    for words, line, name in peers:
        rows.append((f"same steps by {words}", *_rule_cells(line, name), "-", "-", "-", "-"))
    return markdown(_HEADINGS, rows)


def _scripts_row(scripts: Iterable[ScriptErrors]) -> tuple[str, ...]:
    by_name = {row.name: row for row in scripts}
    of_modes = [by_name.get(MODE_WORDS[mode]) for mode in SHARED_MODES]
    every = by_name["all"]
    return (
        "**scripts, which the model never saw**",
        str(every.steps),
        triple(row.mape if row else None for row in of_modes),
        triple(row.noise if row else None for row in of_modes),
        triple(row.noise_mape if row else None for row in of_modes),
        triple(row.fair_share if row else None for row in of_modes),
        percent(every.inside),
    )


def _zoo_row(line: _Line) -> tuple[str, ...]:
    return (
        line.name,
        str(line.n),
        triple(line.pooled(lambda row: row.mape, mode) for mode in SHARED_MODES),
        triple(line.repeated(lambda row: row.noise, mode) for mode in SHARED_MODES),
        triple(line.repeated(lambda row: row.noise_mape, mode) for mode in SHARED_MODES),
        _rule_cells(line, "fair-share")[1],
        percent(line.pooled(lambda row: row.coverage90)),
    )


def _rule_cells(line: _Line, rule: str) -> tuple[str, str]:
    """Return the number of jobs that the rule covers, and its errors."""
    errors = {mode: line.pooled(lambda row: row.baselines.get(rule), mode) for mode in SHARED_MODES}
    n = sum(row.n for row in line.rows if errors[row.mode] is not None)
    return str(n), triple(errors.values())


def rules_section(scores: Scores) -> str:
    """Return the errors by every rule and with a factor for the host, with headings."""
    parts = [
        "## Rules for the same steps",
        "Drawn runs and panels together:",
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
            ours = triple(line.pooled(lambda row: row.mape, mode) for mode in SHARED_MODES)
            rows.append((BOUND_WORDS[bound], RULE_WORDS["model"], str(line.n), ours))
            rows += [
                (BOUND_WORDS[bound], RULE_WORDS[rule], *_rule_cells(line, rule)) for rule in _RULES
            ]
    return markdown(("jobs", "rule", "n", "MAPE: time-slicing / MPS / SM limits"), rows)


def triple(shares: Iterable[float | None]) -> str:
    """Return shares of naive, MPS and MPS limits in per cent, in one cell."""
    cells = ["-" if share is None else f"{100 * share:.1f}" for share in shares]
    return "-" if set(cells) == {"-"} else f"{' / '.join(cells)} %"


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
