"""Plans of one job set that were run beside each other: which was best, and was it chosen?"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from advisor.validation.comparison import RunComparison
from advisor.validation.tables import percent

# A set run in one way only says nothing about the choice.
_FEWEST_PLANS = 2

HEADINGS = (
    "jobs", "sharing", "throughput predicted", "measured", "error", "largest step error", "inside"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Panel:
    """The shared runs of one job set; running the jobs one after another is a throughput of 1.

    Attributes:
        jobs: Names with counts, as the command line takes them; limits follow this order.
        runs: One for each sharing.
    """

    jobs: str
    runs: tuple[RunComparison, ...]

    @property
    def best_measured(self) -> float:
        """The highest measured throughput, one after another included."""
        return max(1.0, *(run.measured_speedup for run in self.runs))

    @property
    def chosen_measured(self) -> float:
        """Measured throughput of the plan with the highest predicted one."""
        choice = max(self.runs, key=lambda run: run.predicted_speedup)
        return choice.measured_speedup if choice.predicted_speedup > 1 else 1.0

    @property
    def regret(self) -> float:
        """Share of the best measured throughput that the choice gave away, 0..1."""
        return 1 - self.chosen_measured / self.best_measured

    @property
    def regret_of_mps(self) -> float | None:
        """The same had MPS been chosen unseen; None where it was not run."""
        plain = [run.measured_speedup for run in self.runs if run.run.sharing == "mps"]
        return 1 - plain[0] / self.best_measured if plain else None


def panels(comparisons: Iterable[RunComparison]) -> tuple[Panel, ...]:
    """Shared runs by job set, in the order in which the sets were first run."""
    sets: dict[str, list[RunComparison]] = {}
    for comparison in comparisons:
        if len(comparison.jobs) > 1:
            sets.setdefault(_words([job.job for job in comparison.jobs]), []).append(comparison)
    return tuple(Panel(jobs, tuple(runs)) for jobs, runs in sets.items())


def panel_rows(sets: Sequence[Panel]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings, and a line for each run."""
    return HEADINGS, [_row(panel.jobs, run) for panel in sets for run in panel.runs]


def regret_lines(comparisons: Iterable[RunComparison]) -> list[str]:
    """How much of the best measured throughput the choices gave away, beside always MPS."""
    sets = [panel for panel in panels(comparisons) if len(panel.runs) >= _FEWEST_PLANS]
    if not sets:
        return []
    lost = [panel.regret for panel in sets]
    unseen = [panel.regret_of_mps for panel in sets if panel.regret_of_mps is not None]
    said = (
        f"Job sets that ran in several ways: {len(sets)}. Choosing the highest predicted "
        f"throughput gave away {percent(mean(lost))} of the best measured one on average, "
        f"{percent(max(lost))} at worst"
    )
    if unseen:
        said += f"; always choosing MPS {percent(mean(unseen))} and {percent(max(unseen))}"
    return [said + "."]


def _words(names: Sequence[str]) -> str:
    counts = {name: names.count(name) for name in dict.fromkeys(names)}
    return " ".join(name if count == 1 else f"{name}:{count}" for name, count in counts.items())


def _row(jobs: str, comparison: RunComparison) -> tuple[str, ...]:
    worst = max(comparison.jobs, key=lambda job: abs(job.error))
    inside = sum(job.inside for job in comparison.jobs)
    return (
        jobs,
        comparison.run.sharing,
        f"{comparison.predicted_speedup:.2f}x",
        f"{comparison.measured_speedup:.2f}x",
        percent(comparison.predicted_speedup / comparison.measured_speedup - 1),
        percent(worst.error),
        f"{inside} of {len(comparison.jobs)}",
    )
