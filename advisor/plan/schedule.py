"""Schedules: what each GPU runs, and when all jobs end."""

from collections.abc import Sequence

from advisor.plan.cluster import GpuPool
from advisor.plan.values import Forecast, GpuPlan, Schedule, Way
from advisor.prediction.prediction import LEVELS, Interval, all_known, around


def on_one_gpu(pool: GpuPool, forecast: Forecast) -> Schedule:
    """Return the schedule of all jobs on one GPU of `pool`, of which there is a `forecast`."""
    jobs = len(pool.jobs)
    plan = GpuPlan(
        number=0,
        gpu=pool.gpu,
        job_numbers=tuple(range(1, jobs + 1)),
        members=pool.jobs,
        forecast=forecast,
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
