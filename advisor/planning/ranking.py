"""All ways to share one GPU among a set of jobs, best first."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.gpu.catalogue import Gpu
from advisor.planning.alone import check_each_fits
from advisor.planning.binding import binding
from advisor.planning.commands import commands
from advisor.planning.forecast import forecast
from advisor.planning.handover import hand_over
from advisor.planning.objectives import possible, tied
from advisor.planning.ordering import Priced, in_order
from advisor.planning.plan import Forecast, LeftOut, Objective, Plan, Predicts, Recommendation
from advisor.planning.reasons import standing, why
from advisor.planning.rules import UNCONDITIONAL, Conditions
from advisor.planning.solver.judging import Judge, as_asked, chosen_for
from advisor.planning.solver.proposed import unsearched
from advisor.planning.solver.space import Question
from advisor.planning.tried import tried
from advisor.prediction.one_thread import one_thread
from advisor.sharing import Serial
from advisor.simulation.energy import Level
from advisor.workload.job import Job


def ranked(  # noqa: PLR0913, PLR0917 - each says one thing
    jobs: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    objective: Objective,
    conditions: Conditions = UNCONDITIONAL,
    level: Level = "p50",
) -> Recommendation:
    """Every plan for `jobs` on `gpu` that the jobs and `conditions` allow.

    Args:
        jobs: All of them.
        gpu: Theirs.
        predictor: That answers for it.
        objective: What the best plan is best at.
        conditions: What machine and user allow.
        level: What counts of a cost: its median, or the upper end of its interval.

    Raises:
        NothingFits: A job is too big for the whole GPU.
    """
    question = Question(
        gpu=gpu, predictor=predictor, objective=objective, level=level, conditions=conditions
    )
    judge = Judge(jobs, question)
    serial = forecast(judge.mixes(as_asked(len(jobs), Serial())), Serial())
    check_each_fits(serial.prediction, gpu, conditions)
    ranked_by, note = possible([serial], objective)
    question = replace(question, objective=ranked_by)
    with one_thread():
        seen = tried(judge, question)
    kept = in_order([serial, *seen.forecasts], question)
    plans = _plans(jobs, kept, question, seen.left_out)
    return Recommendation(
        gpu=gpu,
        jobs=tuple(jobs),
        objective=objective,
        ranked_by=ranked_by,
        note=note,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction),
        plans=plans,
        left_out=(*seen.left_out, *unsearched(jobs)),
        considered=1 + len(seen.forecasts) + len(seen.left_out) + seen.passed_over,
    )


def _plans(
    jobs: Sequence[Job], kept: Sequence[Priced], question: Question, left_out: Sequence[LeftOut]
) -> tuple[Plan, ...]:
    """`kept` with what is said of each; of the best, also what was ruled out."""
    best = kept[0].price
    runner_up = min((each.price for each in kept[1:]), key=lambda price: price.p50, default=None)
    return tuple(
        _plan(
            jobs,
            each.forecast,
            question,
            rank=rank,
            ties_best=tied(each.price, best),
            compared=standing(each.price, best, runner_up),
            left_out=left_out if rank == 1 else (),
        )
        for rank, each in enumerate(kept, start=1)
    )


def _plan(  # noqa: PLR0913 - each says one thing
    jobs: Sequence[Job],
    found: Forecast,
    question: Question,
    *,
    rank: int,
    ties_best: bool,
    compared: str,
    left_out: Sequence[LeftOut],
) -> Plan:
    chosen = chosen_for(jobs, found)
    bound = binding(chosen, question.gpu, found.prediction)
    late = sorted(found.late(question.level))
    return Plan(
        prediction=found.prediction,
        makespan_interval_s=found.makespan_interval_s,
        energy_j=found.energy_j,
        speedup_vs_serial=found.speedup_vs_serial,
        ends_s=found.ends_s,
        deadlines_s=found.deadlines_s,
        batches=found.batches,
        rank=rank,
        ties_best=ties_best,
        late_jobs=tuple(at + 1 for at in late),
        why=why(found.prediction, bound, compared, left_out, [jobs[at].name for at in late]),
        commands=commands(hand_over(chosen, question.gpu, found.prediction)),
    )
