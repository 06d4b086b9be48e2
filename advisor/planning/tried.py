"""Which plans are worth forecasting, before any of them is."""

from collections.abc import Sequence

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
    jobs: Sequence[Job], mixes: Mixes, question: Question
) -> tuple[list[Setup], list[LeftOut], int]:
    """The plans that are forecast beside serial, what is left out, and how many were worse.

    Args:
        jobs: As they were asked for.
        mixes: Of them.
        question: What the plans are to be best at.
    """
    forbidding = rules(question.gpu, question.conditions)
    sharings, left_out, worse = _shared(mixes, question, forbidding)
    more = proposed(jobs, question)
    setups = [as_asked(len(jobs), each) for each in sharings]
    return list(dict.fromkeys((*setups, *more.setups))), [*left_out, *more.left_out], worse


def _shared(
    mixes: Mixes, question: Question, forbidding: Sequence[Rule]
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
    return tried, left_out, passed_over
