"""All ways to share one GPU among a set of jobs, best first."""

from collections.abc import Sequence
from itertools import islice

from advisor.errors import NothingFits
from advisor.gpu.catalogue import Gpu
from advisor.planning.binding import binding
from advisor.planning.commands import commands
from advisor.planning.forecast import forecast
from advisor.planning.handover import hand_over
from advisor.planning.limits import MAX_OOM_PROBABILITY
from advisor.planning.mig import best_layouts
from advisor.planning.mixes import Mixes
from advisor.planning.objectives import cost, possible, tied
from advisor.planning.plan import Forecast, LeftOut, Objective, Plan, Predicts, Recommendation
from advisor.planning.reasons import standing, why
from advisor.planning.rules import UNCONDITIONAL, Conditions, FitsMemory, Rule, first_broken, rules
from advisor.planning.search import best_limits
from advisor.prediction.answer import Interval, MixPrediction
from advisor.sharing import Mps, Naive, Serial, Sharing
from advisor.workload.job import Job

# Plans shown of a kind that has many: limits, MIG layouts.
MOST_OF_A_KIND = 2


def ranked(
    jobs: Sequence[Job],
    gpu: Gpu,
    predictor: Predicts,
    objective: Objective,
    conditions: Conditions = UNCONDITIONAL,
) -> Recommendation:
    """Every plan for `jobs` on `gpu` that the jobs and `conditions` allow.

    Raises:
        NothingFits: A job is too big for the whole GPU.
    """
    mixes = Mixes(jobs, predictor)
    serial = forecast(mixes, Serial())
    _check_each_fits(serial.prediction)
    ranked_by, note = possible([serial], objective)
    fits = FitsMemory(gpu, conditions.memory_margin)
    sharings, left_out, passed_over = _shared(mixes, gpu, ranked_by, rules(gpu, conditions))
    shared = []
    for sharing in sharings:
        if problem := fits.broken(mixes.whole(sharing)):
            left_out.append(LeftOut(str(sharing), problem))
        else:
            shared.append(forecast(mixes, sharing))
    plans = _in_order(jobs, gpu, [serial, *shared], ranked_by, left_out)
    return Recommendation(
        gpu=gpu,
        jobs=tuple(jobs),
        objective=objective,
        ranked_by=ranked_by,
        note=note,
        serial=next(plan for plan in plans if isinstance(plan.sharing, Serial)),
        plans=plans,
        left_out=tuple(left_out),
        considered=1 + len(shared) + len(left_out) + passed_over,
    )


def _shared(
    mixes: Mixes, gpu: Gpu, objective: Objective, forbidding: Sequence[Rule]
) -> tuple[list[Sharing], list[LeftOut], int]:
    """The ways to share that are tried, the kinds that are not, and how many were worse."""
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
        found = best_limits(mixes, objective)
        tried += found.sharings
        passed_over = found.compared - len(found.sharings)
    cuts = best_layouts(mixes, gpu, objective, MOST_OF_A_KIND)
    problems = [first_broken(forbidding, mixes.jobs, cut) for cut in cuts]
    tried += [cut for cut, problem in zip(cuts, problems, strict=True) if problem is None]
    if not cuts:
        left_out.append(LeftOut("mig", _no_layout(len(mixes.jobs), gpu)))
    left_out += [LeftOut("mig", problem) for problem in problems[:1] if problem]
    return tried, left_out, passed_over


def _no_layout(jobs: int, gpu: Gpu) -> str:
    if not gpu.mig:
        return f"{gpu.key} has no MIG"
    return f"no layout has an instance with enough memory for each of the {jobs} jobs"


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
    gpu: Gpu,
    forecasts: Sequence[Forecast],
    objective: Objective,
    left_out: Sequence[LeftOut],
) -> tuple[Plan, ...]:
    """The best of each kind as plans, best first; of equals, the one that was tried first.

    A plan that nothing confirmed on hardware is not put before a confirmed one that it equals
    within our error.
    """
    priced = [(each, cost(each, objective)) for each in forecasts]
    known = [(each, price) for each, price in priced if price is not None]
    known.sort(key=lambda each: each[1].p50)
    kept = [pair for kind in _kinds(known) for pair in islice(kind, MOST_OF_A_KIND)]
    kept.sort(key=lambda each: each[1].p50)
    kept.insert(0, kept.pop(_surest(kept)))
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
            rank=rank,
            ties_best=tied(price, best),
            why=why(
                each.prediction,
                binding(jobs, gpu, each.prediction),
                standing(price, best, runner_up),
                left_out if rank == 1 else (),
            ),
            commands=commands(hand_over(jobs, gpu, each.prediction)),
        )
        for rank, (each, price) in enumerate(kept, start=1)
    )


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
    kinds: dict[tuple[type[Sharing], bool], list[tuple[Forecast, Interval]]] = {}
    for each, price in priced:
        limited = isinstance(each.sharing, Mps) and bool(each.sharing.limits)
        kinds.setdefault((type(each.sharing), limited), []).append((each, price))
    return list(kinds.values())
