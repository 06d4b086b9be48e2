"""Schedules: what each GPU runs, when all jobs end, and the power caps that save most joules."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from advisor.hardware.gpus import Gpu
from advisor.plan import ObjectiveName
from advisor.plan.forecast import Mixes, forecast
from advisor.plan.objectives import OBJECTIVES
from advisor.plan.rules import Conditions, slows_protected
from advisor.plan.values import Forecast, GpuPlan, GpuPool, Question, Schedule, Way
from advisor.prediction.caching_predictor import CachingPredictor
from advisor.prediction.prediction import LEVELS, Interval, all_known, around


def on_one_gpu(pool: GpuPool, own: Forecast) -> Schedule:
    """Return the schedule of all jobs on one GPU of `pool`, of which `own` is the forecast."""
    jobs = len(pool.jobs)
    plan = GpuPlan(
        number=0,
        gpu=pool.gpu,
        job_numbers=tuple(range(1, jobs + 1)),
        members=pool.jobs,
        forecast=own,
        waits_s=(0.0,) * jobs,
    )
    return schedule([pool], [plan])


def schedule(pools: Sequence[GpuPool], gpus: Sequence[GpuPlan], way: Way | None = None) -> Schedule:
    """Add up what `gpus`, the GPUs of `pools` that run jobs, take."""
    ends_s, forecasts = _ends_s(gpus), [each.forecast for each in gpus]
    makespan_s = None
    if len(gpus) == 1:
        makespan_s = forecasts[0].makespan_interval_s
    elif ends_s is not None:
        makespan_s = around([max(each.at(level) for each in ends_s) for level in LEVELS])
    jobs = pools[0].jobs
    work = [
        max(each.equal_work.at(level) * len(each.predictions) for each in forecasts) / len(jobs)
        for level in LEVELS
    ]
    return Schedule(
        way=way,
        gpus=tuple(gpus),
        equal_work=around(work),
        makespan_interval_s=makespan_s,
        energy_j=_energy_j(pools, gpus, makespan_s),
        ends_s=ends_s,
        deadlines_s=tuple(job.deadline_s for job in jobs),
        oom_probability=max(each.prediction.oom_probability for each in forecasts),
        confirmed_on_hardware=all(each.prediction.confirmed_on_hardware for each in forecasts),
    )


def _ends_s(gpus: Sequence[GpuPlan]) -> tuple[Interval, ...] | None:
    """Seconds until each job ends; a job of several GPUs ends with the last of them."""
    ends_s: dict[int, Interval] = {}
    for each in gpus:
        if each.ends_s is None:
            return None
        ends_s.update(zip(each.job_numbers, each.ends_s, strict=True))
    return tuple(ends_s[number] for number in sorted(ends_s))


# Gaps without jobs below this share of the time of all are rounding.
_DUST = 1e-9


def _energy_j(
    pools: Sequence[GpuPool], gpus: Sequence[GpuPlan], last_s: Interval | None
) -> Interval | None:
    """Joules of all GPUs of `pools` until the last job ends at `last_s`, idle ones too."""
    used_j = all_known(each.forecast.energy_j for each in gpus)
    runs_s = all_known(each.forecast.makespan_interval_s for each in gpus)
    if last_s is None or used_j is None or runs_s is None:
        return None
    totals = []
    for level in LEVELS:
        total = sum(each.at(level) for each in used_j)
        for pool in pools:
            own = zip(gpus, runs_s, strict=True)
            busy_s = sum(ran_s.at(level) for each, ran_s in own if each.gpu == pool.gpu)
            idle_s = pool.gpus * last_s.at(level) - busy_s
            if idle_s > _DUST * last_s.at(level):
                if pool.idle_power_w is None:
                    return None
                total += idle_s * pool.idle_power_w
        totals.append(total)
    return Interval(*totals)


# Caps that a plan may have, as shares of the GPU's own limit: a choice. Boards may refuse less.
_CAP_SHARES = (0.9, 0.8, 0.7, 0.6)


def cap_choices(gpu: Gpu) -> tuple[float, ...]:
    """Return power caps, in whole watts, for plans on `gpu`; none if its limit is unknown."""
    if gpu.power_limit_w is None:
        return ()
    watts = (float(round(share * gpu.power_limit_w)) for share in _CAP_SHARES)
    return tuple(cap_w for cap_w in watts if cap_w >= (gpu.power_limit_min_w or 0.0))


def why_no_caps(gpu: Gpu, objective: ObjectiveName, conditions: Conditions) -> str | None:
    """Say why no plan on `gpu` chooses a power cap although it may; None where plans do."""
    if not conditions.root:
        return "setting a cap needs root"
    if not OBJECTIVES[objective].saves_energy:
        return f"a cap makes no job faster, and plans are ranked by {objective}"
    if not cap_choices(gpu):
        return f"the power limit of {gpu.key} is unknown"
    return None


def under_caps(
    schedules: Sequence[Schedule], pools: Sequence[GpuPool], questions: Sequence[Question]
) -> Iterator[Schedule]:
    """Yield each of `schedules` that a cap on some GPUs helps, under the best caps.

    `questions` are those of one GPU of each pool. GPUs that run equal jobs equally have the same
    cap.
    """
    for free in schedules:
        if free.energy_j is not None:
            capped = _capped(free, pools, questions)
            if capped is not free:
                yield capped


def _capped(free: Schedule, pools: Sequence[GpuPool], questions: Sequence[Question]) -> Schedule:
    level = questions[0].level

    def joules(plan: Schedule) -> float:
        assert plan.energy_j is not None, "a cap changes how much is used, not whether it is known"
        return plan.energy_j.at(level)

    late, best, left = free.late(level), free, list(free.gpus)
    while left:
        like = left[0]
        same = [on.number for on in left if _runs_as(on, like)]
        left = [on for on in left if on.number not in same]
        question = next(each for each in questions if each.gpu == like.gpu)
        plans = [best]
        for cap_w in cap_choices(question.gpu):
            predictor = CachingPredictor(question.predictor, question.gpu, cap_w=cap_w)
            capped = forecast(Mixes(like.members, predictor), like.sharing)
            if not slows_protected(like.members, capped.prediction, level):
                gpus = [
                    replace(on, forecast=capped) if on.number in same else on for on in best.gpus
                ]
                plans.append(schedule(pools, gpus, free.way))
        best = min((plan for plan in plans if plan.late(level) <= late), key=joules)
    return best


def _runs_as(one: GpuPlan, other: GpuPlan) -> bool:
    return (one.gpu, one.members, one.sharing) == (other.gpu, other.members, other.sharing)
