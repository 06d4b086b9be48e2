"""Which plans are worth forecasting, before any of them is."""

from collections.abc import Sequence

from advisor.gpu.catalogue import Gpu
from advisor.planning.mig import best_layouts
from advisor.planning.mixes import Mixes
from advisor.planning.plan import LeftOut
from advisor.planning.rules import Rule, first_broken, rules
from advisor.planning.search import best_limits
from advisor.planning.solver.judging import as_asked
from advisor.planning.solver.proposed import proposed
from advisor.planning.solver.space import Question
from advisor.planning.space import Setup
from advisor.sharing import Mps, Naive, Sharing
from advisor.workload.job import Job


def tried(
    jobs: Sequence[Job], mixes: Mixes, question: Question, most: int
) -> tuple[list[Setup], list[LeftOut], int]:
    """The plans that are forecast beside serial, what is left out, and how many were worse.

    Args:
        jobs: As they were asked for.
        mixes: Of them.
        question: What the plans are to be best at.
        most: Layouts with an instance for each job.
    """
    forbidding = rules(question.gpu, question.conditions)
    sharings, left_out, worse = _shared(mixes, question, forbidding, most)
    more = proposed(jobs, question)
    setups = [as_asked(len(jobs), each) for each in sharings]
    return list(dict.fromkeys((*setups, *more.setups))), [*left_out, *more.left_out], worse


def _shared(
    mixes: Mixes, question: Question, forbidding: Sequence[Rule], most: int
) -> tuple[list[Sharing], list[LeftOut], int]:
    """The plain ways to share that are tried, the kinds that are not, and how many were worse."""
    if len(mixes.jobs) == 1:
        return [], [], 0
    tried: list[Sharing] = []
    left_out: list[LeftOut] = []
    passed_over = 0
    for whole in (Naive(), Mps()):
        if problem := first_broken(forbidding, mixes.jobs, whole):
            left_out.append(LeftOut(str(whole), problem))
        else:
            tried.append(whole)
    if Mps() in tried:
        found = best_limits(mixes, question.objective)
        tried += found.sharings
        passed_over = found.compared - len(found.sharings)
    cuts = best_layouts(mixes, question.gpu, question.objective, most)
    problems = [first_broken(forbidding, mixes.jobs, cut) for cut in cuts]
    tried += [cut for cut, problem in zip(cuts, problems, strict=True) if problem is None]
    if not cuts:
        left_out.append(LeftOut("mig", _no_layout(len(mixes.jobs), question.gpu)))
    left_out += [LeftOut("mig", problem) for problem in problems[:1] if problem]
    return tried, left_out, passed_over


def _no_layout(jobs: int, gpu: Gpu) -> str:
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    return f"no layout has an instance with enough memory for each of the {jobs} jobs"
