"""Jobs that all wait from the start: at once, one by one, or in groups with pauses between them."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from advisor.sharing import Group, Hybrid, Instance, Mps, Phases, Serial, Sharing
from advisor.timeline.event_loop import History, Pace, PlacedJob, PlacedJobs, Stretch, Task, run
from advisor.timeline.queue_policies import GpuCapacity, InOrder


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
    return run(
        [Task(each) for each in work_steps], pace, InOrder(GpuCapacity(tuple(range(places))))
    )


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

    def of_all(seats: PlacedJobs) -> PlacedJobs:
        return tuple(PlacedJob(positions[seat.job], positions[seat.job]) for seat in seats)

    history = from_the_start(
        group if isinstance(group, Hybrid) else group.sharing,
        [work_steps[job] for job in positions],
        lambda seats: pace(of_all(seats)),
    )
    return [
        Stretch(0, begins_s + each.start_s, begins_s + each.end_s, of_all(each.seats), each.speeds)
        for each in history.stretches
    ]


# Seconds to make and to destroy a MIG instance: an A30 took 0.13 to 0.16 and 0.10 to 0.11, as the
# README of FAR reports.
_MAKE_S, _DESTROY_S = 0.16, 0.11
# Assumed: MIG mode on or off, without a reset, as Hopper does it.
MIG_MODE_S = 5.0
# An MPS daemon up or down: the median of 11 times on an H200 (profiles/REPORT.md, whole jobs).
_MPS_DAEMON_S = 0.16


def repartition_s(before: Group | Hybrid, after: Group | Hybrid) -> float:
    """Seconds between the last job of `before` and the first of `after`, when nothing runs.

    Instances and MPS daemons that both need stay. That jobs start up is not counted, for they do so
    under any plan.
    """
    old, new = _instances(before), _instances(after)
    seconds = (new - old).total() * _MAKE_S + (old - new).total() * _DESTROY_S
    seconds += MIG_MODE_S * (bool(old) != bool(new))
    up, down = _daemons(after) - _daemons(before), _daemons(before) - _daemons(after)
    return seconds + _MPS_DAEMON_S * (up + down).total()


def _instances(group: Group | Hybrid) -> Counter[Instance]:
    return Counter(group.instances) if isinstance(group, Hybrid) else Counter()


def _daemons(group: Group | Hybrid) -> Counter[str]:
    """Where MPS daemons run."""
    if isinstance(group, Group):
        return Counter(["gpu"] if isinstance(group.sharing, Mps) else [])
    return Counter(
        f"{place.instance} {part}"
        for place in group.places
        for part, room in enumerate(place.rooms)
        if isinstance(room.sharing, Mps)
    )
