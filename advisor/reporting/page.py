"""The tables of the page: what each row says, in words and with units."""

from advisor.planning.plan import Plan, Recommendation
from advisor.prediction.answer import JobPrediction, MixPrediction
from advisor.reporting import figures
from advisor.reporting.answer import cap_note, gain

_MIB_PER_GIB = 1024


def plan_rows(advised: Recommendation) -> list[dict[str, str]]:
    """A row for each plan, best first; a column's name is its key."""
    return [_plan_row(advised, plan) for plan in advised.plans]


def _plan_row(advised: Recommendation, plan: Plan) -> dict[str, str]:
    mix = plan.prediction
    return {
        "rank": str(plan.rank),
        "plan": str(plan.sharing),
        "until all are done": figures.seconds(plan.makespan_interval_s),
        "gain over serial": figures.times(gain(advised, plan)),
        "memory": f"{figures.number(mix.memory_total_mib / _MIB_PER_GIB)} of "
        f"{figures.number(mix.memory_capacity_mib / _MIB_PER_GIB)} GiB",
        "energy": figures.joules(plan.energy_j),
        "stands on": "real runs" if mix.confirmed_on_hardware else "an estimate",
        "why": plan.why,
    }


def job_rows(mix: MixPrediction) -> list[dict[str, str]]:
    """A row for each job of a plan, in order."""
    return [_job_row(job) for job in mix.jobs]


def _job_row(job: JobPrediction) -> dict[str, str]:
    epoch = "length unknown" if job.epoch_s is None else figures.seconds(job.epoch_s)
    return {
        "job": job.job,
        "an epoch": epoch,
        "a step": figures.seconds(job.step_s),
        "slower than alone": f"{figures.number(job.slowdown)}x",
        "memory": figures.gib(job.memory_interval_mib),
        "risk to run out": figures.share(job.oom_probability),
    }


def caution(mix: MixPrediction) -> str | None:
    """What to know before trusting a plan; None where real runs of its kind stand behind it."""
    said = []
    if mix.estimated_from:
        said.append(f"Measured on {mix.estimated_from} and translated: not confirmed on this GPU.")
    elif not mix.confirmed_on_hardware:
        said.append("Estimated, not confirmed on hardware.")
    if mix.power_cap_w is not None:
        said.append(cap_note(mix.power_cap_w))
    return " ".join(said) or None
