"""All ways to share one GPU among a set of jobs, best first."""

from collections.abc import Sequence
from dataclasses import replace

from advisor.hardware.catalogue import Gpu
from advisor.plan.bottlenecks import binding
from advisor.plan.candidates import tried
from advisor.plan.forecast import forecast
from advisor.plan.memory_limits import check_each_fits
from advisor.plan.objectives.names import ObjectiveName
from advisor.plan.objectives.table import possible, tied
from advisor.plan.precedence import Priced, in_order, starved
from advisor.plan.prediction_cache import Remembered
from advisor.plan.reasons import first_by, searched, standing, why
from advisor.plan.recommendation import LeftOut, Plan, Predicts, Recommendation
from advisor.plan.rules import UNCONDITIONAL, Conditions
from advisor.plan.search.candidate_space import Question
from advisor.plan.search.outcomes import Judge, as_asked, chosen_for
from advisor.plan.search.proposals import unsearched
from advisor.prediction.mix_prediction import Interval, Level
from advisor.prediction.parallel import one_thread
from advisor.sharing import Serial
from advisor.workload.job import Job


def ranked(  # noqa: PLR0913, PLR0917 - each says one thing
    jobs: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    objective: ObjectiveName,
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
        gpu=gpu,
        predictor=Remembered(predictor),
        objective=objective,
        level=level,
        conditions=conditions,
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
        level=level,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction),
        plans=plans,
        left_out=(*seen.left_out, *unsearched(jobs)),
        considered=1 + len(seen.forecasts) + len(seen.left_out) + seen.passed_over,
        searched=searched(len(jobs), seen.passed_over, asked=seen.asked),
    )


def _plans(
    jobs: Sequence[Job], kept: Sequence[Priced], question: Question, left_out: Sequence[LeftOut]
) -> tuple[Plan, ...]:
    """`kept` with what is said of each; of the best, also what was ruled out."""
    best = kept[0].price
    nexts = [*(each.price for each in kept[1:]), None]
    return tuple(
        _plan(
            jobs,
            each,
            question,
            rank=rank,
            ties_best=tied(each.price, best),
            compared=_compared(each, best, after, question, rank),
            left_out=left_out if rank == 1 else (),
        )
        for rank, (each, after) in enumerate(zip(kept, nexts, strict=True), start=1)
    )


def _compared(
    each: Priced, best: Interval, after: Interval | None, question: Question, rank: int
) -> str:
    """How a plan compares, and why it comes before the next where numbers alone do not say it."""
    said = standing(each.price, best, after, question.level)
    if after is None or each.precedes_by is None:
        return said
    plain = each.precedes_by == "cost" and not (rank == 1 and tied(each.price, after))
    rule = first_by(each.precedes_by, question.level)
    return said if plain else f"{said}; before {rank + 1} {rule}"


def _plan(  # noqa: PLR0913 - each says one thing
    jobs: Sequence[Job],
    ranked: Priced,
    question: Question,
    *,
    rank: int,
    ties_best: bool,
    compared: str,
    left_out: Sequence[LeftOut],
) -> Plan:
    found = ranked.forecast
    chosen = chosen_for(jobs, found)
    bound = binding(chosen, question.gpu, found.prediction)
    late, slow = sorted(found.late(question.level)), starved(found, question.level)
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
        precedes_by=ranked.precedes_by,
        why=why(
            found.prediction,
            bound,
            compared,
            left_out,
            late=[jobs[at].name for at in late],
            starved=[(jobs[at].name, times) for at, times in slow.items()],
        ),
    )
