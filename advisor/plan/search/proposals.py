"""What a ranking forecasts beside the plain ways to share: the best of everything else."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from advisor.plan.plan_space import Setup
from advisor.plan.recommendation import LeftOut
from advisor.plan.rules import first_broken, rules
from advisor.plan.search.best_plans import Proposal, Solver
from advisor.plan.search.candidate_space import Question
from advisor.sharing import Instance, Mig
from advisor.sharing.traversal import instance_sets
from advisor.workload.job import Job

# Sets of jobs that are looked at, batch sizes aside: all those of 8 different jobs.
MOST_STATES = 256
# Plans of a kind that are forecast, and plans on MIG instances where the predictor itself is asked
# what comes of each room: instances slow each other, which shows only then.
FORECAST, FORECAST_ASKED = 3, 12


@dataclass(frozen=True, slots=True)
class Proposed:
    """Plans to be forecast, and what was not looked at.

    Attributes:
        asked: Whether the predictor itself was asked about every set of jobs, and not roughly;
            None: nothing was looked at.
    """

    setups: tuple[Setup, ...]
    left_out: tuple[LeftOut, ...]
    asked: bool | None = None


def unsearched(jobs: Sequence[Job]) -> tuple[LeftOut, ...]:
    """What a ranking of plans for `jobs` never looks at; two jobs have nothing of it."""
    if len(jobs) < 3:
        return ()
    why = "limits are equal within a phase, and there are none on instances"
    return (LeftOut("unequal limits in phases and limits on MIG instances", why),)


def affordable(jobs: Sequence[Job]) -> bool:
    """Whether every set of `jobs` can be looked at; copies of a job are one with a count."""
    first = [jobs.index(job) for job in jobs]
    return prod(1 + first.count(at) for at in set(first)) <= MOST_STATES


def proposed(jobs: Sequence[Job], question: Question) -> Proposed:
    """The best on MIG instances, in phases and at other batch sizes, a few of each."""
    if len(jobs) == 1 and not jobs[0].choices:
        return Proposed((), ())
    if not affordable(jobs):
        why = f"{len(jobs)} jobs make too many sets to look at each"
        return Proposed((), (LeftOut("MIG, and phases", why),))
    everyone = range(len(jobs))
    solver = Solver(jobs, question, ask=True)
    asked = solver.space.exact
    found = [each for each in solver.whole(everyone) if asked or each.setup.batches][:FORECAST]
    apart = list(islice(solver.one_job_each(everyone), FORECAST))
    most = FORECAST_ASKED if asked else FORECAST
    found += [*apart, *islice(filter(_cut_up, solver.on_instances(everyone)), most)]
    found += filter(_cut_up, solver.in_phases(everyone, FORECAST))
    left_out = [] if apart else [LeftOut("mig", _no_layout(jobs, question))]
    if solver.space.sets.batches_fixed:
        why = "they make too many sets to look at each"
        left_out.append(LeftOut("other batch sizes", why))
    return Proposed(tuple(each.setup for each in found), tuple(left_out), asked)


def _cut_up(plan: Proposal) -> bool:
    """Whether jobs have more than one instance at once, all in one being the GPU with fewer SMs."""
    cut = instance_sets(plan.setup.sharing)
    return not cut or any(len(each.partitions) > 1 for each in cut)


def _no_layout(jobs: Sequence[Job], question: Question) -> str:
    """Why no plan gives each of `jobs` a MIG instance of its own."""
    gpu = question.gpu
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    one_each = Mig((Instance(gpu.mig[0].name),) * len(jobs))
    if problem := first_broken(rules(gpu, question.conditions), jobs, one_each):
        return problem
    return f"no layout has an instance with enough memory for each of the {len(jobs)} jobs"
