"""Which jobs share which GPU, how, and in what order.

`ranking.ranked` ranks the plans for jobs on one GPU. `fleet_plan.plan_fleet` plans more jobs than
one search can hold, or several GPUs, and asks `search.proposals.OneGpuSolver` for the best plan of
each set of jobs. `search.proposals.Solver` estimates what any set costs: of up to 3 jobs it may ask
the predictor itself, and is then exact as far as MIG instances do not slow each other.
"""

from typing import Literal, get_args

from advisor.errors import UnknownName

START_S = 10.0
"""Seconds in which the process of a trial starts, and imports torch and CUDA: 9 to 11 in a study on
an H200."""

ObjectiveName = Literal["makespan", "throughput", "mean-completion", "energy", "deadlines"]
"""What a plan can be best at; `advisor.plan.objectives` has a class for each."""

MOST_GPUS = 64
"""Equal GPUs that jobs are planned for at most."""


def check_objective(name: str) -> None:
    """Check that an objective is called `name`.

    Raises:
        UnknownName: None is.
    """
    if name not in (known := get_args(ObjectiveName)):
        raise UnknownName("objective", str(name), known, f"Use one of {', '.join(known)}.")
