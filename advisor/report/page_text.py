"""The page's text around its charts: a headline, and tables in words and with units."""

from collections.abc import Sequence

from advisor.plan.reasons import Answer, Verdict
from advisor.plan.recommendation import Plan, Recommendation
from advisor.prediction.mix_prediction import JobPrediction, MixPrediction
from advisor.report import units
from advisor.report.headline import basis, cap_note, chosen_cap_w, gain
from advisor.workload.job import Job

ORIGINS = """\
**Measured** is each job alone: its step, kernels, memory and power. **Predicted** is what happens
when jobs share, by a model that learnt from real runs of that kind of sharing. **Estimated** is
what no run stands behind here: MIG, power caps, and whatever another GPU's runs say. Times until
jobs end follow from these by simulation."""
"""Where the figures of the page come from."""

_MIB_PER_GIB = 1024
_HEADLINES: dict[Answer, str] = {
    "fix-host-first": "Fix the host path first.",
    "nothing-to-share": "There is nothing to share.",
    "share": "Share.",
    "dont-share": "Don't share.",
    "equal": "Several plans are equal within our error.",
}


def headline(found: Verdict) -> str:
    """All that holds, in a few words, the first the one to act on."""
    return " ".join(_HEADLINES[each] for each in found.answers)


def plan_name(advised: Recommendation, plan: Plan) -> str:
    """How the jobs share, and under which power cap where the plan chose one."""
    cap_w = chosen_cap_w(advised, plan)
    return str(plan.sharing) if cap_w is None else f"{plan.sharing} at most {cap_w:g} W"


def plan_rows(advised: Recommendation) -> list[dict[str, str]]:
    """A row for each plan, best first; a column's name is its key."""
    return [_plan_row(advised, plan) for plan in advised.plans]


def _plan_row(advised: Recommendation, plan: Plan) -> dict[str, str]:
    mix = plan.prediction
    return {
        "rank": str(plan.rank),
        "plan": plan_name(advised, plan),
        "until all are done": units.seconds(plan.makespan_interval_s),
        "gain over serial": units.times(gain(advised, plan)),
        "memory": f"{units.number(mix.memory_total_mib / _MIB_PER_GIB)} of "
        f"{units.number(mix.memory_capacity_mib / _MIB_PER_GIB)} GiB",
        "energy": units.joules(plan.energy_j),
        "stands on": basis(mix),
        "why": plan.why,
    }


def job_rows(jobs: Sequence[Job], mix: MixPrediction) -> list[dict[str, str]]:
    """A row for each of `jobs` under the plan that `mix` speaks of, in order."""
    return [_job_row(job, answer) for job, answer in zip(jobs, mix.jobs, strict=True)]


def _job_row(asked: Job, job: JobPrediction) -> dict[str, str]:
    epoch = "length unknown" if job.epoch_s is None else units.seconds(job.epoch_s)
    return {
        "job": job.job,
        "a step alone, measured": units.duration(asked.profile.step_s),
        "a step": units.seconds(job.step_s),
        "an epoch": epoch,
        "slower than alone": f"{units.number(job.slowdown)}x",
        "memory": units.gib(job.memory_interval_mib),
        "risk to run out": units.share(job.oom_probability),
    }


def caution(mix: MixPrediction) -> str | None:
    """What to know before trusting a plan; None if real runs of its kind stand behind it."""
    said = []
    if mix.estimated_from:
        said.append(f"Measured on {mix.estimated_from} and translated: not confirmed on this GPU.")
    elif not mix.confirmed_on_hardware:
        said.append("Estimated, not confirmed on hardware.")
    if mix.power_cap_w is not None:
        said.append(cap_note(mix.power_cap_w))
    return " ".join(said) or None
