"""Groups of jobs one after another, with a pause between them to set the GPU up anew."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from advisor.sharing import Group, Hybrid, Phases, Serial
from advisor.simulation.repartition import repartition_s
from advisor.simulation.timeline import Pace, Phase, one_by_one, together


def in_turn(phases: Phases, work_steps: Sequence[float], pace: Pace) -> tuple[Phase, ...]:
    """What happens if each group starts when the one before it has ended and the GPU is set up.

    In a pause nobody runs: its `running` is empty.

    Args:
        phases: Names every job once.
        work_steps: Steps that each job has to do, above 0, shape (jobs,).
        pace: Of jobs of one group, by their positions among all jobs.
    """
    spans = list(_of_group(phases.groups[0], work_steps, pace, 0.0))
    for before, group in pairwise(phases.groups):
        begin_s = spans[-1].end_s
        end_s = begin_s + repartition_s(before, group)
        if end_s > begin_s:
            spans.append(Phase(begin_s, end_s, ()))
        spans += _of_group(group, work_steps, pace, end_s)
    return tuple(spans)


def _of_group(
    group: Group | Hybrid, work_steps: Sequence[float], pace: Pace, start_s: float
) -> list[Phase]:
    positions = [number - 1 for number in sorted(group.jobs)]
    serial = isinstance(group, Group) and isinstance(group.sharing, Serial)
    simulate = one_by_one if serial else together

    def of_all(running: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(positions[job] for job in running)

    phases = simulate([work_steps[job] for job in positions], lambda local: pace(of_all(local)))
    return [
        replace(
            each,
            start_s=start_s + each.start_s,
            end_s=start_s + each.end_s,
            running=of_all(each.running),
        )
        for each in phases
    ]
