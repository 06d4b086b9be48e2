"""Simulates jobs that arrive over time at shared GPUs, at both ends of the intervals too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from heapq import nlargest
from math import isfinite
from typing import get_args, overload

from advisor.errors import InvalidInput, NothingFits, check_choice
from advisor.files.units import MOST_WAIT_S, check_number
from advisor.hardware.gpus import Gpu, GpuCount, parse_gpus
from advisor.hardware.mig import refuse_without_mig
from advisor.prediction.mig_instances import placed
from advisor.prediction.power import idle_power_w
from advisor.prediction.prediction import LEVELS, Interval, Level, around
from advisor.sharing import Sharing
from advisor.sharing.groups import check_count, chooses_layouts, groups, lines_of, orders_jobs
from advisor.simulation import PREEMPTION_S, ROUND_S, Policy, RoundPolicy, StartPolicy
from advisor.simulation.events import History, JobQueue, PlacedJob, PlacedJobs, Stretch, run
from advisor.simulation.paces import Paces
from advisor.simulation.policies import InRounds, fair_ends_s
from advisor.simulation.queues import queue_of
from advisor.simulation.results import SimulatedJob, Simulation, Usage
from advisor.simulation.turns import from_the_start, start_cpu_s, task_of
from advisor.workload.job import Arrival

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
        check_choice("policy", self.policy, get_args(Policy))
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
        InvalidInput: The length of a job is unknown.
        NothingFits: A job is too big for every place of an empty GPU.
    """
    _check_fit(arrivals, sharing, paces)
    for each in arrivals:
        if each.job.work_steps is None:
            raise InvalidInput(
                f"the length of an epoch of {each.job.name} is unknown. Give it in a job file, "
                "with examples_per_epoch."
            )
    alone_s = [(each.job.work_steps or 0.0) * each.job.alone_step_s for each in arrivals]
    histories = [_history(level, arrivals, sharing, paces, fleet, alone_s) for level in LEVELS]
    idle_w = [
        watts
        for pool in paces.pools
        for watts in [idle_power_w([job.profile for job in pool.jobs])] * pool.count.gpus
    ]
    middle = histories[LEVELS.index("p50")]
    places = paces.room.most
    any_number = sharing.mode in ("naive", "mps") or chooses_layouts(sharing)
    return Simulation(
        counts=fleet.counts,
        policy=fleet.policy,
        sharing=sharing,
        jobs=_jobs(arrivals, alone_s, histories, paces, fleet),
        at_once=places if any_number and places < len(arrivals) else None,
        usage=_Usages(middle.stretches, paces),
        preemptions=middle.preemptions,
        layout_changes=middle.layout_changes,
        makespan_s=around([each.makespan_s for each in histories]),
        energy_j=energy_j(histories, lambda seats, busy: paces.of(seats, busy).power_w, idle_w),
        idle_powers_w=tuple(idle_w),
        price_eur_per_gpu_hour=fleet.price_eur_per_gpu_hour,
        confirmed_on_hardware=paces.confirmed,
        estimated_from=paces.estimated_from,
    )


def _history(
    level: Level,
    arrivals: Sequence[Arrival],
    sharing: Sharing,
    paces: Paces,
    fleet: Fleet,
    alone_s: Sequence[float],
) -> History:
    """Simulate `arrivals` if all steps take the time at `level`."""
    tasks = [task_of(each.job, level, each.arrival_s, paces.cores) for each in arrivals]
    pace = paces.pace(level)
    if orders_jobs(sharing):
        return from_the_start(sharing, tasks, pace)
    queue: JobQueue
    match fleet.policy:
        case "max-min" | "finish-time" | "least-attained" as policy:
            lost_s = fleet.preemption_s
            lost_cores_s = start_cpu_s(lost_s, level) / paces.cores
            queue = InRounds(
                policy, paces.room, tasks, alone_s, fleet.round_s, lost_s, lost_cores_s
            )
        case policy:
            queue = queue_of(policy, paces.room, alone_s, paces.kinds)
    shared = cache(partial(paces.pace, level)) if fleet.shared_host else None
    return run(tasks, pace, queue, paces.hosts, shared, paces.change_s)


PowerOfMix = Callable[[PlacedJobs, int], Interval | None]
"""The jobs on a GPU, and the GPUs of its host that run jobs -> its power; None: not measured."""

# Gaps without jobs below this share of all time are rounding.
_DUST = 1e-9


def energy_j(
    histories: Sequence[History], power_w: PowerOfMix, idle_w: Sequence[float | None]
) -> Interval | None:
    """Compute joules until the last job ends, by histories at `LEVELS`; None: not measured.

    `idle_w` is the power of each GPU without jobs.
    """
    totals = []
    for level, history in zip(LEVELS, histories, strict=True):
        busy_s, joules = [0.0] * len(idle_w), 0.0
        for each in history.stretches:
            busy_s[each.gpu] += each.seconds
            if (power := power_w(each.seats, each.busy_gpus)) is None:
                return None
            joules += power.at(level) * each.seconds
        for seconds, watts in zip(busy_s, idle_w, strict=True):
            if (free_s := history.makespan_s - seconds) >= _DUST * history.makespan_s:
                if watts is None:
                    return None
                joules += free_s * watts
        totals.append(joules)
    return around(totals)


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
                f"{sharing}: a GPU changes its layout when it has no job, but {fleet.policy} "
                "gives it new jobs in each round. Name the instances, or use --policy "
                f"{', '.join(get_args(StartPolicy))}."
            )
        return
    if in_order := orders_jobs(sharing):
        check_count(sharing, len(arrivals))
    for gpu in gpus:
        placed(sharing, gpu)
    if in_order and (fleet.total > 1 or any(each.arrival_s for each in arrivals)):
        raise InvalidInput(
            f"{sharing} orders jobs that wait from the start, on one GPU. Leave out --trace-in "
            "and --gpus, or name one sharing."
        )


def _check_fit(arrivals: Sequence[Arrival], sharing: Sharing, paces: Paces) -> None:
    """Refuse jobs, or groups of phases, that do not fit in memory or break a rule."""
    jobs = len(arrivals)
    if orders_jobs(sharing):
        for group in groups(sharing, jobs):
            seats = list[PlacedJob]()
            for numbers, at_once in lines_of(group):
                line = [PlacedJob(number - 1, number - 1) for number in numbers]
                if at_once < len(line):  # of a queue, any may meet
                    line = nlargest(at_once, line, lambda seat: paces.of((seat,)).memory_total_mib)
                seats += line
            if why := paces.problem(tuple(sorted(seats))):
                names = ", ".join(arrivals[seat.job].job.name for seat in seats)
                raise NothingFits(f"{names} cannot run at once: {why}. Change the groups.")
        return
    first = {kind: job for job, kind in reversed(list(enumerate(paces.kinds)))}
    room, widest = paces.room, max(paces.hosts)
    first_gpus = [room.offers.index(own) for own in set(room.offers)]
    for job in first.values():
        name, width = arrivals[job].job.name, room.width(job)
        if width > widest:
            raise NothingFits(
                f"{name} takes {width} GPUs of one host, and a host has {widest}. Leave the job "
                f"out, or name larger hosts, as --gpus 1x{width}."
            )
        fit = (
            room.start_on_several(job, [()] * len(room.offers))
            if width > 1
            else any(next(room.options(job, (), at), None) for at in first_gpus)
        )
        if not fit:
            why = paces.problem((PlacedJob(job, 0),))
            raise NothingFits(
                f"{name} cannot run in any place of {sharing}: {why}. Leave the job out, or "
                "choose another sharing."
            )
