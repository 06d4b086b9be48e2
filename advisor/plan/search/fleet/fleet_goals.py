"""What a plan of many groups on several GPUs costs, by what it is to be best at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum

from advisor.plan.recommendation import Objective
from advisor.plan.search.fleet.columns import Column, Placed

# Of the jobs that a GPU runs in all, those that wait while a group does: half, on the average.
WAITING = 0.5
IN_TURN: tuple[Objective, ...] = ("mean-completion", "fairness", "deadlines")
"""What depends on the order in which groups run, not only on how long they take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be planned, without the ways to do it.

    Attributes:
        aim: What the plan is to be best at.
        gpus: Equal GPUs that there are.
        counts: Jobs of each kind, shape (kinds,).
        alone_s: Seconds that a job of each kind takes alone, likewise.
        least_s: Seconds that it takes at least, however it runs, likewise.
        deadlines_s: From the start of all, likewise; None: the kind has none.
        idle_power_w: Of a GPU on which nothing runs; None where it was not measured.
    """

    aim: Objective
    gpus: int
    counts: tuple[int, ...]
    alone_s: tuple[float, ...]
    least_s: tuple[float, ...]
    deadlines_s: tuple[float | None, ...]
    idle_power_w: float | None

    def cost(self, plan: Sequence[Placed]) -> float:
        """What `plan` costs: the lower, the better.

        Returns:
            Of the makespan and of throughput, when the last job ends; of the mean completion, when
            a job ends on the average; of energy, joules of all GPUs until the last job ends; of
            fairness, the worst end of a job over the time that it takes alone; of deadlines, how
            many are missed.
        """
        match self.aim:
            case "mean-completion":
                return fsum(end_s for _, end_s in _ends(plan)) / sum(self.counts)
            case "fairness":
                return max(end_s / self.alone_s[kind] for kind, end_s in _ends(plan))
            case "deadlines":
                return float(sum(self._late(kind, end_s) for kind, end_s in _ends(plan)))
            case "energy":
                held_s = self.gpus * makespan_s(plan)
                free_s = held_s - fsum(each.column.runs_s for each in plan)
                used_j = fsum(each.column.energy_j or 0.0 for each in plan)
                return used_j + free_s * (self.idle_power_w or 0.0)
            case _:
                return makespan_s(plan)

    def rank(self, plan: Sequence[Placed]) -> tuple[float, float]:
        """Its cost, then its makespan: of equal plans, the one that ends first is better."""
        return self.cost(plan), makespan_s(plan)

    def weight(self, column: Column, waiting: float = WAITING) -> float:
        """What a group adds to the cost, about, whatever the others are.

        Args:
            column: The group.
            waiting: Share of a GPU's jobs that wait for it, 0..1.
        """
        if self.aim in IN_TURN:
            waits_s = waiting * sum(self.counts) / self.gpus * column.runs_s
            return fsum(column.ends_s) + waits_s
        if self.aim == "energy" and column.energy_j is not None:
            return column.energy_j
        return column.runs_s

    def _late(self, kind: int, end_s: float) -> bool:
        deadline_s = self.deadlines_s[kind]
        return deadline_s is not None and end_s > deadline_s


def makespan_s(plan: Sequence[Placed]) -> float:
    """When the last job ends."""
    return max(each.start_s + each.column.runs_s for each in plan)


def _ends(plan: Sequence[Placed]) -> Iterator[tuple[int, float]]:
    """Of each job its kind, and when it ends."""
    for each in plan:
        yield from zip(each.column.team, each.ends_s, strict=True)
