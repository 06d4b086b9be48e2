"""The targets of the predictions and what was reached, met or not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from advisor.learn.regret import MODEL
from advisor.learn.scoreboard import ALL, Bound, ScoreRow, Scores
from advisor.report.scores import BOUND_WORDS, MODE_WORDS, markdown, percent
from advisor.sharing import SHARED_MODES, Mode
from research.figures import Figures
from research.steps import coverage_on, joined
from research.whole_jobs import RECOMMENDED

# Largest mean absolute error of a step from profiles as they were measured.
_ALL_JOBS: Mapping[Mode, float] = {"naive": 0.025, "mps": 0.055, "mps-limits": 0.065}
_GPU_BOUND: Mapping[Mode, float] = {"naive": 0.015, "mps": 0.03, "mps-limits": 0.03}
_COVERAGE, _COVERAGE_ON_A_HOST = (0.87, 0.93), 0.83
# Largest mean width of the 90 % intervals of GPU-bound jobs, as a share of the step.
_WIDTH: Mapping[Mode, float] = {"naive": 0.073, "mps": 0.268, "mps-limits": 0.335}
_MEAN_REGRET, _WORST_REGRET, _JOB_SETS = 0.02, 0.08, 40
_POWER, _POINTS, _MEMORY = 0.06, 0.05, 0.02
_MAKESPAN, _COMPLETION = 0.05, 0.07


@dataclass(frozen=True, slots=True)
class Target:
    """A share that should lie between two bounds; None if it was not measured."""

    name: str
    low: float
    high: float
    reached: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Name, bounds, value, and whether the target is met."""
        bounds = f"at most {percent(self.high)}"
        if self.low:
            bounds = f"{percent(self.low)} to {percent(self.high)}"
        if self.high == 1:
            bounds = f"at least {percent(self.low)}"
        if self.reached is None:
            return self.name, bounds, "-", "not measured"
        met = self.low <= self.reached <= self.high
        return self.name, bounds, percent(self.reached), "yes" if met else "no"


def targets_section(figures: Figures) -> str:
    """Return the table in Markdown."""
    sets = figures.scores.chosen.sets
    enough = "yes" if sets >= _JOB_SETS else "no"
    rows = [target.cells for target in targets(figures)]
    rows.append(("job sets to choose for", f"at least {_JOB_SETS}", str(sets), enough))
    return joined("## Targets", markdown(("what", "target", "reached", "met"), rows))


def targets(figures: Figures) -> Iterator[Target]:
    """Return every target, met or not."""
    scores = figures.scores
    for mode in SHARED_MODES:
        yield from _of_steps(scores, mode)
    on_hosts = [coverage_on(scores, host) for host in scores.hosts()]
    worst = min((share for share in on_hosts if share is not None), default=None)
    yield Target("coverage of 90 % intervals, worst host", _COVERAGE_ON_A_HOST, 1.0, worst)
    yield Target("regret, mean", 0.0, _MEAN_REGRET, scores.chosen.rules[MODEL].mean)
    worst = scores.chosen.worst_beyond_noise(MODEL)
    yield Target("regret, worst beyond the noise", 0.0, _WORST_REGRET, worst)
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


def _of_steps(scores: Scores, mode: Mode) -> Iterator[Target]:
    name = MODE_WORDS[mode]
    bounds: dict[Bound, Mapping[Mode, float]] = {"all": _ALL_JOBS, "gpu": _GPU_BOUND}
    for bound, most in bounds.items():
        jobs = f"{name}, {BOUND_WORDS[bound]} jobs, MAPE"
        rows = [_row(scores, host, mode, bound) for host in scores.hosts()]
        worst = max((row.mape for row in rows if row), default=None)
        whole = _row(scores, ALL, mode, bound)
        yield Target(jobs, 0.0, most[mode], whole.mape if whole else None)
        yield Target(f"{jobs}, worst host", 0.0, most[mode], worst)
    every, busy = (_row(scores, ALL, mode, bound) for bound in bounds)
    covered = every.coverage90 if every else None
    yield Target(f"{name}, coverage of 90 % intervals", *_COVERAGE, covered)
    width = busy.width90 if busy else None
    yield Target(f"{name}, GPU-bound jobs, width of 90 % intervals", 0.0, _WIDTH[mode], width)


def _row(scores: Scores, host: str, mode: Mode, bound: Bound) -> ScoreRow | None:
    rows = (row for row in scores.pooled(host) if (row.mode, row.bound) == (mode, bound))
    return next(rows, None)
