"""Jobs that all wait from the start: at once, one by one, or in groups with pauses between them."""

from collections.abc import Sequence
from itertools import pairwise

from advisor.sharing import Group, Hybrid, Phases, Serial, Sharing
from advisor.simulation.loop import History, Pace, Seat, Seats, Stretch, Task, run
from advisor.simulation.queues import InOrder, Room
from advisor.simulation.repartition import repartition_s


def from_the_start(sharing: Sharing, work_steps: Sequence[float], pace: Pace) -> History:
    """What happens on one GPU whose memory holds all that is to run at once.

    Args:
        sharing: Of all jobs, each in the place of its own number.
        work_steps: Steps that each job has to do, above 0, shape (jobs,).
        pace: Of jobs that run at once.
    """
    if isinstance(sharing, Phases):
        return in_turn(sharing, work_steps, pace)
    places = 1 if isinstance(sharing, Serial) else len(work_steps)
    return run([Task(each) for each in work_steps], pace, InOrder(Room(tuple(range(places)))))


def in_turn(phases: Phases, work_steps: Sequence[float], pace: Pace) -> History:
    """What happens if each group starts when the one before it has ended and the GPU is set up.

    Arguments as of `from_the_start`. In a pause nobody runs.
    """
    stretches = _of_group(phases.groups[0], work_steps, pace, 0.0)
    for before, group in pairwise(phases.groups):
        begins_s = stretches[-1].end_s + repartition_s(before, group)
        stretches += _of_group(group, work_steps, pace, begins_s)
    starts_s = {seat.job: each.start_s for each in reversed(stretches) for seat in each.seats}
    ends_s = {seat.job: each.end_s for each in stretches for seat in each.seats}
    jobs = range(len(work_steps))
    return History(
        tuple(stretches), tuple(starts_s[job] for job in jobs), tuple(ends_s[job] for job in jobs)
    )


def _of_group(
    group: Group | Hybrid, work_steps: Sequence[float], pace: Pace, begins_s: float
) -> list[Stretch]:
    positions = [number - 1 for number in sorted(group.jobs)]

    def of_all(seats: Seats) -> Seats:
        return tuple(Seat(positions[seat.job], positions[seat.job]) for seat in seats)

    history = from_the_start(
        group if isinstance(group, Hybrid) else group.sharing,
        [work_steps[job] for job in positions],
        lambda seats: pace(of_all(seats)),
    )
    return [
        Stretch(0, begins_s + each.start_s, begins_s + each.end_s, of_all(each.seats), each.speeds)
        for each in history.stretches
    ]
