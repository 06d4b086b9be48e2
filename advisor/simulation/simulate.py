"""Jobs that come over time to GPUs that they share: simulated with every error both ways."""

from collections.abc import Sequence
from dataclasses import dataclass

from advisor.sharing import Phases
from advisor.simulation.energy import LEVELS, Level, around, energy_j, idle_power_w
from advisor.simulation.loop import History, Stretch, Task, run
from advisor.simulation.outcome import Lived, Simulation, Usage
from advisor.simulation.paces import Paces
from advisor.simulation.phased import in_turn
from advisor.simulation.queues import Policy, queue_of
from advisor.workload.job import Job


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job, how much of it there is to do, and when it comes."""

    job: Job
    work_steps: float
    arrival_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What jobs run on: equal GPUs.

    Attributes:
        gpu: Catalogue key.
        gpus: How many.
        policy: Who starts next, and where.
        price_eur_per_gpu_hour: None: not asked for.
    """

    gpu: str
    gpus: int
    policy: Policy
    price_eur_per_gpu_hour: float | None = None


def simulated(arrivals: Sequence[Arrival], paces: Paces, fleet: Fleet) -> Simulation:
    """What comes of `arrivals`, simulated at each of `LEVELS`.

    Args:
        arrivals: At least one.
        paces: Of these jobs, in this order.
        fleet: What they run on.

    Raises:
        NothingFits: A job is too big for every place of an empty GPU.
    """
    histories = [_history(arrivals, paces, fleet, level) for level in LEVELS]
    middle = histories[LEVELS.index("p50")]
    return Simulation(
        gpu=fleet.gpu,
        sharing=paces.sharing,
        gpus=fleet.gpus,
        policy=fleet.policy,
        jobs=_lived(arrivals, histories),
        usage=tuple(_usage(each, paces) for each in middle.stretches),
        makespan_s=around([each.makespan_s for each in histories]),
        energy_j=energy_j(
            histories,
            lambda seats: paces.of(seats).power_w,
            idle_power_w([each.job.profile for each in arrivals]),
            fleet.gpus,
        ),
        price_eur_per_gpu_hour=fleet.price_eur_per_gpu_hour,
    )


def _history(arrivals: Sequence[Arrival], paces: Paces, fleet: Fleet, level: Level) -> History:
    if isinstance(paces.sharing, Phases):
        return in_turn(paces.sharing, [each.work_steps for each in arrivals], paces.pace(level))
    tasks = [Task(each.work_steps, each.arrival_s) for each in arrivals]
    step_s = {id(job): job.profile.step_s for job in {id(a.job): a.job for a in arrivals}.values()}
    alone_s = [each.work_steps * step_s[id(each.job)] for each in arrivals]
    queue = queue_of(fleet.policy, paces.room, alone_s, paces.kinds)
    return run(tasks, paces.pace(level), queue, fleet.gpus)


def _lived(arrivals: Sequence[Arrival], histories: Sequence[History]) -> tuple[Lived, ...]:
    middle = histories[LEVELS.index("p50")]
    seats = {seat.job: (each.gpu, seat.place) for each in middle.stretches for seat in each.seats}
    return tuple(
        Lived(
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
        memory_mib=answer.memory_mib,
        gract=answer.gract,
        smact=answer.smact,
        power_w=None if answer.power_w is None else answer.power_w.p50,
    )
