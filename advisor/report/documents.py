"""Answers as JSON documents for scripts, and as rows of the page's tables.

`SCHEMA` counts breaking changes of the documents.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from advisor.launch.plan_file import asked_of
from advisor.plan.ranking import verdict
from advisor.plan.reasons import Binding
from advisor.plan.values import Forecast, Plan, Recommendation, Standing
from advisor.prediction.power import CAP_NOTE
from advisor.prediction.prediction import Interval, JobPrediction, MixPrediction
from advisor.report import format as units
from advisor.report.forecast import basis, gain, host_note, plan_name
from advisor.report.recommendation import answer
from advisor.workload.job import Job
from advisor.workload.plan_document import workloads_by_name

SCHEMA = 1


def forecast_document(forecast: Forecast) -> dict[str, Any]:
    """What ``advisor predict --json`` prints."""
    return {"schema": SCHEMA} | standing_document(forecast.standing) | _fields(forecast)


def recommendation_document(advised: Recommendation, top: int | None = None) -> dict[str, Any]:
    """What ``advisor recommend --json`` prints.

    `workloads` says what each name stands for, so that ``python -m advisor.measure runs`` can run
    the plans on a machine without the profiles; what starts a job stands beside it in each plan.

    Args:
        advised: The recommendation.
        top: Most plans to include; None: all.
    """
    return {
        "schema": SCHEMA,
        "gpu": advised.gpu.key,
        "objective": advised.objective,
        "ranked_by": advised.ranked_by,
        "note": advised.note,
        **standing_document(advised.standing),
        "verdict": _verdict(advised),
        "workloads": workloads_document(advised.jobs),
        "epochs": [job.epochs for job in advised.jobs],
        "serial": _plan(advised, advised.serial),
        "plans": [_plan(advised, plan) for plan in advised.plans[:top]],
        "left_out": [asdict(each) for each in advised.left_out],
        "searched": advised.searched,
    }


def workloads_document(jobs: Iterable[Job]) -> dict[str, Any]:
    """What the name of each of `jobs` stands for."""
    every = (job.profile.workload for job in jobs)
    return {name: asdict(each) for name, each in workloads_by_name(every).items()}


def binding_document(bound: Binding) -> dict[str, Any]:
    """What limits the jobs of a plan; shares are 0..1."""
    return {
        "limit": bound.limit,
        "of_each_job": [bound.limit_of(job) for job in range(len(bound.host_shares))],
        "host_shares": list(bound.host_shares),
        "uses": {use.resource: use.share for use in bound.uses},
        "memory": bound.memory,
    }


def _verdict(advised: Recommendation) -> dict[str, Any]:
    found = verdict(advised)
    rival = found.runner_up
    return {
        "answers": list(found.answers),
        "text": answer(advised),
        "binding": binding_document(found.binding),
        "runner_up": None if rival is None else {
            "rank": rival.plan.rank,
            "sharing": str(rival.plan.sharing),
            "behind": rival.behind,
            "within_error": rival.within_error,
        },
        "host_bound": [asdict(each) for each in found.host_bound],
    }  # fmt: skip


def standing_document(standing: Standing) -> dict[str, Any]:
    """What an answer is based on besides profiles and model."""
    calibrated = standing.calibrated
    return {
        "calibrated": None if calibrated is None else asdict(calibrated),
        "host": host_note(standing),
        "power_cap_w": standing.power_cap_w,
        "own_paces": {name: asdict(each) for name, each in standing.own_paces},
        "stale": [asdict(each) for each in standing.stale],
        "unsteady": list(standing.unsteady),
        "estimated_from": standing.estimated_from,
        "estimated_profiles": {each.name: each.estimated_from for each in standing.estimated},
        "estimated_batches": {
            each.name: list(each.other_batches.batches)
            for each in standing.estimated
            if each.other_batches is not None
        },
    }


def _plan(advised: Recommendation, plan: Plan) -> dict[str, Any]:
    own = {
        "rank": plan.rank,
        "ties_best": plan.ties_best,
        "late": list(plan.late_jobs),
        "precedes_by": plan.precedes_by,
        "commands": list(plan.commands),
        "why": plan.why,
    }
    jobs = [
        _job_document(job) | asked_document(each)
        for job, each in zip(plan.prediction.jobs, advised.jobs, strict=True)
    ]
    return own | _fields(plan) | {"jobs": jobs}


def _fields(forecast: Forecast) -> dict[str, Any]:
    mix = forecast.prediction
    return {
        "gpu": mix.gpu,
        "sharing": str(mix.sharing),
        "jobs": [_job_document(job) for job in mix.jobs],
        "memory_total_mib": mix.memory_total_mib,
        "memory_capacity_mib": mix.memory_capacity_mib,
        "oom_probability": mix.oom_probability,
        "weighted_speedup": mix.weighted_speedup,
        "makespan_s": forecast.makespan_s,
        "makespan_interval_s": interval_document(forecast.makespan_interval_s),
        "speedup_vs_serial": forecast.speedup_vs_serial,
        "power_w": interval_document(mix.power_w),
        "energy_j": interval_document(forecast.energy_j),
        "power_cap_w": mix.power_cap_w,
        "power_cap_note": None if mix.power_cap_w is None else CAP_NOTE,
        "gract": mix.gract,
        "smact": mix.smact,
        "estimated_from": mix.estimated_from,
        "confirmed_on_hardware": mix.confirmed_on_hardware,
        "wide_because": mix.wide_because,
        "host_stretch": mix.host_stretch,
    }


def _job_document(job: JobPrediction) -> dict[str, Any]:
    return {key: each for key, each in asdict(job).items() if key != "slowdown_error"}


def asked_document(job: Job) -> dict[str, Any]:
    """What was asked of `job`, and what starts it, with the keys of an exported plan."""
    script = job.profile.workload.script
    return asked_of(job) | {"script": None if script is None else asdict(script)}


def interval_document(value: Interval | None) -> dict[str, float] | None:
    """`value` with its bounds; None where it is not known."""
    return None if value is None else asdict(value)


def plan_rows(advised: Recommendation) -> list[dict[str, str]]:
    """A row for each plan, best first; the keys are the columns' names."""
    return [_plan_row(advised, plan) for plan in advised.plans]


def _plan_row(advised: Recommendation, plan: Plan) -> dict[str, str]:
    mix = plan.prediction
    return {
        "rank": str(plan.rank),
        "plan": plan_name(advised, plan),
        "until all are done": units.seconds(plan.makespan_interval_s),
        "gain over serial": units.times(gain(advised, plan)),
        "memory": f"{units.number(mix.memory_total_mib / units.MIB_PER_GIB)} of "
        f"{units.gib_of(mix.memory_capacity_mib)}",
        "energy": units.joules(plan.energy_j),
        "stands on": basis(mix),
        "why": plan.why,
    }


def job_rows(jobs: Sequence[Job], mix: MixPrediction) -> list[dict[str, str]]:
    """A row for each of `jobs` under the plan predicted as `mix`; equal copies share a row."""
    rows = Counter(tuple(_job_row(*each).items()) for each in zip(jobs, mix.jobs, strict=True))
    return [
        dict(row) | {"job": units.collapsed([dict(row)["job"]] * count)}
        for row, count in rows.items()
    ]


def _job_row(asked: Job, job: JobPrediction) -> dict[str, str]:
    epoch = "length unknown" if job.epoch_s is None else units.seconds(job.epoch_s)
    stands = "estimated" if asked.profile.is_estimate else "measured"
    return {
        "job": job.job,
        "a step alone": f"{units.duration(asked.profile.step_s)}, {stands}",
        "a step": units.seconds(job.step_s),
        "an epoch": epoch,
        "slower than alone": f"{units.number(job.slowdown)}x",
        "memory": units.gib(job.memory_interval_mib),
        "risk to run out": units.share(job.oom_probability),
    }


def memory_document(mix: MixPrediction) -> dict[str, Any]:
    """Memory that the jobs of a mix hold, and whether it fits."""
    return {
        "memory_total_mib": mix.memory_total_mib,
        "memory_capacity_mib": mix.memory_capacity_mib,
        "oom_probability": mix.oom_probability,
        "confirmed_on_hardware": mix.confirmed_on_hardware,
    }
