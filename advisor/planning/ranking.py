"""All ways to share one GPU among a set of jobs, best first."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu
from advisor.planning.binding import binding
from advisor.planning.capping import ENERGIES, under_caps
from advisor.planning.commands import commands
from advisor.planning.forecast import forecast
from advisor.planning.handover import hand_over
from advisor.planning.limits import MAX_OOM_PROBABILITY
from advisor.planning.objectives import cost, possible, tied
from advisor.planning.plan import Forecast, LeftOut, Objective, Plan, Predicts, Recommendation
from advisor.planning.reasons import standing, why
from advisor.planning.rules import UNCONDITIONAL, Conditions
from advisor.planning.solver.judging import Judge, as_asked
from advisor.planning.solver.proposed import unsearched
from advisor.planning.solver.space import Question
from advisor.planning.tried import tried
from advisor.prediction.answer import Interval, MixPrediction
from advisor.sharing import Mps, Serial, Sharing
from advisor.simulation.energy import Level
from advisor.workload.job import Job

# Plans shown of a kind that has many: limits, MIG layouts.
MOST_OF_A_KIND = 2


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
    mixes = judge.mixes(as_asked(len(jobs), Serial()))
    serial = forecast(mixes, Serial())
    _check_each_fits(serial.prediction)
    ranked_by, note = possible([serial], objective)
    question = replace(question, objective=ranked_by)
    setups, left_out, passed_over = tried(jobs, mixes, question)
    judged = [judge.foreseen(each) for each in setups]
    left_out += [each for each in judged if isinstance(each, LeftOut)]
    shared = [each for each in judged if isinstance(each, Forecast)]
    if conditions.power_caps:
        capped, uncapped = under_caps([as_asked(len(jobs), Serial()), *setups], jobs, question)
        shared += capped
        left_out += uncapped
    plans = _in_order(jobs, [serial, *shared], question, left_out)
    return Recommendation(
        gpu=gpu,
        jobs=tuple(jobs),
        objective=objective,
        ranked_by=ranked_by,
        note=note,
        serial=next(plan for plan in plans if plan.prediction is serial.prediction),
        plans=plans,
        left_out=(*left_out, *unsearched(jobs)),
        considered=1 + len(shared) + len(left_out) + passed_over,
    )


def _check_each_fits(serial: MixPrediction) -> None:
    for job in serial.jobs:
        if job.oom_probability > MAX_OOM_PROBABILITY:
            needed, capacity = job.memory_interval_mib.p95, serial.memory_capacity_mib
            raise NothingFits(
                f"{job.job} does not fit on {serial.gpu} even alone: it takes up to "
                f"{needed:,.0f} MiB of {capacity:,.0f} MiB, {needed - capacity:,.0f} MiB are "
                "missing. Use a smaller batch, or a GPU with more memory."
            )


def _in_order(
    jobs: Sequence[Job],
    forecasts: Sequence[Forecast],
    question: Question,
    left_out: Sequence[LeftOut],
) -> tuple[Plan, ...]:
    """The best of each kind as plans, best first; of equals, the one that was tried first.

    A plan that nothing confirmed on hardware is not put before a confirmed one that it equals
    within our error. Joules are saved under deadlines: plans that make fewer jobs late come first.
    """

    def late(forecast: Forecast) -> int:
        saving = question.objective in ENERGIES
        return len(forecast.late(question.level)) if saving else 0

    def paid(priced: tuple[Forecast, Interval]) -> tuple[int, float]:
        return late(priced[0]), float(getattr(priced[1], question.level))

    priced = [(each, cost(each, question.objective)) for each in forecasts]
    known = [(each, price) for each, price in priced if price is not None]
    known.sort(key=paid)
    kept = [pair for kind in _kinds(known) for pair in islice(kind, MOST_OF_A_KIND)]
    kept.sort(key=paid)
    kept.insert(0, kept.pop(_surest([pair for pair in kept if late(pair[0]) == late(kept[0][0])])))
    best = kept[0][1]
    runner_up = min((price for _, price in kept[1:]), key=lambda each: each.p50, default=None)
    return tuple(
        Plan(
            prediction=each.prediction,
            makespan_interval_s=each.makespan_interval_s,
            energy_j=each.energy_j,
            speedup_vs_serial=each.speedup_vs_serial,
            ends_s=each.ends_s,
            deadlines_s=each.deadlines_s,
            batches=each.batches,
            rank=rank,
            ties_best=tied(price, best),
            late_jobs=tuple(at + 1 for at in sorted(each.late(question.level))),
            why=why(
                each.prediction,
                binding(_at_batches(jobs, each), question.gpu, each.prediction),
                standing(price, best, runner_up),
                left_out if rank == 1 else (),
                [jobs[at].name for at in sorted(each.late(question.level))],
            ),
            commands=commands(hand_over(_at_batches(jobs, each), question.gpu, each.prediction)),
        )
        for rank, (each, price) in enumerate(kept, start=1)
    )


def _at_batches(jobs: Sequence[Job], plan: Forecast) -> tuple[Job, ...]:
    return replace(as_asked(len(jobs), plan.sharing), batches=plan.batches).chosen(jobs)


def _surest(ordered: Sequence[tuple[Forecast, Interval]]) -> int:
    """Position of the best that is confirmed and equals the best of all; else the first."""
    sure = (
        position
        for position, (each, price) in enumerate(ordered)
        if each.prediction.confirmed_on_hardware and tied(price, ordered[0][1])
    )
    return next(sure, 0)


def _kinds(
    priced: Sequence[tuple[Forecast, Interval]],
) -> list[list[tuple[Forecast, Interval]]]:
    kinds: dict[tuple[type[Sharing], bool, bool, bool], list[tuple[Forecast, Interval]]] = {}
    for each, price in priced:
        limited = isinstance(each.sharing, Mps) and bool(each.sharing.limits)
        capped = each.prediction.power_cap_w is not None
        kind = type(each.sharing), limited, bool(each.batches), capped
        kinds.setdefault(kind, []).append((each, price))
    return list(kinds.values())
