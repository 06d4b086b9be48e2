"""The targets of the predictions and what was reached, met or not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from research.figures import Figures
from research.regret import MODEL
from research.score_tables import MODE_WORDS, markdown
from research.scoreboard import ALL, ScoreRow
from research.steps import joined
from research.whole_jobs import RECOMMENDED

# Largest mean absolute errors of a step: of drawn runs and of panels from profiles as they were
# measured, of drawn runs with the host's speed known, and of runs on a GPU that no run was seen of.
_DRAWN: Mapping[Mode, float] = {"naive": 0.031, "mps": 0.064, "mps-limits": 0.084}
_PANELS: Mapping[Mode, float] = {"naive": 0.041, "mps": 0.094, "mps-limits": 0.109}
_HOST_KNOWN: Mapping[Mode, float] = {"naive": 0.029, "mps": 0.060, "mps-limits": 0.074}
_OTHER_GPU: Mapping[Mode, float] = {"naive": 0.027, "mps": 0.067, "mps-limits": 0.076}
_OF_H100 = ("h200-141gb", "h100-sxm-80gb")
_COVERAGE, _COVERAGE_OF_A_GROUP = (0.87, 0.93), 0.83
_MEAN_REGRET, _JOB_SETS = 0.017, 40
_POWER, _POINTS, _MEMORY = 0.06, 0.05, 0.02
_MAKESPAN, _COMPLETION = 0.05, 0.07


@dataclass(frozen=True, slots=True)
class Target:
    """A share, or a ratio above 1, that should lie between two bounds; None: not measured."""

    name: str
    low: float
    high: float
    reached: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Name, bounds, value, and whether the target is met."""
        shown = percent if self.high <= 1 else "{:.2f}".format
        bounds = f"at most {shown(self.high)}"
        if self.low:
            bounds = f"{shown(self.low)} to {shown(self.high)}"
        if self.high == 1:
            bounds = f"at least {shown(self.low)}"
        if self.reached is None:
            return self.name, bounds, "-", "not measured"
        met = self.low <= round(self.reached, 3) <= self.high  # as it is shown
        return self.name, bounds, shown(self.reached), "yes" if met else "no"


def targets_section(figures: Figures, of_readers: Iterable[Target]) -> str:
    """Return two tables in Markdown, the first of targets by what a reader has."""
    sets = figures.scores.chosen.sets
    enough = "yes" if sets >= _JOB_SETS else "no"
    rows = [target.cells for target in targets(figures)]
    rows.append(("job sets to choose for", f"at least {_JOB_SETS}", str(sets), enough))
    headings = "what", "target", "reached", "met"
    return joined(
        "## Targets",
        "By what a reader has:",
        markdown(headings, [target.cells for target in of_readers]),
        "Of the zoo, from full profiles:",
        markdown(headings, rows),
    )


def targets(figures: Figures) -> Iterator[Target]:
    """Return every target, met or not."""
    scores = figures.scores
    for mode in SHARED_MODES:
        yield from _of_steps(figures, mode)
    name = "coverage of 90 % intervals, worst group of at least 300 steps"
    worst = figures.coverage[0].inside if figures.coverage else None
    yield Target(name, _COVERAGE_OF_A_GROUP, 1.0, worst)
    yield Target("regret, mean", 0.0, _MEAN_REGRET, scores.chosen.rules[MODEL].mean)
    whole = figures.whole_jobs
    for mode in SHARED_MODES:
        done = whole.modes.get(mode) if whole else None
        name = MODE_WORDS[mode]
        reached = done.makespan if done else None
        yield Target(f"{name}, makespan of whole jobs", 0.0, _MAKESPAN, reached)
        reached = done.completion if done else None
        yield Target(f"{name}, completion times of whole jobs", 0.0, _COMPLETION, reached)
    reached = whole.rules[RECOMMENDED].mean if whole else None
    yield Target("regret on makespan, mean", 0.0, _MEAN_REGRET, reached)
    for row in figures.memory.rows:
        name = MODE_WORDS[row.mode]
        yield Target(f"{name}, memory held", 0.0, _MEMORY, row.held_mape)
        yield Target(f"{name}, memory at least", 0.0, _MEMORY, row.least_mape)
        yield Target(f"{name}, memory in total", 0.0, _MEMORY, row.total_mape)
    for power in figures.power:
        name = MODE_WORDS[power.mode]
        yield Target(f"{name}, power", 0.0, _POWER, power.power_mape)
        yield Target(f"{name}, GRACT, of 100 points", 0.0, _POINTS, power.gract_error)
        yield Target(f"{name}, SMACT, of 100 points", 0.0, _POINTS, power.smact_error)


def _of_steps(figures: Figures, mode: Mode) -> Iterator[Target]:
    scores, name = figures.scores, MODE_WORDS[mode]
    on_h100 = [
        row
        for gpu in figures.left_out
        if (gpu.learnt_on, gpu.scores.gpu) == _OF_H100
        for row in gpu.scores.pooled()
    ]
    for what, most, rows in (
        ("drawn runs", _DRAWN, scores.pooled()),
        ("panels", _PANELS, scores.pooled(part="panels")),
        ("host checked", _HOST_KNOWN, scores.pooled(view="host-checked")),
        ("H100 from H200", _OTHER_GPU, on_h100),
    ):
        whole = _of_all(rows, mode)
        yield Target(f"{name}, {what}, MAPE", 0.0, most[mode], whole.mape if whole else None)
    drawn = _of_all(scores.pooled(), mode)
    covered = drawn.coverage90 if drawn else None
    yield Target(f"{name}, coverage of 90 % intervals", *_COVERAGE, covered)


def _of_all(rows: Iterable[ScoreRow], mode: Mode) -> ScoreRow | None:
    return next((row for row in rows if (row.mode, row.bound) == (mode, ALL)), None)
