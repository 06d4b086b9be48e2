"""Results of a simulation: its jobs, the use of its GPUs, and the parts of each job."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import fsum
from statistics import fmean
from typing import Annotated, Literal

import numpy as np

from advisor.documents import As, Mark, in_document
from advisor.hardware.gpus import GpuCount
from advisor.prediction.prediction import Interval, all_known
from advisor.sharing import Arrangement, Sharing, parse_sharing
from advisor.sharing.groups import orders_jobs, restricted
from advisor.simulation import Policy
from advisor.workload.job import Job
from advisor.workload.profile import Profile

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """The simulated times of one job; its GPUs and its place there, each counted from 0.

    Attributes:
        start_s: When it starts if all steps take their median time.
        end_s: When it ends; the errors of all jobs are assumed to be fully correlated.
        fair_s: When it would end with an equal part of all GPUs for each active job.
    """

    job: Annotated[Job, As("name")]
    arrival_s: float
    gpus: tuple[int, ...]
    place: int
    start_s: float
    end_s: Interval
    fair_s: float

    @property
    @in_document
    def epochs(self) -> float:
        return self.job.epochs

    @property
    @in_document
    def gpu(self) -> int:
        """The first of its GPUs."""
        return self.gpus[0]

    @property
    def completion_s(self) -> float:
        """Seconds from its arrival until its end."""
        return self.end_s.p50 - self.arrival_s

    @property
    @in_document
    def unfairness(self) -> float:
        """Its completion over that with an equal part of the GPUs: finish-time fairness, rho."""
        return self.completion_s / (self.fair_s - self.arrival_s)

    @property
    def wait_s(self) -> float:
        return self.start_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Use of one GPU while the same jobs run on it.

    Attributes:
        jobs: Positions of the jobs that run, shape (jobs,).
        speeds: Steps a second of each, shape (jobs,).
        places: Their places, counted on this GPU, shape (jobs,).
        layout: Its instances, if each has one job; else None.
        memory_mib: Memory of their processes together.
        gract: Share of time in which the engine is active, 0..1; None if not measured.
        smact: Mean share of SMs with work, 0..1; None if not measured.
        power_w: Power of the whole GPU; None if not measured.
    """

    gpu: int
    start_s: float
    end_s: float
    jobs: tuple[int, ...]
    speeds: tuple[float, ...]
    places: tuple[int, ...]
    layout: str | None = None
    memory_mib: float
    gract: float | None
    smact: float | None
    power_w: float | None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The figures of a simulation with which another is compared."""

    makespan_s: Interval
    mean_completion_s: float
    mean_wait_s: float
    energy_j: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Jobs on GPUs from second 0 until the last one ends; medians but for intervals.

    Attributes:
        counts: The GPUs by model, numbered in this order.
        jobs: In the order in which they were given.
        at_once: Most jobs at once on a GPU, if fewer than all that fit; None: no fewer.
        usage: Usage of all GPUs, in the order of the ends, without idle GPUs.
        energy_j: Joules of all GPUs until the last job ends, with idle power; None: not measured.
        preemptions: Times that a running job was stopped, to start again.
        layout_changes: Times that an idle GPU changed its MIG layout.
        idle_powers_w: Power of each GPU on which nothing runs; None: not measured.
        confirmed_on_hardware: Whether the model was fitted to real runs of this kind of sharing.
        estimated_from: The GPUs whose runs stood in for this one, by key; None: none.
    """

    counts: tuple[GpuCount, ...]
    sharing: Annotated[Sharing, Mark.TEXT]
    policy: Policy
    at_once: int | None
    jobs: tuple[SimulatedJob, ...]
    usage: Sequence[Usage]
    makespan_s: Interval
    energy_j: Interval | None
    idle_powers_w: Annotated[tuple[float | None, ...], Mark.LEFT_OUT]
    price_eur_per_gpu_hour: float | None
    confirmed_on_hardware: bool
    estimated_from: str | None = None
    preemptions: int = 0
    layout_changes: int = 0

    @property
    @in_document
    def gpu(self) -> str:
        """The models of GPU, by their keys."""
        return " and ".join(dict.fromkeys(self.models))

    @property
    @in_document
    def gpus(self) -> int:
        """Number of all GPUs."""
        return len(self.models)

    @property
    def models(self) -> tuple[str, ...]:
        """Catalogue key of each GPU."""
        return tuple(str(count.gpu) for count in self.counts for _ in range(count.gpus))

    @property
    @in_document
    def idle_power_w(self) -> float | None:
        """Mean power of a GPU on which nothing runs; None: not measured."""
        powers = all_known(self.idle_powers_w)
        return None if powers is None else fmean(powers)

    @property
    def first(self) -> Usage:
        """The first usage of the GPU that is used first."""
        return min(self.usage, key=lambda each: (each.start_s, each.gpu))

    @property
    def first_mix(self) -> tuple[list[Profile], Arrangement]:
        """The jobs of `first`, and how they share."""
        jobs = [self.jobs[number] for number in self.first.jobs]
        in_order, layout = orders_jobs(self.sharing), self.first.layout
        places = self.first.jobs if in_order else [each.place for each in jobs]
        sharing = parse_sharing(layout) if layout else self.sharing
        return [each.job.profile for each in jobs], restricted(sharing, places)

    @property
    @in_document
    def jobs_per_hour(self) -> float:
        return len(self.jobs) / self.makespan_s.p50 * _HOUR_S

    @property
    @in_document
    def mean_completion_s(self) -> float:
        return fsum(each.completion_s for each in self.jobs) / len(self.jobs)

    @property
    @in_document
    def p95_completion_s(self) -> float:
        """Seconds within which 95 % of jobs end after arrival."""
        return float(np.quantile([each.completion_s for each in self.jobs], 0.95))

    @property
    @in_document
    def p99_completion_s(self) -> float:
        return float(np.quantile([each.completion_s for each in self.jobs], 0.99))

    @property
    @in_document
    def mean_unfairness(self) -> float:
        return fmean(each.unfairness for each in self.jobs)

    @property
    @in_document
    def worst_unfairness(self) -> float:
        return max(each.unfairness for each in self.jobs)

    @property
    @in_document
    def utilisation(self) -> float:
        """Share of the GPUs' time in which they run a job, 0..1."""
        return min(1.0, self.occupied_gpu_hours / self.gpu_hours.p50)

    @property
    @in_document
    def mean_wait_s(self) -> float:
        return fsum(each.wait_s for each in self.jobs) / len(self.jobs)

    @property
    def totals(self) -> Totals:
        return Totals(
            makespan_s=self.makespan_s,
            mean_completion_s=self.mean_completion_s,
            mean_wait_s=self.mean_wait_s,
            energy_j=self.energy_j,
        )

    @property
    @in_document
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that end after their deadlines, from 1."""
        due_s = [each.job.deadline_s for each in self.jobs]
        return tuple(
            number
            for number, (each, by_s) in enumerate(zip(self.jobs, due_s, strict=True), 1)
            if by_s is not None and each.end_s.p50 > by_s
        )

    @property
    @in_document
    def gpu_hours(self) -> Interval:
        """Hours of all GPUs, which are held until the last job ends."""
        return self.makespan_s.scaled(self.gpus / _HOUR_S)

    @property
    @in_document
    def occupied_gpu_hours(self) -> float:
        """The part of `gpu_hours` in which a job runs."""
        return fsum(each.seconds for each in self.usage) / _HOUR_S

    @property
    @in_document
    def cost_eur(self) -> Interval | None:
        """Price of `gpu_hours`; None without a price."""
        price = self.price_eur_per_gpu_hour
        return None if price is None else self.gpu_hours.scaled(price)

    @property
    @in_document
    def mean_gract(self) -> float | None:
        """Engine activity, mean over time and GPUs, 0..1; None: not measured."""
        if (shares := all_known(each.gract for each in self.usage)) is None:
            return None
        total = fsum(share * use.seconds for share, use in zip(shares, self.usage, strict=True))
        return total / (self.gpus * self.makespan_s.p50)

    @property
    @in_document
    def peak_memory_mib(self) -> float:
        """Most memory that processes hold at once on one GPU."""
        return max(each.memory_mib for each in self.usage)


Kind = Literal["start", "training", "validation", "checkpoint"]

# Shares of an epoch below this are rounding.
_DUST = 1e-9


@dataclass(frozen=True, slots=True)
class JobStretch:
    """A part of one job: its start, or training, validation or a checkpoint of an epoch from 1."""

    kind: Kind
    epoch: int
    start_s: float
    end_s: float


def parts(number: int, job: Job, usage: Sequence[Usage]) -> Iterator[JobStretch]:
    """Return the parts of `job` in order; all slow down as training does."""
    paces = [(each.start_s, each.end_s, each.speeds[each.jobs.index(number)]) for each in usage]
    at, now_s = 0, paces[0][0]
    done = sum((end_s - start_s) * speed for start_s, end_s, speed in paces)
    for kind, epoch, steps in _work(job, done):
        start_s, left = now_s, steps
        while True:
            _, end_s, speed = paces[at]
            done_s = now_s + left / speed
            if done_s <= end_s or at == len(paces) - 1:
                now_s = min(done_s, end_s)
                break
            left -= (end_s - now_s) * speed
            at += 1
            now_s = paces[at][0]
        yield JobStretch(kind, epoch, start_s, now_s)


def _work(job: Job, done: float) -> Iterator[tuple[Kind, int, float]]:
    """Steps of each part; those of a fractional last epoch are scaled.

    The start takes what `done` steps exceed the work by, because it may wait for cores.
    """
    step_s, (validation_s, checkpoint_s) = job.alone_step_s, job.pauses_s
    pieces: tuple[tuple[Kind, float], ...] = (
        ("training", job.profile.workload.steps_per_epoch or 0.0),
        ("validation", validation_s / step_s),
        ("checkpoint", checkpoint_s / step_s),
    )
    if job.start_s:
        yield "start", 1, job.start_s / step_s + max(0.0, done - (job.work_steps or done))
    for epoch in count(1):
        share = min(1.0, job.epochs - (epoch - 1))
        if share < _DUST:
            return
        for kind, steps in pieces:
            if steps:
                yield kind, epoch, share * steps
