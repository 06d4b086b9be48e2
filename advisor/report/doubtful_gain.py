"""Whether a plan beats serial, where jobs without a known utilisation leave that open."""

from advisor.plan.recommendation import Plan, Recommendation
from advisor.prediction.profile_gaps import without_utilisation
from advisor.report.headline import gain
from advisor.sharing.traversal import one_by_one


def may_lose(advised: Recommendation, plan: Plan) -> tuple[str, ...]:
    """Jobs without a known utilisation, where it leaves open whether `plan` beats serial."""
    if one_by_one(plan.sharing) or gain(advised, plan).p05 >= 1:
        return ()
    return without_utilisation([job.profile for job in advised.jobs])


def untold(advised: Recommendation, plan: Plan) -> str:
    """What to measure, where it leaves open whether sharing pays; else empty."""
    unknown = may_lose(advised, plan)
    if not unknown:
        return ""
    return (
        f" Whether sharing pays cannot be told without the utilisation of {', '.join(unknown)}: "
        f"read it in `nvidia-smi` while it runs alone, and add it by `advisor profile "
        f"--from-numbers` with --gpu-utilization."
    )
