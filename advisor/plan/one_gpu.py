"""Few jobs on one GPU: all ways to share it, each forecast or compared by estimates."""

from collections.abc import Sequence
from functools import partial
from itertools import chain

from advisor.errors import NothingFits, counted
from advisor.plan import ObjectiveName, step
from advisor.plan.candidate_space import proposed
from advisor.plan.forecast import Mixes, forecast, forecast_allowed
from advisor.plan.job_sets import cut_into
from advisor.plan.limits import best_limits, protecting_limits
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import TOO_SLOW, broken_rule, check_each_fits, slows_protected
from advisor.plan.schedule import on_one_gpu, under_caps, why_no_caps
from advisor.plan.values import Forecast, GpuPool, LeftOut, Question, Schedule
from advisor.prediction.cache import one_thread, start_answers
from advisor.sharing import Group, Hybrid, Mps, Naive, Part, Place, Serial, Sharing
from advisor.sharing.groups import in_turn, running_together
from advisor.workload.job import Job


def ways_to_share(
    pool: GpuPool, question: Question
) -> tuple[list[Schedule], list[LeftOut], int, str | None]:
    """Forecast the ways in which the jobs of `pool` can share its GPU, first one after another.

    The other values are what is left out, the number of candidates, and how they were searched.

    Raises:
        NothingFits: A job is too big for the whole GPU, or for the MIG instances that there are.
    """
    mixes = Mixes(pool.jobs, question.predictor)
    serial = _one_after_another(mixes, question)
    with one_thread():
        forecasts, left_out, considered, searched = _candidates(mixes, question)
    # Without serial in other orders, which are no better.
    others = [each for each in forecasts if not each.one_by_one]
    if len(pool.jobs) > 2:
        left_out.append(
            LeftOut(
                "unequal limits in phases, and limits on MIG instances",
                "limits are equal within a phase, and absent on instances",
            )
        )
    schedules = [on_one_gpu(pool, each) for each in (serial, *others)]
    if question.conditions.power_caps:
        if problem := why_no_caps(question.gpu, question.objective, question.conditions):
            left_out.append(LeftOut("power caps", problem))
        else:
            schedules += under_caps(schedules, [pool], [question])
    return schedules, left_out, considered, searched


def _one_after_another(mixes: Mixes, question: Question) -> Forecast:
    """Forecast the jobs in the best order of turns, on the GPU or the largest instance there is."""
    jobs, gpu, conditions = mixes.jobs, question.gpu, question.conditions
    check_each_fits(mixes.whole(Serial()), gpu, conditions)
    turns = best_turns(jobs, question.objective)
    if conditions.instances is None:
        return forecast(mixes, turns)
    (largest, *_) = cut_into(gpu, conditions.instances).instances
    order = [at for run in running_together(turns, len(jobs)) for at in run]
    turns = in_turn([Hybrid((Place(largest, (Part((at + 1,)),)),)) for at in order])
    if problem := broken_rule(jobs, turns, gpu, conditions):
        raise NothingFits(f"{problem}, so no plan is possible. Switch MIG mode off.")
    serial = forecast(mixes, turns)
    check_each_fits(serial.prediction, gpu, conditions)
    return serial


def _candidates(
    mixes: Mixes, question: Question
) -> tuple[list[Forecast], list[LeftOut], int, str | None]:
    """Forecast the candidates besides serial; what is left out, their number, and the search."""
    jobs, answer = mixes.jobs, partial(forecast_allowed, mixes, question)
    sharings, left_out, compared = _whole_gpu(mixes, question)
    answers = []
    with start_answers(answer, sharings) as first:  # replayed during the search for others
        more, unsearched, exact = proposed(jobs, question)
        left_out += unsearched
        more = [each for each in dict.fromkeys(more) if each not in sharings]
        with start_answers(answer, more) as others:
            for each in chain(first, others):
                step()
                answers.append(each)
    forecasts = [each for each in answers if isinstance(each, Forecast)]
    left_out += [each for each in answers if isinstance(each, LeftOut)]
    sparing = [
        each for each in forecasts if not slows_protected(jobs, each.prediction, question.level)
    ]
    if too_slow := len(forecasts) - len(sparing):
        left_out.append(LeftOut(counted(too_slow, "way") + " to share", TOO_SLOW))
    searched = []
    if exact is not None:
        searched.append(
            "all sets of jobs were predicted: at once, in phases and on MIG instances"
            if exact
            else "estimates chose the few phases and MIG layouts that were predicted"
        )
    if compared:
        searched.append(
            f"{compared:,} limits were compared by the surrogate model, and the best "
            "of them predicted"
        )
    considered = 1 + len(forecasts) + len(left_out) + compared
    return sparing, left_out, considered, "; ".join(searched) or None


def _whole_gpu(mixes: Mixes, question: Question) -> tuple[list[Sharing], list[LeftOut], int]:
    """Ways to share the whole GPU: those to forecast, those left out, and how many were worse."""
    ways, left_out = list[Sharing](), list[LeftOut]()
    for whole in (Naive(), Mps()) if len(mixes.jobs) > 1 else ():
        if problem := broken_rule(mixes.jobs, whole, question.gpu, question.conditions):
            left_out.append(LeftOut(str(whole), problem))
        else:
            ways.append(whole)
    if Mps() not in ways:
        return ways, left_out, 0
    limits, compared = best_limits(mixes, question.objective, question.level)
    return (
        list(dict.fromkeys((*ways, *limits, *protecting_limits(mixes.jobs)))),
        left_out,
        compared - len(limits),
    )


def best_turns(jobs: Sequence[Job], objective: ObjectiveName) -> Sharing:
    """Order `jobs` one after another so that they cost least."""
    turn = OBJECTIVES[objective].turn
    order = sorted(range(len(jobs)), key=lambda at: turn(jobs[at]))
    return in_turn([Group((at + 1,), Serial()) for at in order])
