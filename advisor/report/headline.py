"""The sentences that answer a question, before any table, and what its figures stand on."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from advisor.english import with_article
from advisor.plan import ObjectiveName
from advisor.plan.bottlenecks import HostBound
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.reasons import Answer, Verdict, first_by, verdict
from advisor.plan.recommendation import Forecast, Plan, Recommendation, Standing
from advisor.prediction.mix_prediction import Interval, MixPrediction
from advisor.prediction.power_cap import CAP_NOTE
from advisor.report import units
from advisor.sharing import Mode, Sharing
from advisor.sharing.traversal import groups
from advisor.timeline.outcome import Simulation
from advisor.workload.named_workloads import how_to_measure

ORIGINS = """\
**Measured** is each job alone: its step, kernels, memory and power. **Predicted** is what happens
when jobs share, by a model that learnt from real runs of that kind of sharing. **Estimated** is
what no run stands behind here: MIG, power caps, and whatever another GPU's runs say. Times until
jobs end follow from these by simulation."""
"""Where the figures of the page come from."""

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


def answer(advised: Recommendation) -> str:
    """What to do, what that gives, what does as well, and what holds the jobs back."""
    best, found = advised.best, verdict(advised)
    parts = [_advice(advised), *_others(advised, found)]
    if found.host_bound:
        first = "fix-host-first" in found.answers
        parts.insert(0 if first else len(parts), _host_path(found.host_bound, first=first))
    if known := next((each.prediction for each in advised.plans
                      if each.prediction.estimated_from), None):  # fmt: skip
        parts.append(f"{_capital(estimated(known))}.")
    elif not best.prediction.confirmed_on_hardware:
        parts.append(f"This is {NOT_CONFIRMED}.")
    if best.prediction.power_cap_w is not None:
        parts.append(cap_note(best.prediction.power_cap_w))
    if advised.note:
        parts.append(f"Ranked by {advised.ranked_by}: {advised.note}.")
    return led(advised.standing, " ".join(parts))


def _advice(advised: Recommendation) -> str:
    best, jobs = advised.best, len(advised.jobs)
    if jobs == 1:
        return f"There is nothing to share: one job, done in {_until(best)}."
    if best.sharing.mode == "serial":
        return f"Don't share: run the {jobs} jobs one after another, {_until(best)}."
    return f"{_instruction(best.sharing, jobs)}: {_outcome(advised, best)}."


def _others(advised: Recommendation, found: Verdict) -> list[str]:
    """What equals the best within our error; else how far behind the next is."""
    ties = [plan for plan in advised.plans[1:] if plan.ties_best]
    if ties:
        shown = [plan for plan in ties if plan in ties[:3] or plan is advised.serial]
        named = ", ".join(f"{plan.rank} ({_kind(advised, plan)})" for plan in shown)
        more = f" and {len(ties) - len(shown)} more" if len(ties) > len(shown) else ""
        return [f"Equal within our error: {named}{more}{_first(advised)}."]
    if (rival := found.runner_up) is None:
        return []
    name = "Sharing at its best" if "dont-share" in found.answers else "The next"
    said = f"{name}, {rival.plan.rank} ({_kind(advised, rival.plan)}), is "
    said += f"{abs(rival.behind):.0%} {'ahead' if rival.behind < 0 else 'behind'}"
    by = "" if advised.best.precedes_by == "cost" else _first(advised)
    return [f"{said}, more than our error{by}."]


def _first(advised: Recommendation) -> str:
    """By what rule the best comes first."""
    rule = advised.best.precedes_by
    return "" if rule is None else f"; 1 is first {first_by(rule, advised.level)}"


def _host_path(jobs: Sequence[HostBound], *, first: bool) -> str:
    """The jobs whose host path to shorten, and how much faster it was measured."""
    said = []
    for each in jobs:
        said.append(f"the GPU works in {each.gpu_share:.0%} of a step of {each.job} alone")
        if each.variant is not None and each.variant_step_s is not None:
            said[-1] += (
                f" ({each.variant} was measured at {units.duration(each.variant_step_s)} a step "
                f"instead of {units.duration(each.step_s)})"
            )
    lead = "Fix the host path first" if first else "The host path holds jobs back"
    return f"{lead}: {'; '.join(said)}."


def cap_note(cap_w: float) -> str:
    """What stands behind predictions under a power cap."""
    return f"Under a power cap of {units.number(cap_w)} W: {CAP_NOTE}."


def host_note(standing: Standing) -> str:
    """How fast a host advice is for, and how that is known."""
    known = standing.calibrated
    if known is None:
        why = f" ({standing.unchecked})" if standing.unchecked else ""
        return (
            f"The host's speed was not checked{why}: profiles are taken as on the hosts they were "
            f"measured on, and ranges allow for hosts of another speed."
        )
    by = "Host checked just now" if known.file is None else f"Calibrated ({Path(known.file).name})"
    if standing.unchecked:
        by += f"; checking the host at hand failed: {standing.unchecked}"
    if known.host_slowdown is None:
        return f"{by}, but the profiles do not say how fast their hosts were."
    return (
        f"{by}: host work takes {units.number(known.host_slowdown)} times as long here as where "
        f"the jobs were profiled."
    )


def led(standing: Standing, sentence: str) -> str:
    """`sentence`, after what profiles that nobody measured on this GPU are estimated from."""
    if not standing.estimated:
        return sentence
    names = [each.name for each in standing.estimated]
    sources = sorted({f"{each.estimated_from}" for each in standing.estimated})
    return (
        f"Estimated from {', '.join(sources)}: {', '.join(names)}, kernel "
        f"by kernel, with the host's part as measured there; to measure on "
        f"{with_article(standing.estimated[0].gpu)}: {how_to_measure(names)}. {sentence}"
    )


def bounds_note(advised: Recommendation) -> str:
    """What the ranges in parentheses mean."""
    note = "In parentheses: between these, nine of ten measurements should fall."
    if all(plan.prediction.confirmed_on_hardware for plan in advised.plans):
        return note
    return f"{note} Of estimated plans none was measured: their ranges are wide by choice."


def gain(advised: Recommendation, plan: Forecast) -> Interval:
    """How much better than serial, by what the plans are ranked by; 1 is equal, more is better."""
    if plan.prediction is advised.serial.prediction:
        return Interval(1.0, 1.0, 1.0)
    serial, own = (known_cost(each, advised.ranked_by) for each in (advised.serial, plan))
    return Interval(*(serial.p50 / level for level in (own.p95, own.p50, own.p05)))


def chosen_cap_w(advised: Recommendation, plan: Forecast) -> float | None:
    """The power cap that is the plan's own choice; None if it has none, or all have it."""
    cap_w = plan.prediction.power_cap_w
    return None if cap_w == advised.serial.prediction.power_cap_w else cap_w


def plan_name(advised: Recommendation, plan: Plan) -> str:
    """How the jobs share, and under which power cap where the plan chose one."""
    cap_w = chosen_cap_w(advised, plan)
    return str(plan.sharing) if cap_w is None else f"{plan.sharing} at most {cap_w:g} W"


def _kind(advised: Recommendation, plan: Plan) -> str:
    cap_w = chosen_cap_w(advised, plan)
    return kind(plan.sharing) if cap_w is None else f"{kind(plan.sharing)} at {cap_w:g} W"


def kind(sharing: Sharing) -> str:
    """The mode in a word or two."""
    match sharing.mode:
        case "mps-limits":
            return "mps with limits"
        case "mps-priority":
            return "mps with priorities"
        case "mig" | "hybrid":
            return "mig, estimated"
        case "serial" | "naive" | "mps" | "phases":
            return sharing.mode
        case _:
            assert_never(sharing.mode)


def basis(mix: MixPrediction) -> str:
    """What stands behind the figures of a plan."""
    if mix.confirmed_on_hardware and mix.estimated_from is None:
        return "predicted, from real runs of this kind"
    return estimated(mix)


NOT_CONFIRMED = "estimated, not confirmed on hardware"


def estimated(mix: MixPrediction | Simulation) -> str:
    """What stands in for runs of this kind on this GPU."""
    if mix.estimated_from is None:
        return NOT_CONFIRMED
    on = with_article(mix.gpu)
    return f"estimated from {mix.estimated_from}, never measured on {on}"


def caution(mix: MixPrediction) -> str | None:
    """What to know before trusting a plan; None if real runs of its kind stand behind it."""
    said = []
    if mix.estimated_from is not None or not mix.confirmed_on_hardware:
        said.append(f"{_capital(estimated(mix))}.")
    if mix.power_cap_w is not None:
        said.append(cap_note(mix.power_cap_w))
    return " ".join(said) or None


_UNDER: dict[Mode, str] = {
    "mps": "MPS",
    "mps-limits": "MPS with limits",
    "mps-priority": "MPS with client priorities",
}


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _instruction(sharing: Sharing, jobs: int) -> str:
    together = f"Run {'both' if jobs == 2 else f'all {jobs}'} at once"
    match sharing.mode:
        case "mps" | "mps-limits" | "mps-priority":
            return f"{together} under {_UNDER[sharing.mode]}"
        case "mig":
            return f"{together} on MIG instances of their own"
        case "hybrid":
            return f"{together} on MIG instances: {sharing}"
        case "phases":
            count = len(groups(sharing, jobs))
            return f"Run the {jobs} jobs in {count} groups, one after another"
        case "serial" | "naive":
            return f"{together}, time-sliced without MPS"
        case _:
            assert_never(sharing.mode)


def _until(plan: Forecast) -> str:
    makespan = plan.makespan_interval_s
    return "for as long as it takes" if makespan is None else units.seconds(makespan)


def _outcome(advised: Recommendation, plan: Plan) -> str:
    cost = known_cost(plan, advised.ranked_by)
    better = units.times(gain(advised, plan))
    shown = shown_cost(advised.ranked_by)(cost)
    return OBJECTIVES[advised.ranked_by].headline(cost, shown, better)


def shown_cost(objective: ObjectiveName) -> Callable[[Interval], str]:
    """What writes a cost by `objective` with its unit."""
    match OBJECTIVES[objective].unit:
        case "s":
            return units.seconds
        case "J":
            return units.joules
        case "ratio":
            return units.times
