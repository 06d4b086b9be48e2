"""Jobs that share a GPU over time: when one ends, the rest go on at another pace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Jobs within this share of their work from the end are at the end: rounding, not work.
_DONE = 1e-9

Pace = Callable[[tuple[int, ...]], Sequence[float]]
"""Which jobs run -> steps a second of each of them, in that order."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time in which the same jobs run; `running` holds their positions."""

    start_s: float
    end_s: float
    running: tuple[int, ...]

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def together(work_steps: Sequence[float], pace: Pace) -> tuple[Phase, ...]:
    """What happens if all jobs start at once.

    Time jumps from one end to the next. Between two of them no pace changes, so the answer is
    exact: there is no step size to choose.

    Args:
        work_steps: Steps that each job has to do, above 0, shape (jobs,).
        pace: Called once for each phase.
    """
    left = dict(enumerate(work_steps))
    phases: list[Phase] = []
    now = 0.0
    while left:
        running = tuple(left)
        speed = dict(zip(running, pace(running), strict=True))
        seconds = min(left[job] / speed[job] for job in running)
        phases.append(Phase(now, now + seconds, running))
        now += seconds
        left = {job: steps - speed[job] * seconds for job, steps in left.items()}
        left = {job: steps for job, steps in left.items() if steps > _DONE * work_steps[job]}
    return tuple(phases)


def one_by_one(work_steps: Sequence[float], pace: Pace) -> tuple[Phase, ...]:
    """What happens if each job starts when the one before it has ended."""
    phases: list[Phase] = []
    now = 0.0
    for job, steps in enumerate(work_steps):
        (speed,) = pace((job,))
        phases.append(Phase(now, now + steps / speed, (job,)))
        now = phases[-1].end_s
    return tuple(phases)


def finish_times(phases: Sequence[Phase]) -> list[float]:
    """Seconds from the start until each job ends, shape (jobs,)."""
    ends = {job: phase.end_s for phase in phases for job in phase.running}
    return [ends[job] for job in sorted(ends)]
