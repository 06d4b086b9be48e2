"""The targets of the predictions and what was reached: met or missed, nothing left out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import mean

import numpy as np

from advisor.sharing import SHARED_MODES
from advisor.validate.evaluate import Evaluation
from advisor.validate.predicted_and_measured import RunComparison
from advisor.validate.regret import choices
from advisor.validate.score_words import MODE_WORDS, percent
from advisor.validate.scoreboard import runs_of_mode, scoreboard
from advisor.validate.scores import Scores
from research.breakdown import coverage_rows
from research.completion_score import RECOMMENDED, finished, recommended_runs, regrets
from research.findings import Findings
from research.memory_score import MemoryScore

HEADINGS = ("what", "asked", "reached", "met")

# Largest mean absolute error of a step: of pairs, and of three jobs and more.
_PAIRS = {"naive": 0.04, "mps": 0.06, "mps-limits": 0.05}
_MORE = {"naive": 0.05, "mps": 0.08, "mps-limits": 0.06}
_MPS_THROUGHPUT = 0.05
_P90 = 0.15
_COVERAGE = (0.87, 0.93)
_MEAN_REGRET, _WORST_REGRET, _JOB_SETS = 0.02, 0.08, 40
_POWER, _POINTS = 0.06, 0.05
_MEMORY, _NEVER_RUN = 0.02, 0.08
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
        if self.reached is None:
            return self.what, asked, "-", "not measured"
        met = self.low <= self.reached <= self.high
        return self.what, asked, percent(self.reached), "yes" if met else "no"


def target_rows(targets: Iterable[Target], scores: Scores) -> list[tuple[str, ...]]:
    """A line under `HEADINGS` for each of `targets`, then what `scores` say of counts."""
    rows = [each.cells for each in targets]
    holds = [row[-1] for row in coverage_rows(scores.rows) if row[1] != "all"]
    held = holds.count("yes")
    words = ("90 % lies in the range of coverage, by number of jobs", "all")
    rows.append((*words, f"{held} of {len(holds)}", "yes" if held == len(holds) else "no"))
    sets = scores.chosen.sets
    enough = "yes" if sets >= _JOB_SETS else "no"
    return [*rows, ("job sets to choose for", f"at least {_JOB_SETS}", str(sets), enough)]


def targets(found: Findings) -> tuple[Target, ...]:
    """Everything that was asked, met or not."""
    return tuple(_targets(found))


def _targets(found: Findings) -> Iterator[Target]:
    evaluation = found.evaluation
    for mode in SHARED_MODES:
        name, runs = MODE_WORDS[mode], runs_of_mode(evaluation.runs, mode)
        pairs = [run for run in runs if len(run.jobs) == 2]
        more = [run for run in runs if len(run.jobs) > 2]
        yield Target(f"{name}, pairs, MAPE", 0.0, _PAIRS[mode], _mape(pairs))
        yield Target(f"{name}, 3 to 8 jobs, MAPE", 0.0, _MORE[mode], _mape(more))
        if mode == "mps":
            yield Target(
                f"{name}, 3 to 8 jobs, throughput", 0.0, _MPS_THROUGHPUT, _throughput(more)
            )
    for row in scoreboard(evaluation):
        if row.degree is None:
            name = MODE_WORDS[row.mode]
            yield Target(f"{name}, P90", 0.0, _P90, row.p90)
            yield Target(f"{name}, coverage of 90 % intervals", *_COVERAGE, row.coverage90)
    yield from _of_choices(evaluation)
    yield from _of_whole_jobs(found)
    yield from _of_memory(found.memory)
    for power in found.power:
        if power.pace == "predicted":
            name = MODE_WORDS[power.mode]
            yield Target(f"{name}, power", 0.0, _POWER, power.power_mape)
            yield Target(f"{name}, GRACT, of 100 points", 0.0, _POINTS, power.gract_error)
            yield Target(f"{name}, SMACT, of 100 points", 0.0, _POINTS, power.smact_error)


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
    never = score.never_run
    yield Target("memory of workloads never run", 0.0, _NEVER_RUN, never.mape if never else None)


def _of_choices(evaluation: Evaluation) -> Iterator[Target]:
    lost = [panel.regret for panel in choices(evaluation)]
    yield Target("regret, mean", 0.0, _MEAN_REGRET, float(np.mean(lost)) if lost else None)
    yield Target("regret, worst", 0.0, _WORST_REGRET, max(lost, default=None))


def _mape(runs: list[RunComparison]) -> float | None:
    errors = [abs(job.error) for run in runs for job in run.jobs]
    return float(np.mean(errors)) if errors else None


def _throughput(runs: list[RunComparison]) -> float | None:
    errors = [abs(run.predicted_speedup / run.measured_speedup - 1) for run in runs]
    return float(np.mean(errors)) if errors else None
