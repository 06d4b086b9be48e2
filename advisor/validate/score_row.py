"""One line of the scoreboard, and which jobs it is of."""

from dataclasses import dataclass
from typing import Final, Literal

from advisor.sharing import Mode
from advisor.validate.predicted_and_measured import View

Jobs = Literal["all", "same", "mixed"]
Bound = Literal["all", "gpu", "host"]
BOUNDS: tuple[Bound, ...] = ("all", "gpu", "host")
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of the scoreboard; errors are shares of what was measured.

    Attributes:
        view: Whether profiles are taken as they were measured, or as on the cores of each run.
        host: A campaign, and where it was; ``"all"`` if all are pooled.
        bound: Which jobs count: those that the GPU paces alone, those that the host paces, or all.
        degree: Tenants in a run; None: all degrees are pooled.
        jobs: Whether the tenants are of one workload, of several, or all runs are taken.
        n: Number of jobs scored.
        runs: Number of runs that they come from.
        mape: Mean absolute error of the step time.
        rmse: Root of its mean square.
        coverage90: Share of measured steps inside their 90 % interval; None without intervals.
        coverage90_low: Lower end of the 95 % interval of that share; see `noise_and_coverage`.
        coverage90_high: Upper end.
        width90: Mean width of the 90 % intervals, as a share of the predicted step; None likewise.
        noise_floor: Median absolute difference of a job between a run and its repeat with fresh
            workers; None if no run was repeated.
        noise_floor_rmse: Root of the mean square of those differences; None likewise.
        excess_error: Root of the squared error, over the repeated runs, less that of the noise.
        throughput_mape: Mean absolute error of a run's weighted speedup; None where not all of a
            run's jobs count.
        memory_mape: Mean absolute error of a process's device memory; None if not measured.
        memory_total_mape: The same for all processes of a run together; None as `throughput_mape`.
        baselines: Mean absolute error of each baseline's step time; None if not defined.
        baselines_n: Jobs for which each baseline is defined.
    """

    view: View
    host: str
    bound: Bound
    mode: Mode
    degree: int | None
    jobs: Jobs
    n: int
    runs: int
    mape: float
    median: float
    p90: float
    rmse: float
    coverage90: float | None
    coverage90_low: float | None
    coverage90_high: float | None
    width90: float | None
    noise_floor: float | None
    noise_floor_rmse: float | None
    excess_error: float | None
    throughput_mape: float | None
    memory_mape: float | None
    memory_total_mape: float | None
    baselines: dict[str, float | None]
    baselines_n: dict[str, int]
