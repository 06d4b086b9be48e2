"""Simulates jobs that arrive over time at shared GPUs, at both ends of the intervals too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from heapq import nlargest
from math import fsum, isfinite
from statistics import fmean
from typing import Annotated, get_args, overload

import numpy as np

from advisor.documents import As, Mark, in_document
from advisor.errors import InvalidInput, NothingFits
from advisor.files.reading import MOST_WAIT_S, check_number
from advisor.hardware.gpus import Gpu, GpuCount, parse_gpus
from advisor.hardware.mig import refuse_without_mig
from advisor.prediction.mig_instances import placed
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import LEVELS, Interval, Level, all_known, around
from advisor.sharing import Arrangement, Sharing, parse_sharing
from advisor.sharing.groups import (
    check_count,
    chooses_layouts,
    orders_jobs,
    restricted,
    sets_in_turn,
)
from advisor.simulation import PREEMPTION_S, ROUND_S, Policy, RoundPolicy, StartPolicy
from advisor.simulation.energy import EnergySum
from advisor.simulation.events import (
    History,
    JobQueue,
    PlacedJob,
    PlacedJobs,
    Stretch,
    Stretches,
    Task,
    run,
)
from advisor.simulation.paces import Paces
from advisor.simulation.policies import InRounds, fair_ends_s
from advisor.simulation.queues import queue_of
from advisor.simulation.turns import from_the_start, start_cpu_s, task_of
from advisor.workload.job import Arrival, Job
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
        layout: Its instances, of MIG with a job on each; else None.
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
        usage: Of all GPUs, in the order of the ends, without idle GPUs.
        energy_j: Joules of all GPUs until then, idle power included; None: not measured.
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
        round_s: Seconds after which a policy that stops jobs decides again.
        preemption_s: Seconds of work alone that a job loses when it was stopped and starts again.
        shared_host: Whether the GPUs that run jobs share the cores of their host equally.
    """

    gpu: str
    gpus: int | str
    policy: Policy
    price_eur_per_gpu_hour: float | None = None
    round_s: float = ROUND_S
    preemption_s: float = PREEMPTION_S
    shared_host: bool = False

    def __post_init__(self) -> None:
        parse_gpus(self.gpus, MOST_SIMULATED)
        if self.policy not in (policies := get_args(Policy)):
            raise InvalidInput(f"a policy is one of {', '.join(policies)}; got {self.policy!r:.60}")
        price = self.price_eur_per_gpu_hour
        if price is not None and not (isfinite(price) and price >= 0):
            raise InvalidInput(f"a price is at least 0 EUR for a GPU's hour, got {price:g}")
        check_number("a round", self.round_s, MOST_WAIT_S, 1)
        check_number("a preemption", self.preemption_s, MOST_WAIT_S)

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
    for each in arrivals:
        if each.job.work_steps is None:
            raise InvalidInput(
                f"the length of an epoch of {each.job.name} is not known: give it in a job file, "
                f"with examples_per_epoch."
            )
    tasks = [task_of(each.job, "p50", each.arrival_s) for each in arrivals]
    pairs = zip(tasks, arrivals, strict=True)
    alone_s = [task.work_steps * each.job.alone_step_s for task, each in pairs]

    idle_w = [
        watts
        for pool in paces.pools
        for watts in [idle_power_w([job.profile for job in pool.jobs])] * pool.count.gpus
    ]

    def power_w(seats: PlacedJobs, busy_gpus: int) -> Interval | None:
        return paces.of(seats, busy_gpus).power_w

    def at_level(level: Level) -> tuple[History, float | None]:
        pace, energy = paces.pace(level), EnergySum(level, power_w, len(idle_w))
        stretches = Stretches(lambda busy: paces.pace(level, busy))

        def record(
            gpu: int, start_s: float, end_s: float, seats: PlacedJobs, busy_gpus: int
        ) -> None:
            energy.add(gpu, start_s, end_s, seats, busy_gpus)
            if level == "p50":  # the others would take as much memory again
                stretches.add(gpu, start_s, end_s, seats, busy_gpus)

        tasks = [task_of(each.job, level, each.arrival_s, paces.cores) for each in arrivals]
        if orders_jobs(sharing):
            history = from_the_start(sharing, tasks, pace)
            for each in history.stretches:
                record(each.gpu, each.start_s, each.end_s, each.seats, each.busy_gpus)
        else:
            shared = cache(partial(paces.pace, level)) if fleet.shared_host else None
            queue = _queue(tasks, alone_s, paces, fleet, level)
            history = run(tasks, pace, queue, paces.hosts, shared, record, paces.change_s)
            history = replace(history, stretches=stretches)
        return history, energy.total_j(idle_w, history.makespan_s)

    histories, joules = zip(*map(at_level, LEVELS), strict=True)
    middle = histories[LEVELS.index("p50")]
    known_j, places = all_known(joules), paces.most_at_once
    any_number = sharing.mode in ("naive", "mps") or chooses_layouts(sharing)
    return Simulation(
        counts=fleet.counts,
        policy=fleet.policy,
        sharing=sharing,
        jobs=_jobs(arrivals, alone_s, histories, paces, fleet),
        at_once=places if any_number and places < len(tasks) else None,
        usage=_Usages(middle.stretches, paces),
        preemptions=middle.preemptions,
        layout_changes=middle.layout_changes,
        makespan_s=around([each.makespan_s for each in histories]),
        energy_j=None if known_j is None else around(known_j),
        idle_powers_w=tuple(idle_w),
        price_eur_per_gpu_hour=fleet.price_eur_per_gpu_hour,
        confirmed_on_hardware=paces.confirmed,
        estimated_from=paces.estimated_from,
    )


def _queue(
    tasks: Sequence[Task], alone_s: Sequence[float], paces: Paces, fleet: Fleet, level: Level
) -> JobQueue:
    """An empty queue of the fleet's policy."""
    match fleet.policy:
        case "max-min" | "finish-time" | "least-attained" as policy:
            return InRounds(
                policy,
                paces.room,
                tasks,
                alone_s,
                fleet.round_s,
                fleet.preemption_s,
                start_cpu_s(fleet.preemption_s, level) / paces.cores,
            )
        case policy:
            return queue_of(policy, paces.room, alone_s, paces.kinds)


def _jobs(
    arrivals: Sequence[Arrival],
    alone_s: Sequence[float],
    histories: Sequence[History],
    paces: Paces,
    fleet: Fleet,
) -> tuple[SimulatedJob, ...]:
    middle = histories[LEVELS.index("p50")]
    first: list[dict[int, int]] = [{} for _ in arrivals]  # GPUs and places
    for each in middle.stretches:
        for job, place in each.seats:
            if each.start_s == middle.starts_s[job]:
                first[job][each.gpu] = paces.place(place)
    widths = [each.job.gpus for each in arrivals]
    arrivals_s = [each.arrival_s for each in arrivals]
    fair_s = fair_ends_s(arrivals_s, middle.ends_s, alone_s, widths, fleet.total)
    return tuple(
        SimulatedJob(
            job=arrival.job,
            arrival_s=arrival.arrival_s,
            gpus=tuple(first[at]),
            place=next(iter(first[at].values())),
            start_s=middle.starts_s[at],
            end_s=around([each.ends_s[at] for each in histories]),
            fair_s=float(fair_s[at]),
        )
        for at, arrival in enumerate(arrivals)
    )


@dataclass(frozen=True, slots=True)
class _Usages(Sequence[Usage]):
    """The use of GPUs in stretches, computed when it is read: with host cores, they are many."""

    stretches: Sequence[Stretch]
    paces: Paces

    def __len__(self) -> int:
        return len(self.stretches)

    @overload
    def __getitem__(self, at: int) -> Usage: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Usage, ...]: ...
    def __getitem__(self, at: int | slice) -> Usage | tuple[Usage, ...]:
        if isinstance(at, slice):
            return tuple(self[one] for one in range(*at.indices(len(self))))
        stretch = self.stretches[at]
        answer = self.paces.of(stretch.seats, stretch.busy_gpus)
        layout = self.paces.layout(stretch.seats[0].place)
        return Usage(
            gpu=stretch.gpu,
            start_s=stretch.start_s,
            end_s=stretch.end_s,
            jobs=tuple(seat.job for seat in stretch.seats),
            speeds=stretch.speeds,
            places=tuple(self.paces.place(seat.place) for seat in stretch.seats),
            layout=str(layout) if layout.mode == "mig" else None,
            memory_mib=answer.memory_total_mib,
            gract=answer.gract,
            smact=answer.smact,
            power_w=None if answer.power_w is None else answer.power_w.p50,
        )


def check_sharing(
    sharing: Sharing, gpus: Sequence[Gpu], arrivals: Sequence[Arrival], fleet: Fleet
) -> None:
    """Check that each of `gpus`, the models of `fleet`, can be shared by `sharing`.

    Raises:
        InvalidInput: Phases are meant for jobs that come later, or for several GPUs; or layouts are
            to be chosen by a policy in rounds.
        NothingFits: A GPU does not offer these instances, or has no MIG.
    """
    if chooses_layouts(sharing):
        for gpu in gpus:
            refuse_without_mig(gpu)
        if fleet.policy in get_args(RoundPolicy):
            raise InvalidInput(
                f"{sharing}: a GPU changes its layout when it has no job, and {fleet.policy} fills "
                f"it again at each end of a round. Name the instances, or use --policy "
                f"{', '.join(get_args(StartPolicy))}."
            )
        return
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
        fit = (
            room.start_on_several(job, [()] * len(room.offers))
            if width > 1
            else any(next(room.options(job, (), at), None) for at in paces.first_gpus)
        )
        if not fit:
            why = paces.problem((PlacedJob(job, 0),))
            raise NothingFits(
                f"{name} cannot run in any place of {sharing}: {why}. Leave it out, or share in "
                f"another way."
            )
