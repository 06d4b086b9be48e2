"""What each set of jobs in a room is worth to an objective: two numbers that add up.

Rooms do not slow each other here, so a plan costs what follows from the largest of one number over
its rooms, and from the sum of another: of a makespan the largest end, of a throughput the sum of
speeds, of energy both, since the GPU is awake until the last job ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.plan.recommendation import Objective
from advisor.plan.search.cost_table import Fates
from advisor.plan.search.job_sets import Sets
from advisor.prediction.trace import Floats

Price = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""Largest and sum over rooms -> cost, and what decides between equal costs."""


@dataclass(frozen=True, slots=True)
class Worth:
    """Of every set under one option; infinite where it may not be.

    Attributes:
        most: Of which a plan counts the largest, shape (sets,).
        total: Of which it counts the sum, likewise.
    """

    most: Floats
    total: Floats


def worth(fate: Fates, sets: Sets, objective: Objective, awake_w: float, jobs: int) -> Worth:
    """What `fate` is worth.

    Args:
        fate: Of every set.
        sets: Those.
        objective: By which plans are ranked.
        awake_w: Power of a GPU that runs anything.
        jobs: How many run at once in all rooms.
    """
    there, counts = sets.counts > 0, sets.counts
    last_s = np.where(there, fate.ends_s, 0.0).max(axis=1)
    match objective:
        case "makespan" | "mean-completion":
            most, total = last_s, (counts * fate.ends_s).sum(axis=1)
        case "energy":
            most, total = last_s, fate.added_j
        case "throughput" | "fairness":
            most = np.where(there, fate.slowdowns, 0.0).max(axis=1)
            total = -(counts / fate.slowdowns).sum(axis=1)
        case "energy-epoch" | "energy-example":
            most = np.where(there, fate.slowdowns, 0.0).max(axis=1)
            step_j = fate.step_j + awake_w / jobs * fate.steps_s
            total = (counts * _steps(sets, objective) * step_j).sum(axis=1)
        case "deadlines":
            deadlines_s = [job.deadline_s or np.inf for job in sets.variants]
            most = np.where(there, fate.ends_s / deadlines_s, 0.0).max(axis=1)
            total = (counts * fate.ends_s).sum(axis=1)
    forbidden = ~fate.allowed
    return Worth(np.where(forbidden, np.inf, most), np.where(forbidden, np.inf, total))


def price(objective: Objective, awake_w: float, jobs: int) -> Price:
    """How cost follows from the largest and the sum; it grows with each of them."""
    match objective:
        case "makespan" | "deadlines":
            return lambda most, total: (most, total)
        case "mean-completion":
            return lambda most, total: (total / jobs, most)
        case "energy":
            return lambda most, total: (awake_w * most + total, most)
        case "energy-epoch" | "energy-example":
            return lambda most, total: (total, most)
        case "throughput":
            return lambda most, total: (
                np.where(total < 0, -1 / np.minimum(total, -1e-300), np.inf),
                most,
            )
        case "fairness":
            return lambda most, total: (most / jobs, total)


def _steps(sets: Sets, objective: Objective) -> Floats:
    """Steps of an epoch, or of an example, of each variant, shape (variants,)."""
    workloads = [job.profile.workload for job in sets.variants]
    if objective == "energy-example":
        return np.array([1 / each.batch for each in workloads])
    return np.array([each.steps_per_epoch or np.nan for each in workloads])
