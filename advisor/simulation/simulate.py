"""Simulates jobs that arrive over time at shared GPUs, at both ends of the intervals too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from heapq import nlargest
from itertools import count
from math import fsum, isfinite
from statistics import fmean
from typing import Literal, get_args

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.gpus import Gpu, GpuCount, parse_gpus
from advisor.prediction.mig_instances import placed
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import LEVELS, Interval, Level, all_known, around
from advisor.sharing import Arrangement, Sharing
from advisor.sharing.groups import check_count, orders_jobs, restricted, sets_in_turn
from advisor.simulation import Policy
from advisor.simulation.events import (
    History,
    PlacedJob,
    Stretch,
    Task,
    energy_j,
    from_the_start,
    run,
)
from advisor.simulation.paces import Paces
from advisor.simulation.queues import queue_of
from advisor.workload.job import Arrival, Job
from advisor.workload.profile import Profile

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedJob:
    """The simulated times of one job; its GPUs and its place there, each counted from 0.

    Attributes:
        start_s: When it starts if all steps take their median time.
        end_s: When it ends; the errors of all jobs are assumed to be fully correlated.
    """

    job: Job
    arrival_s: float
    gpus: tuple[int, ...]
    place: int
    start_s: float
    end_s: Interval

    @property
    def gpu(self) -> int:
        """The first of its GPUs."""
        return self.gpus[0]

    @property
    def completion_s(self) -> float:
        """Seconds from its arrival until its end."""
        return self.end_s.p50 - self.arrival_s

    @property
    def wait_s(self) -> float:
        return self.start_s - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Use of one GPU while the same jobs run on it.

    Attributes:
        jobs: Positions of the jobs that run, shape (jobs,).
        speeds: Steps a second of each, shape (jobs,).
        memory_mib: Memory of their processes together.
        gract: Share of time in which the engine is active, 0..1; None if not measured.
        smact: Mean share of SMs with work, 0..1; None if not measured.
        power_w: Of the whole GPU; None if not measured.
    """

    gpu: int
    start_s: float
    end_s: float
    jobs: tuple[int, ...]
    speeds: tuple[float, ...]
    memory_mib: float
    gract: float | None
    smact: float | None
    power_w: float | None

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Jobs on GPUs from second 0 until the last one ends; medians but for intervals.

    Attributes:
        counts: The GPUs by model, numbered in this order.
        jobs: In the order in which they were given.
        at_once: Most jobs at once on a GPU, if fewer than all that fit; None: no fewer.
        usage: Of all GPUs, in the order of the ends, without idle GPUs.
        energy_j: Joules of all GPUs until then, idle power included; None: not measured.
        idle_powers_w: Power of each GPU on which nothing runs; None: not measured.
        confirmed_on_hardware: Whether the model was fitted to real runs of this kind of sharing.
        estimated_from: The GPUs whose runs stood in for this one, by key; None: none.
    """

    counts: tuple[GpuCount, ...]
    sharing: Sharing
    policy: Policy
    at_once: int | None
    jobs: tuple[SimulatedJob, ...]
    usage: tuple[Usage, ...]
    makespan_s: Interval
    energy_j: Interval | None
    idle_powers_w: tuple[float | None, ...]
    price_eur_per_gpu_hour: float | None
    confirmed_on_hardware: bool
    estimated_from: str | None = None

    @property
    def gpu(self) -> str:
        """The models of GPU, by their keys."""
        return " and ".join(dict.fromkeys(self.models))

    @property
    def gpus(self) -> int:
        """Number of all GPUs."""
        return len(self.models)

    @property
    def models(self) -> tuple[str, ...]:
        """Catalogue key of each GPU."""
        return tuple(str(count.gpu) for count in self.counts for _ in range(count.gpus))

    @property
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
        in_order = orders_jobs(self.sharing)
        places = self.first.jobs if in_order else [each.place for each in jobs]
        return [each.job.profile for each in jobs], restricted(self.sharing, places)

    @property
    def jobs_per_hour(self) -> float:
        return len(self.jobs) / self.makespan_s.p50 * _HOUR_S

    @property
    def mean_completion_s(self) -> float:
        return fsum(each.completion_s for each in self.jobs) / len(self.jobs)

    @property
    def mean_wait_s(self) -> float:
        return fsum(each.wait_s for each in self.jobs) / len(self.jobs)

    @property
    def late(self) -> tuple[int, ...]:
        """Numbers of the jobs that end after their deadlines, from 1."""
        due_s = [each.job.deadline_s for each in self.jobs]
        return tuple(
            number for number, (each, by_s) in enumerate(zip(self.jobs, due_s, strict=True), 1)
            if by_s is not None and each.end_s.p50 > by_s
        )  # fmt: skip

    @property
    def gpu_hours(self) -> Interval:
        """Hours of all GPUs, which are held until the last job ends."""
        return self.makespan_s.scaled(self.gpus / _HOUR_S)

    @property
    def occupied_gpu_hours(self) -> float:
        """The part of `gpu_hours` in which a job runs."""
        return fsum(each.seconds for each in self.usage) / _HOUR_S

    @property
    def cost_eur(self) -> Interval | None:
        """Price of `gpu_hours`; None without a price."""
        price = self.price_eur_per_gpu_hour
        return None if price is None else self.gpu_hours.scaled(price)

    @property
    def mean_gract(self) -> float | None:
        """Engine activity, mean over time and GPUs, 0..1; None: not measured."""
        if (shares := all_known(each.gract for each in self.usage)) is None:
            return None
        total = fsum(share * use.seconds for share, use in zip(shares, self.usage, strict=True))
        return total / (self.gpus * self.makespan_s.p50)

    @property
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
    for kind, epoch, steps in _work(job):
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


def _work(job: Job) -> Iterator[tuple[Kind, int, float]]:
    """Steps of each part; those of a fractional last epoch are scaled."""
    step_s, (validation_s, checkpoint_s) = job.alone_step_s, job.pauses_s
    pieces: tuple[tuple[Kind, float], ...] = (
        ("training", job.profile.workload.steps_per_epoch or 0.0),
        ("validation", validation_s / step_s),
        ("checkpoint", checkpoint_s / step_s),
    )
    if job.start_s:
        yield "start", 1, job.start_s / step_s
    for epoch in count(1):
        share = min(1.0, job.epochs - (epoch - 1))
        if share < _DUST:
            return
        for kind, steps in pieces:
            if steps:
                yield kind, epoch, share * steps


# Most GPUs of a simulation, which looks at each of them when a job ends.
MOST_SIMULATED = 10_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """The GPUs on which jobs run; raises InvalidInput without one, or for a price below 0.

    Attributes:
        gpu: Catalogue key, of the first model.
        gpus: Number of equal GPUs on one host, or what `parse_gpus` reads.
        policy: The order in which jobs start, and where.
        price_eur_per_gpu_hour: None: costs are not computed.
        shared_host: Whether the GPUs that run jobs share the cores of their host equally.
    """

    gpu: str
    gpus: int | str
    policy: Policy
    price_eur_per_gpu_hour: float | None = None
    shared_host: bool = False

    def __post_init__(self) -> None:
        parse_gpus(self.gpus, MOST_SIMULATED)
        if self.policy not in (policies := get_args(Policy)):
            raise InvalidInput(f"a policy is one of {', '.join(policies)}; got {self.policy!r:.60}")
        price = self.price_eur_per_gpu_hour
        if price is not None and not (isfinite(price) and price >= 0):
            raise InvalidInput(f"a price is at least 0 EUR for a GPU's hour, got {price:g}")

    @property
    def counts(self) -> tuple[GpuCount, ...]:
        """The GPUs by model."""
        counts = parse_gpus(self.gpus, MOST_SIMULATED)
        return tuple(replace(count, gpu=count.gpu or self.gpu) for count in counts)

    @property
    def total(self) -> int:
        """Number of all GPUs."""
        return sum(count.gpus for count in self.counts)


def simulated(
    arrivals: Sequence[Arrival], sharing: Sharing, paces: Paces, fleet: Fleet
) -> Simulation:
    """Simulate `arrivals` at each of `LEVELS`, as the pools of `paces` share their GPUs.

    Raises:
        InvalidInput: The length of a job is not known.
        NothingFits: A job is too big for every place of an empty GPU.
    """
    _check_fit(arrivals, sharing, paces)
    tasks = []
    for each in arrivals:
        if (work := each.job.work_steps) is None:
            raise InvalidInput(
                f"the length of an epoch of {each.job.name} is not known: give it in a job file, "
                f"with examples_per_epoch."
            )
        tasks.append(Task(work, each.arrival_s))
    pairs = zip(tasks, arrivals, strict=True)
    alone_s = [task.work_steps * each.job.alone_step_s for task, each in pairs]

    def history(level: Level) -> History:
        pace = paces.pace(level)
        if orders_jobs(sharing):
            return from_the_start(sharing, [each.work_steps for each in tasks], pace)
        queue = queue_of(fleet.policy, paces.room, alone_s, paces.kinds)
        shared = cache(partial(paces.pace, level)) if fleet.shared_host else None
        return run(tasks, pace, queue, paces.hosts, shared)

    histories = [history(level) for level in LEVELS]
    middle = histories[LEVELS.index("p50")]
    ran_on: list[dict[int, int]] = [{} for _ in tasks]
    for stretch in middle.stretches:
        for job, place in stretch.seats:
            ran_on[job][stretch.gpu] = place
    jobs = tuple(
        SimulatedJob(
            job=arrival.job, arrival_s=arrival.arrival_s, gpus=tuple(ran_on[at]),
            place=paces.place(next(iter(ran_on[at].values()))), start_s=middle.starts_s[at],
            end_s=around([each.ends_s[at] for each in histories]),
        )
        for at, arrival in enumerate(arrivals)
    )  # fmt: skip
    places = paces.most_at_once
    idle_w = [
        watts for pool in paces.pools
        for watts in [idle_power_w([job.profile for job in pool.jobs])] * pool.count.gpus
    ]  # fmt: skip
    return Simulation(
        counts=fleet.counts, policy=fleet.policy, sharing=sharing, jobs=jobs,
        at_once=places if sharing.mode in ("naive", "mps") and places < len(jobs) else None,
        usage=tuple(_usage(each, paces) for each in middle.stretches),
        makespan_s=around([each.makespan_s for each in histories]),
        energy_j=energy_j(
            histories, lambda each: paces.of(each.seats, each.busy_gpus).power_w, idle_w
        ),
        idle_powers_w=tuple(idle_w),
        price_eur_per_gpu_hour=fleet.price_eur_per_gpu_hour,
        confirmed_on_hardware=paces.confirmed, estimated_from=paces.estimated_from,
    )  # fmt: skip


def check_sharing(
    sharing: Sharing, gpus: Sequence[Gpu], arrivals: Sequence[Arrival], fleet: Fleet
) -> None:
    """Check that each of `gpus`, the models of `fleet`, can be shared by `sharing`.

    Raises:
        InvalidInput: Phases are meant for jobs that come later, or for several GPUs.
        NothingFits: A GPU does not offer these instances.
    """
    if in_order := orders_jobs(sharing):
        check_count(sharing, len(arrivals))
    for gpu in gpus:
        placed(sharing, gpu)
    if in_order and (fleet.total > 1 or any(each.arrival_s for each in arrivals)):
        raise InvalidInput(
            f"{sharing}: it orders jobs that wait from the start, on one GPU. Leave out "
            f"--trace-in and --gpus, or name one sharing."
        )


def _check_fit(arrivals: Sequence[Arrival], sharing: Sharing, paces: Paces) -> None:
    """Refuse jobs, or groups of phases, that do not fit in memory or break a rule."""
    jobs = len(arrivals)
    if orders_jobs(sharing):
        for run, at_once in sets_in_turn(sharing, jobs):
            seats = [PlacedJob(job, job) for job in run]
            if at_once < len(seats):  # of a queue, any may meet
                seats = nlargest(at_once, seats, lambda seat: paces.of((seat,)).memory_total_mib)
            if why := paces.problem(tuple(sorted(seats))):
                names = ", ".join(arrivals[seat.job].job.name for seat in seats)
                raise NothingFits(f"{names} cannot run at once: {why}. Make other groups.")
        return
    first = {kind: job for job, kind in reversed(list(enumerate(paces.kinds)))}
    room, widest = paces.room, max(paces.hosts)
    for job in first.values():
        name, width = arrivals[job].job.name, room.width(job)
        if width > widest:
            raise NothingFits(
                f"{name} takes {width} GPUs of one host, and a host has {widest}. Leave it out, or "
                f"name larger hosts, as --gpus 1x{width}."
            )
        fit = (room.start_on_several(job, [()] * len(room.offers)) if width > 1 else
               any(next(room.options(job, (), at), None) for at in paces.first_gpus))  # fmt: skip
        if not fit:
            why = paces.problem((PlacedJob(job, 0),))
            raise NothingFits(
                f"{name} cannot run in any place of {sharing}: {why}. Leave it out, or share in "
                f"another way."
            )


def _usage(stretch: Stretch, paces: Paces) -> Usage:
    answer = paces.of(stretch.seats, stretch.busy_gpus)
    return Usage(
        gpu=stretch.gpu, start_s=stretch.start_s, end_s=stretch.end_s,
        jobs=tuple(seat.job for seat in stretch.seats), speeds=stretch.speeds,
        memory_mib=answer.memory_total_mib, gract=answer.gract, smact=answer.smact,
        power_w=None if answer.power_w is None else answer.power_w.p50,
    )  # fmt: skip
