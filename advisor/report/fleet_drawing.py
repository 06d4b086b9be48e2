"""Jobs on several equal GPUs over time, as rows of a table and of a drawing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from advisor.plan.fleet_plan import FleetPlan
from advisor.prediction.interval import LEVELS, Interval, around
from advisor.report import units
from advisor.report.simulation_drawing import Timeline, in_rows
from advisor.timeline.outcome import SimulatedJob, Simulation


@dataclass(frozen=True, slots=True)
class JobOnGpu:
    """A job on one of several GPUs.

    Attributes:
        number: Of the job, from 1 in the order asked for.
        gpu: Number of the GPU, from 0.
        lived: When it starts and ends.
    """

    number: int
    gpu: int
    lived: SimulatedJob

    @property
    def late(self) -> bool:
        """Whether it misses its deadline, by medians."""
        due_s = self.lived.job.deadline_s
        return due_s is not None and self.lived.end_s.p50 > due_s

    def overlaps(self, other: "JobOnGpu") -> bool:
        """Whether both run at once on one GPU."""
        own, its = self.lived, other.lived
        at_once = own.start_s < its.end_s.p50 and its.start_s < own.end_s.p50
        return self.gpu == other.gpu and at_once


def jobs_of_queue(simulation: Simulation) -> tuple[JobOnGpu, ...]:
    """The jobs of a simulated queue that feeds several GPUs."""
    return _in_order(
        JobOnGpu(number, each.gpu, each) for number, each in enumerate(simulation.jobs, start=1)
    )


def jobs_of_plan(found: FleetPlan, simulated: Sequence[Simulation]) -> tuple[JobOnGpu, ...]:
    """The jobs of a plan; `simulated` holds the simulation of each GPU of `FleetPlan.on`."""
    return _in_order(
        JobOnGpu(number, on.number, each)
        for on, simulation in zip(found.on, simulated, strict=True)
        for number, each in zip(on.candidate.jobs, simulation.jobs, strict=True)
    )


def _in_order(jobs: Iterator[JobOnGpu]) -> tuple[JobOnGpu, ...]:
    """By GPU, and on each as they start; copies next to each other."""
    return tuple(
        sorted(jobs, key=lambda each: (each.gpu, each.lived.start_s, _name(each), each.number))
    )


def names_of(jobs: Sequence[JobOnGpu]) -> list[str]:
    """The names of the jobs, in the order asked for."""
    return [_name(each) for each in sorted(jobs, key=lambda each: each.number)]


def lanes_of(jobs: Sequence[JobOnGpu]) -> Timeline:
    """A row for each job, GPU after GPU; copies that run alike on one GPU share a row."""
    rows = []
    for (gpu, name, *_), alike in groupby(jobs, _fate):
        copies = list(alike)
        row = f"GPU {gpu} · {copies[0].number} · {units.collapsed([name] * len(copies))}"
        rows.append((row, copies[0].lived))
    ends_s = [each.lived.end_s for each in jobs]
    return in_rows(rows, around([max(each.at(level) for each in ends_s) for level in LEVELS]))


def _fate(placed: JobOnGpu) -> tuple[int, str, float, float, str]:
    own = placed.lived
    return placed.gpu, _name(placed), own.arrival_s, own.start_s, units.seconds(own.end_s)


def _name(placed: JobOnGpu) -> str:
    return placed.lived.job.name


def job_rows_of(jobs: Sequence[JobOnGpu]) -> list[dict[str, str]]:
    """A row for each job, in order; a column's name is its key."""
    return [_job_row(each, [other for other in jobs if other.overlaps(each)]) for each in jobs]


def _job_row(placed: JobOnGpu, at_once: Sequence[JobOnGpu]) -> dict[str, str]:
    own, others = placed.lived, [each.number for each in at_once if each is not placed]
    due = own.job.deadline_s
    return {
        "GPU": str(placed.gpu),
        "job": f"{placed.number} · {own.job.name}",
        "shares with": ", ".join(map(str, sorted(others))) or "none",
        "starts after": units.duration(own.start_s) if own.start_s else "0 s",
        "ends after": units.seconds(own.end_s),
        "deadline": "none" if due is None else "late" if placed.late else "holds",
    }


def gains_of(
    makespan_s: Interval, one_gpu_s: float | None, one_job_each_s: float | None
) -> list[tuple[str, str, str]]:
    """Figures by medians: title, value, and what it compares with.

    Args:
        makespan_s: Seconds until all jobs are done on the GPUs.
        one_gpu_s: The same on one GPU; None: there is only one, or it is not known.
        one_job_each_s: The same if each GPU runs one job at a time; None: not known.
    """
    low, high = (units.duration(each) for each in (makespan_s.p05, makespan_s.p95))
    cards = [("Until all are done", units.duration(makespan_s.p50), f"from {low} to {high}")]
    for name, other_s in (("one GPU", one_gpu_s), ("one job per GPU", one_job_each_s)):
        if other_s is not None:
            gain = f"{units.number(other_s / makespan_s.p50)}x"
            cards.append((f"Gain over {name}", gain, f"{name}: {units.duration(other_s)}"))
    return cards
