"""The sentence that answers, before any table."""

from pathlib import Path

from advisor.planning.objectives import cost
from advisor.planning.plan import Forecast, Plan, Recommendation, Standing
from advisor.prediction.answer import Interval
from advisor.prediction.power_cap import CAP_NOTE
from advisor.reporting import figures
from advisor.sharing import Hybrid, Mig, Mps, Phases, Serial, Sharing


def answer(advised: Recommendation) -> str:
    """What to do, what that gives, and what does as well."""
    best = advised.best
    if len(advised.jobs) == 1:
        parts = [f"There is nothing to share: one job, done in {_until(best)}."]
    elif isinstance(best.sharing, Serial):
        parts = [
            f"Don't share: run the {len(advised.jobs)} jobs one after another, {_until(best)}."
        ]
    else:
        parts = [f"{_instruction(best.sharing, len(advised.jobs))}: {_outcome(advised, best)}."]
    ties = [plan for plan in advised.plans[1:] if plan.ties_best]
    if ties:
        named = ", ".join(f"{plan.rank} ({kind(plan.sharing)})" for plan in ties[:3])
        more = f" and {len(ties) - 3} more" if len(ties) > 3 else ""
        parts.append(f"Equal within our error: {named}{more}.")
    if not best.prediction.confirmed_on_hardware:
        parts.append("This is estimated, not confirmed on hardware.")
    if best.prediction.power_cap_w is not None:
        parts.append(cap_note(best.prediction.power_cap_w))
    if advised.note:
        parts.append(f"Ranked by {advised.ranked_by}: {advised.note}.")
    return " ".join(parts)


def cap_note(cap_w: float) -> str:
    """What stands behind predictions under a power cap."""
    return f"Under a power cap of {figures.number(cap_w)} W: {CAP_NOTE}."


def calibrated_note(standing: Standing) -> str | None:
    """For which machine advice is; None where nobody calibrated one."""
    if standing.calibrated is None:
        return None
    name = Path(standing.calibrated.file).name
    slowdown = standing.calibrated.host_slowdown
    if slowdown is None:
        return f"Calibrated ({name}), but the profiles do not say how fast their hosts were."
    return (
        f"Calibrated ({name}): host work takes {figures.number(slowdown)} times as long here as "
        f"where the jobs were profiled."
    )


def bounds_note(advised: Recommendation) -> str:
    """What the ranges in parentheses mean."""
    note = "In parentheses: between these, nine of ten measurements should fall."
    if all(plan.prediction.confirmed_on_hardware for plan in advised.plans):
        return note
    return f"{note} Of estimated plans none was measured: their ranges are wide by choice."


def gain(advised: Recommendation, plan: Forecast) -> Interval:
    """How much better than serial, by what the plans are ranked by; 1 is equal, more is better."""
    if isinstance(plan.sharing, Serial):
        return Interval(1.0, 1.0, 1.0)
    serial, own = (cost(each, advised.ranked_by) for each in (advised.serial, plan))
    if serial is None or own is None:
        raise ValueError("a plan that was ranked has a cost")
    return Interval(*(serial.p50 / level for level in (own.p95, own.p50, own.p05)))


def kind(sharing: Sharing) -> str:
    """The mode in a word or two."""
    match sharing:
        case Mps(limits) if limits:
            return "mps with limits"
        case Mig() | Hybrid():
            return "mig, estimated"
        case Phases():
            return "phases"
        case _:
            return str(sharing)


def _instruction(sharing: Sharing, jobs: int) -> str:
    together = f"Run {'both' if jobs == 2 else f'all {jobs}'} at once"
    match sharing:
        case Mps(limits) if limits:
            return f"{together} under MPS with limits"
        case Mps():
            return f"{together} under MPS"
        case Mig():
            return f"{together} on MIG instances of their own"
        case Hybrid():
            return f"{together} on MIG instances: {sharing}"
        case Phases():
            return f"Run the {jobs} jobs in {len(sharing.groups)} groups, one after another"
        case _:
            return f"{together}, time-sliced without MPS"


def _until(plan: Forecast) -> str:
    makespan = plan.makespan_interval_s
    return "for as long as it takes" if makespan is None else figures.seconds(makespan)


def _outcome(advised: Recommendation, plan: Plan) -> str:
    better = figures.times(gain(advised, plan))
    match advised.ranked_by:
        case "makespan":
            said = f"all done in {_until(plan)}, {better} as fast as one after another"
        case "throughput":
            said = f"{better} the throughput of one after another"
        case "energy":
            said = f"{figures.joules(plan.energy_j)}, {better} as frugal as one after another"
        case "energy-epoch" | "energy-example":
            what = advised.ranked_by.removeprefix("energy-")
            energy = figures.joules(cost(plan, advised.ranked_by))
            said = f"{energy} for an {what} of each job, {better} as frugal as one after another"
        case "fairness":
            said = f"the job that fares worst runs {better} as fast as its share of the time gives"
        case "mean-completion":
            mean_s = figures.seconds(cost(plan, advised.ranked_by))
            said = f"a job is done in {mean_s} on average, {better} as soon as one after another"
        case "deadlines":
            said = f"{_lateness(plan)}, {better} as soon as one after another"
    return said


def _lateness(plan: Plan) -> str:
    """How the job fares that is closest to its deadline, or furthest behind it."""
    taken = cost(plan, "deadlines")
    assert taken is not None, "it is ranked by deadlines"
    word = "every deadline is kept" if taken.p50 <= 1 else "not every deadline is kept"
    return f"{word}: the tightest job takes {taken.p50:.0%} of its time"
