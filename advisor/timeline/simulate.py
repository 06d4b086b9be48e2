"""Simulates jobs that arrive over time at shared GPUs, at both ends of the intervals too."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import get_args

from advisor.errors import InvalidInput, NothingFits
from advisor.hardware.catalogue import Gpu
from advisor.prediction.interval import LEVELS, Level, around
from advisor.prediction.mig_instances import placed
from advisor.prediction.power import idle_power_w
from advisor.sharing import Sharing
from advisor.sharing.traversal import check_count, running_together
from advisor.timeline import Policy
from advisor.timeline.event_loop import History, PlacedJob, Stretch, Task, energy_j, run
from advisor.timeline.outcome import SimulatedJob, Simulation, Usage
from advisor.timeline.paces import Paces
from advisor.timeline.queue_policies import queue_of
from advisor.timeline.waiting_jobs import from_the_start
from advisor.workload.job import Arrival


@dataclass(frozen=True, slots=True)
class Fleet:
    """The equal GPUs on which jobs run.

    Attributes:
        gpu: Catalogue key.
        gpus: Number of GPUs.
        policy: Which job starts next, and where.
        price_eur_per_gpu_hour: None: costs are not computed.

    Raises:
        InvalidInput: There is no GPU, no such policy, or the price is below 0.
    """

    gpu: str
    gpus: int
    policy: Policy
    price_eur_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise InvalidInput(f"jobs need at least 1 GPU, got {self.gpus}")
        if self.policy not in (known := get_args(Policy)):
            raise InvalidInput(f"a policy is one of {', '.join(known)}; got {self.policy!r:.60}")
        price = self.price_eur_per_gpu_hour
        if price is not None and not (isfinite(price) and price >= 0):
            raise InvalidInput(f"a price is at least 0 EUR for a GPU's hour, got {price:g}")


def simulated(arrivals: Sequence[Arrival], paces: Paces, fleet: Fleet) -> Simulation:
    """The simulation of `arrivals` at each of `LEVELS`.

    Raises:
        InvalidInput: The length of a job is not known.
        NothingFits: A job is too big for every place of an empty GPU.
    """
    _check_fit(arrivals, paces)
    tasks = _tasks(arrivals)
    histories = [_history(arrivals, tasks, paces, fleet, level) for level in LEVELS]
    middle = histories[LEVELS.index("p50")]
    idle_w = idle_power_w([each.job.profile for each in arrivals])
    return Simulation(
        gpu=fleet.gpu,
        sharing=paces.sharing,
        gpus=fleet.gpus,
        policy=fleet.policy,
        jobs=_lived(arrivals, histories),
        usage=tuple(_usage(each, paces) for each in middle.stretches),
        makespan_s=around([each.makespan_s for each in histories]),
        energy_j=energy_j(histories, lambda seats: paces.of(seats).power_w, idle_w, fleet.gpus),
        idle_power_w=idle_w,
        price_eur_per_gpu_hour=fleet.price_eur_per_gpu_hour,
        confirmed_on_hardware=paces.confirmed,
        estimated_from=paces.estimated_from,
    )


def check_sharing(sharing: Sharing, gpu: Gpu, arrivals: Sequence[Arrival], fleet: Fleet) -> None:
    """Check that each GPU of `fleet` can be shared by `sharing`, and that phases have no arrivals.

    Raises:
        InvalidInput: Phases are asked for jobs that come later, or on several GPUs.
        NothingFits: The GPU does not offer these instances.
    """
    in_phases = sharing.mode == "phases"
    if in_phases:
        check_count(sharing, len(arrivals))
    placed(sharing, gpu)
    if not in_phases:
        return
    if fleet.gpus > 1 or any(each.arrival_s for each in arrivals):
        raise InvalidInput(
            f"{sharing}: phases are for jobs that wait from the start, on one GPU. Leave out "
            f"--trace-in and --gpus, or name one sharing."
        )


def _tasks(arrivals: Sequence[Arrival]) -> list[Task]:
    steps = {id(each.job): each.job.work_steps for each in arrivals}
    tasks = []
    for each in arrivals:
        work = steps[id(each.job)]
        if work is None:
            raise InvalidInput(
                f"the length of an epoch of {each.job.name} is not known: give it in a job file, "
                f"with examples_per_epoch."
            )
        tasks.append(Task(work, each.arrival_s))
    return tasks


def _check_fit(arrivals: Sequence[Arrival], paces: Paces) -> None:
    """Refuse jobs, or groups of phases, that do not fit in memory."""
    jobs = len(arrivals)
    if paces.sharing.mode == "phases":
        for group in running_together(paces.sharing, jobs):
            if not paces.fits(tuple(PlacedJob(job, job) for job in sorted(group))):
                names = ", ".join(arrivals[job].job.name for job in group)
                raise NothingFits(f"memory does not hold {names} at once. Make smaller groups.")
        return
    first = {kind: job for job, kind in reversed(list(enumerate(paces.kinds)))}
    for job in first.values():
        if next(paces.room.options(job, ()), None) is None:
            raise NothingFits(
                f"{arrivals[job].job.name} needs more memory than any place has under "
                f"{paces.sharing}. Leave it out, or share in another way."
            )


def _history(
    arrivals: Sequence[Arrival], tasks: Sequence[Task], paces: Paces, fleet: Fleet, level: Level
) -> History:
    if paces.sharing.mode == "phases":
        return from_the_start(paces.sharing, [each.work_steps for each in tasks], paces.pace(level))
    queue = queue_of(fleet.policy, paces.room, _alone_s(arrivals, tasks), paces.kinds)
    return run(tasks, paces.pace(level), queue, fleet.gpus)


def _alone_s(arrivals: Sequence[Arrival], tasks: Sequence[Task]) -> list[float]:
    profiles = {id(each.job.profile): each.job.profile for each in arrivals}
    step_s = {key: profile.step_s for key, profile in profiles.items()}
    return [
        task.work_steps * step_s[id(each.job.profile)]
        for task, each in zip(tasks, arrivals, strict=True)
    ]


def _lived(arrivals: Sequence[Arrival], histories: Sequence[History]) -> tuple[SimulatedJob, ...]:
    middle = histories[LEVELS.index("p50")]
    seats = {seat.job: (each.gpu, seat.place) for each in middle.stretches for seat in each.seats}
    return tuple(
        SimulatedJob(
            job=arrival.job,
            arrival_s=arrival.arrival_s,
            gpu=seats[at][0],
            place=seats[at][1],
            start_s=middle.starts_s[at],
            end_s=around([each.ends_s[at] for each in histories]),
        )
        for at, arrival in enumerate(arrivals)
    )


def _usage(stretch: Stretch, paces: Paces) -> Usage:
    answer = paces.of(stretch.seats)
    return Usage(
        gpu=stretch.gpu,
        start_s=stretch.start_s,
        end_s=stretch.end_s,
        jobs=tuple(seat.job for seat in stretch.seats),
        speeds=stretch.speeds,
        memory_mib=answer.memory_total_mib,
        gract=answer.gract,
        smact=answer.smact,
        power_w=None if answer.power_w is None else answer.power_w.p50,
    )
