"""How close runs of advice came to their predictions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from advisor.prediction.interval import Interval
from advisor.validate.panels import counted_names
from advisor.validate.predicted_and_measured import RunComparison
from advisor.validate.score_tables import markdown, percent
from advisor.validate.validate import sharing_word, step_cells

RUN_HEADINGS = (
    "run", "sharing", "job", "predicted, ms", "90 % interval, ms", "measured, ms", "error", "inside"
)  # fmt: skip
PLAN_HEADINGS = (
    "jobs", "sharing", "throughput predicted", "measured", "error", "largest step error", "inside"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRun:
    """One run of one way to run a job set; throughput is the sum of solo over shared steps.

    Attributes:
        jobs: Names with counts, as the command line takes them.
        sharing: As the run has it.
        predicted: Throughput.
        measured: Throughput.
        worst_error: The largest error of a step: predicted over measured, less 1.
        n: Steps, one of each job.
        inside: Those that lie inside their 90 % intervals.
    """

    jobs: str
    sharing: str
    predicted: float
    measured: float
    worst_error: float
    n: int
    inside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A job of advice whose step, in seconds, its 90 % interval did not hold.

    Attributes:
        run: The run's id.
        sharing: As the run has it; ``"serial"`` for a job alone.
    """

    run: str
    sharing: str
    job: str
    predicted_s: Interval
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """All runs of advice.

    Attributes:
        plans: Those of several jobs, those of one job set together.
        steps: One of each job in all runs, jobs alone included.
        outside: Those that lie outside their intervals.
    """

    plans: tuple[PanelRun, ...]
    steps: int
    outside: tuple[Outside, ...]


def advice_of(runs: Sequence[RunComparison]) -> Advice:
    """The figures of `runs`, predicted and measured."""
    return Advice(
        plans=tried(runs),
        steps=sum(len(run.jobs) for run in runs),
        outside=tuple(
            Outside(
                run=run.run.id,
                sharing=sharing_word(run),
                job=job.job,
                predicted_s=job.predicted_s,
                measured_s=job.measured_s,
            )
            for run in runs
            for job in run.jobs
            if not job.inside
        ),
    )


def came_true(found: Advice) -> str:
    """How far off throughput was, and how many steps lie inside their intervals."""
    if not found.plans:
        return "No advice has been run yet."
    off = mean(abs(plan.predicted / plan.measured - 1) for plan in found.plans)
    inside = found.steps - len(found.outside)
    return (
        f"{len(found.plans)} runs of job sets under several plans: {percent(off)} mean error of "
        f"the throughput; {inside} of {found.steps} measured steps "
        f"({percent(inside / found.steps)}) lie inside their 90 % intervals."
    )


def section(found: Advice) -> str:
    """Of profiles/REPORT.md: one line a plan, then one for each job outside its interval."""
    said = ["## Job sets run under several plans", came_true(found)]
    if found.plans:
        said += [markdown(PLAN_HEADINGS, panel_rows(found.plans))]
    if found.outside:
        rows = [
            (each.run, each.sharing, each.job, *step_cells(each.predicted_s, each.measured_s), "no")
            for each in found.outside
        ]
        said += ["## Jobs of it outside their 90 % intervals", markdown(RUN_HEADINGS, rows)]
    return "\n\n".join(said)


def tried(comparisons: Iterable[RunComparison]) -> tuple[PanelRun, ...]:
    """Every shared run, those of one job set together."""
    sets: dict[str, list[RunComparison]] = {}
    for each in comparisons:
        if len(each.jobs) > 1:
            sets.setdefault(counted_names([job.job for job in each.jobs]), []).append(each)
    return tuple(_tried(jobs, run) for jobs, runs in sets.items() for run in runs)


def panel_rows(found: Iterable[PanelRun]) -> list[tuple[str, ...]]:
    """A line under `PLAN_HEADINGS` for each of `found`."""
    return [
        (
            each.jobs,
            each.sharing,
            f"{each.predicted:.2f}x",
            f"{each.measured:.2f}x",
            percent(each.predicted / each.measured - 1),
            percent(each.worst_error),
            f"{each.inside} of {each.n}",
        )
        for each in found
    ]


def _tried(jobs: str, comparison: RunComparison) -> PanelRun:
    return PanelRun(
        jobs=jobs,
        sharing=comparison.run.sharing,
        predicted=comparison.predicted_speedup,
        measured=comparison.measured_speedup,
        worst_error=max((job.error for job in comparison.jobs), key=abs),
        n=len(comparison.jobs),
        inside=sum(job.inside for job in comparison.jobs),
    )
