"""Which plans are worth forecasting, and what comes of them."""

from dataclasses import dataclass

from advisor.plan.power_caps import under_caps
from advisor.plan.prediction_cache import Mixes
from advisor.plan.recommendation import Forecast, LeftOut
from advisor.plan.rules import first_broken, rules
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.limit_search import best_limits
from advisor.plan.search.outcomes import Judge, as_asked
from advisor.plan.search.proposals import proposed
from advisor.prediction.parallel import begun
from advisor.sharing import Mps, Naive, Serial, Sharing


@dataclass(frozen=True, slots=True)
class Tried:
    """What was looked at beside serial.

    Attributes:
        forecasts: Of what the jobs and the machine allow.
        left_out: What they do not, and what was not looked at.
        passed_over: How many more were compared roughly, and were worse.
        asked: As of `Proposed`.
    """

    forecasts: tuple[Forecast, ...]
    left_out: tuple[LeftOut, ...]
    passed_over: int
    asked: bool | None


def tried(judge: Judge, question: Question) -> Tried:
    """The plans for the jobs of `judge` that are worth forecasting, forecast.

    Args:
        judge: Knows the jobs as they were asked for.
        question: What the plans are to be best at.
    """
    jobs, one_by_one = judge.jobs, as_asked(len(judge.jobs), Serial())
    sharings, left_out, passed_over = _shared(judge.mixes(one_by_one), question)
    plain = [as_asked(len(jobs), each) for each in sharings]
    first = begun(judge.foreseen, plain)  # they are replayed while the others are looked for
    more = proposed(jobs, question)
    setups = list(dict.fromkeys((*plain, *more.setups)))
    rest = begun(judge.foreseen, setups[len(plain) :])
    judged = [*first(), *rest()]
    found = [each for each in judged if isinstance(each, Forecast)]
    left_out += [*more.left_out, *(each for each in judged if isinstance(each, LeftOut))]
    if question.conditions.power_caps:
        capped, uncapped = under_caps([one_by_one, *setups], jobs, question)
        found += capped
        left_out += uncapped
    return Tried(tuple(found), tuple(left_out), passed_over, more.asked)


def _shared(mixes: Mixes, question: Question) -> tuple[list[Sharing], list[LeftOut], int]:
    """The plain ways to share that are tried, the kinds that are not, and how many were worse."""
    if len(mixes.jobs) == 1:
        return [], [], 0
    forbidding = rules(question.gpu, question.conditions)
    tried: list[Sharing] = []
    left_out: list[LeftOut] = []
    passed_over = 0
    for whole in (Naive(), Mps()):
        if problem := first_broken(forbidding, mixes.jobs, whole):
            left_out.append(LeftOut(str(whole), problem))
        else:
            tried.append(whole)
    if Mps() in tried:
        found = best_limits(mixes, question.objective, question.level)
        tried += found.sharings
        passed_over = found.compared - len(found.sharings)
    return tried, left_out, passed_over
