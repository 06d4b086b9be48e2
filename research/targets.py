"""The targets of the predictions and what was reached: met or missed, nothing left out."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import mean

from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.regret import MODEL, Choices
from advisor.validate.score_row import ALL, Bound, ScoreRow
from advisor.validate.score_tables import BOUND_WORDS, MODE_WORDS, percent
from advisor.validate.scoreboard import Scores, scores_of
from research.breakdown import coverage_on
from research.completion_score import RECOMMENDED, finished, recommended_runs, regrets
from research.findings import Findings
from research.memory_score import MemoryScore

HEADINGS = ("what", "asked", "reached", "met")

# Largest mean absolute error of a step, from profiles as they were measured: of all jobs, and of
# those that the GPU paces.
_ALL_JOBS: Mapping[Mode, float] = {"naive": 0.025, "mps": 0.055, "mps-limits": 0.065}
_GPU_BOUND: Mapping[Mode, float] = {"naive": 0.015, "mps": 0.03, "mps-limits": 0.03}
_COVERAGE, _COVERAGE_ON_A_HOST = (0.87, 0.93), 0.83
# Mean width of the 90 % intervals of GPU-bound jobs when these targets were set, as a share of the
# step, on cores whose speed was known; and how many times as wide they may become.
_WIDTH = {"naive": 0.056, "mps": 0.206, "mps-limits": 0.258}
_WIDENING = 1.3
_MEAN_REGRET, _WORST_REGRET, _JOB_SETS = 0.02, 0.08, 40
_POWER, _POINTS = 0.06, 0.05
_MEMORY = 0.02
_MAKESPAN, _COMPLETION = 0.05, 0.07


@dataclass(frozen=True, slots=True)
class Target:
    """A share that shall lie between two bounds; None if nothing was measured of it."""

    what: str
    low: float
    high: float
    reached: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Under `HEADINGS`."""
        asked = f"at most {percent(self.high)}"
        if self.low:
            asked = f"{percent(self.low)} to {percent(self.high)}"
        if self.high == 1:
            asked = f"at least {percent(self.low)}"
        if self.reached is None:
            return self.what, asked, "-", "not measured"
        met = self.low <= self.reached <= self.high
        return self.what, asked, percent(self.reached), "yes" if met else "no"


def target_rows(targets: Iterable[Target], sets: int) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each of `targets`, then whether there are job sets enough."""
    enough = "yes" if sets >= _JOB_SETS else "no"
    rows = [each.cells for each in targets]
    return [*rows, ("job sets to choose for", f"at least {_JOB_SETS}", str(sets), enough)]


def targets(found: Findings) -> tuple[Target, ...]:
    """Everything that was asked, met or not."""
    return tuple(_targets(found))


def _targets(found: Findings) -> Iterator[Target]:
    scores = scores_of(found.evaluation)
    for mode in SHARED_MODES:
        yield from _of_pace(scores, mode)
    least = [coverage_on(scores, host) for host in scores.hosts]
    covered = min((each for each in least if each is not None), default=None)
    yield Target("coverage of 90 % intervals, worst host", _COVERAGE_ON_A_HOST, 1.0, covered)
    yield from _of_choices(scores.chosen)
    yield from _of_whole_jobs(found)
    yield from _of_memory(found.memory)
    for power in found.power:
        if power.pace == "predicted":
            name = MODE_WORDS[power.mode]
            yield Target(f"{name}, power", 0.0, _POWER, power.power_mape)
            yield Target(f"{name}, GRACT, of 100 points", 0.0, _POINTS, power.gract_error)
            yield Target(f"{name}, SMACT, of 100 points", 0.0, _POINTS, power.smact_error)


def _of_pace(scores: Scores, mode: Mode) -> Iterator[Target]:
    name = MODE_WORDS[mode]
    asked: dict[Bound, Mapping[Mode, float]] = {"all": _ALL_JOBS, "gpu": _GPU_BOUND}
    for bound, most in asked.items():
        jobs = f"{name}, {BOUND_WORDS[bound]} jobs, MAPE"
        errors = [_row(scores, host, mode, bound) for host in scores.hosts]
        worst = max((row.mape for row in errors if row), default=None)
        whole = _row(scores, ALL, mode, bound)
        yield Target(jobs, 0.0, most[mode], _of(whole, "mape"))
        yield Target(f"{jobs}, worst host", 0.0, most[mode], worst)
    every, busy = (_row(scores, ALL, mode, bound) for bound in asked)
    yield Target(f"{name}, coverage of 90 % intervals", *_COVERAGE, _of(every, "coverage90"))
    yield Target(
        f"{name}, GPU-bound jobs, width of 90 % intervals", 0.0, _WIDENING * _WIDTH[mode],
        _of(busy, "width90"),
    )  # fmt: skip


def _row(scores: Scores, host: str, mode: Mode, bound: Bound) -> ScoreRow | None:
    rows = (r for r in scores.pooled(host) if (r.mode, r.bound) == (mode, bound))
    return next(rows, None)


def _of(row: ScoreRow | None, figure: str) -> float | None:
    return getattr(row, figure, None)


def _of_whole_jobs(found: Findings) -> Iterator[Target]:
    for mode in SHARED_MODES:
        name, done = MODE_WORDS[mode], finished(found.completions, mode)
        yield Target(f"{name}, makespan of whole jobs", 0.0, _MAKESPAN, done.makespan)
        yield Target(f"{name}, completion times of whole jobs", 0.0, _COMPLETION, done.completion)
    lost = regrets(found.completions, found.profiles, recommended_runs())[RECOMMENDED]
    yield Target("regret on makespan, mean", 0.0, _MEAN_REGRET, mean(lost) if lost else None)


def _of_memory(score: MemoryScore) -> Iterator[Target]:
    for row in score.rows:
        name = MODE_WORDS[row.mode]
        yield Target(f"{name}, memory held", 0.0, _MEMORY, row.held_mape)
        yield Target(f"{name}, memory at least", 0.0, _MEMORY, row.least_mape)
        yield Target(f"{name}, memory in total", 0.0, _MEMORY, row.total_mape)


def _of_choices(chosen: Choices) -> Iterator[Target]:
    yield Target("regret, mean", 0.0, _MEAN_REGRET, chosen.rules[MODEL].mean)
    worst = chosen.worst_beyond_noise(MODEL)
    yield Target("regret, worst beyond the noise", 0.0, _WORST_REGRET, worst)
