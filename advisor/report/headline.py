"""A plan in one line: what to do, what it costs, how sure that is, and why it is first."""

from collections.abc import Sequence
from typing import Literal

from advisor.errors import counted, in_percent, with_article
from advisor.plan import ObjectiveName
from advisor.plan.objectives import known_cost
from advisor.plan.ranking import rule_in_words
from advisor.plan.reasons import SEEN
from advisor.plan.values import Plan, Recommendation
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import each_counted, in_order, places, short_names
from advisor.sharing import Group, Hybrid, Queue, Sharing
from advisor.sharing.groups import groups as groups_of
from advisor.sharing.groups import one_by_one, running_together, with_a_queue

_DIFFERENCES: dict[ObjectiveName, tuple[str, str, str]] = {
    "makespan": ("is", "slower", "faster"),
    "mean-completion": ("is", "later on average", "sooner on average"),
    "throughput": ("does", "less work an hour", "more work an hour"),
    "energy": ("needs", "more energy", "less energy"),
    "deadlines": ("is", "later for the tightest job", "sooner for the tightest job"),
}
"""A verb, and the words for a plan that costs more than another, and for one that costs less."""


def headline(advised: Recommendation, plan: Plan) -> str:
    """Return what to do under `plan`, what it costs, and how much less than one after another."""
    short = short_names(job.name for job in advised.jobs)
    names = [short[job.name] for job in advised.jobs]
    first = fleet_instruction(advised) if plan.way else instruction(plan, names)
    by, turns = advised.ranked_by, "one after another" if advised.gpus == 1 else "one at a time"
    parts = []
    if by == "deadlines":
        parts.append(
            f"the tightest job ends after {in_percent(known_cost(plan, by).p50)} of its time"
        )
    elif by != "throughput":
        until = " until a job ends, on average" if by == "mean-completion" else ""
        parts.append(units.middle(known_cost(plan, by), forecast.shown_cost(by)) + until)
    if plan.rank != advised.serial.rank and by != "deadlines":
        part, worse = _apart(advised, plan, advised.serial)
        work = " work an hour" if by == "throughput" else ""
        more = "more" if worse != (by == "throughput") else "less"
        parts.append(f"{part} {more}{work} than {turns}" if part else f"as much{work} as {turns}")
    return f"{': '.join(filter(None, (first, ', '.join(parts))))}{_all_done(advised, plan)}."


def _apart(advised: Recommendation, plan: Plan, other: Plan) -> tuple[str, bool]:
    """By what part of its median `plan` costs more or less than `other` (empty: 0.0 %); if more."""
    by = advised.ranked_by
    ratio = known_cost(plan, by).p50 / known_cost(other, by).p50
    part = abs((1 / ratio if by == "throughput" else ratio) - 1)
    return in_percent(part, 0 if part >= 0.0995 else 1) if part >= 0.0005 else "", ratio > 1


def difference(advised: Recommendation, plan: Plan, other: Plan) -> str:
    """Return by how much the costs of two plans differ, e.g. ``"26 % slower"``; empty: equal."""
    part, worse = _apart(advised, plan, other)
    return f"{part} {_DIFFERENCES[advised.ranked_by][1 if worse else 2]}" if part else ""


def certainty(advised: Recommendation, plan: Plan) -> str:
    """Return the gain of `plan` with its interval, the ways that tie with it, and its memory."""
    gpu = "" if plan.way else f" on {with_article(advised.gpu.key)}"
    if plan.one_by_one:
        cost = forecast.shown_cost(advised.ranked_by)(known_cost(plan, advised.ranked_by))
        parts = [f"{cost}{gpu}", *filter(None, [forecast.best_gain(advised)])]
    else:
        parts = [f"Gain {units.times(plan.gain)}{gpu}"]
        if not plan.confirmed_on_hardware:
            parts.append(forecast.short_basis(plan.prediction))
    own, best = forecast.way_name(advised, plan), forecast.best_of_each_way(advised)
    ties = [way for way, each in best.items() if way != own and each.ties_best]
    if plan.ties_best and ties:
        every = len(ties) > 1 and len(ties) == len(best) - 1
        parts.append("all ways are tied" if every else f"tied with {', '.join(ties)}")
    where = "Fullest GPU" if len(plan.gpus) > 1 else "Fits"
    ranked = forecast.ranking_note(advised.level)
    return f"{'; '.join(parts)}. {where}: {units.held(plan.prediction)}.{ranked}"


def lateness(advised: Recommendation, plan: Plan) -> str:
    """Return which deadline `plan` misses most, and which plan keeps all; empty: it misses none."""
    if not plan.late_jobs:
        return ""
    rows = zip(plan.predictions, plan.ends_s or (), plan.deadlines_s, strict=True)
    late_s, latest = max((end_s.p50 - due_s, job.job) for job, end_s, due_s in rows if due_s)
    others = len(plan.late_jobs) - 1
    more = f"; {counted(others, 'other job')} late" if others else ""
    punctual = (each for each in advised.plans if not each.late_jobs)
    keeps = next((plan_words(advised, each) for each in punctual), "No plan")
    late = f"{latest} ends {units.duration(late_s)} after its deadline{more}."
    return f"{late} {keeps} keeps every deadline."


def why_first(advised: Recommendation) -> str:
    """Return why the best plan is first and not the next way; empty: there is no other."""
    best, by = advised.best, advised.ranked_by
    ordered = sorted(advised.plans, key=lambda plan: known_cost(plan, by).at(advised.level))
    cheapest = ordered[0]
    if 1 - known_cost(cheapest, by).p50 / known_cost(best, by).p50 < SEEN:
        own = forecast.way_name(advised, best)
        others = (plan for plan in ordered if forecast.way_name(advised, plan) != own)
        cheapest = next(others, best)
    if cheapest is best:
        return ""
    tie, words = cheapest.ties_best, plan_words(advised, cheapest)
    gap = difference(advised, cheapest, best)
    if not gap:
        return f"The next way, {words}, does not differ in the median{': a tie' if tie else ''}."
    words += f"{',' if ',' in words else ''} {_DIFFERENCES[by][0]} {gap}"
    words += " in the median: a tie" if tie else ""
    if known_cost(cheapest, by).p50 > known_cost(best, by).p50:
        return f"The next way, {words}."
    words = words[0].upper() + words[1:]
    if best.precedes_by == "simplicity":
        simpler = f"{plan_words(advised, best)} is simpler"
        return f"{words}. {simpler}." if tie else f"{words}: too little for a more complex plan."
    if best.precedes_by in (None, "cost"):
        return f"{words}."
    return f"{words}, but plan 1 is first {rule_in_words(best.precedes_by, advised.level)}."


def badge_of(
    advised: Recommendation, plan: Plan
) -> tuple[str, Literal["green", "orange", "red", "gray"]]:
    """Return the verdict on `plan` in a word or two, and its colour."""
    if len(advised.jobs) == 1:
        return "Nothing to share", "gray"
    if plan.late_jobs:
        return "Missed", "red"
    better = plan.gain
    if plan.one_by_one or better.p95 < 1:
        return "Don't share", "red"
    return ("Share", "green") if better.p05 > 1 else ("Toss-up", "orange")


def plan_words(advised: Recommendation, plan: Plan) -> str:
    """Return how the jobs share under `plan`, in words for `Plan.notation`."""
    jobs, caps_w = len(advised.jobs), plan.power_caps_w
    cap = f", at most {' or '.join(f'{cap_w:g}' for cap_w in caps_w)} W" if caps_w else ""
    if plan.way or one_by_one(plan.sharing):
        return f"{forecast.way_name(advised, plan)}{cap}"
    turns = groups_of(plan.sharing, jobs)
    parts = []
    for group in turns:
        own = f" (job{'s' * (len(group.jobs) > 1)} {units.numbers(group.jobs)})"
        words = _sharing_words(group.sharing) if isinstance(group, Group) else _places(group)
        parts.append(words + (own if len(turns) > 1 else ""))
    return f"{', then '.join(parts)}{cap}"


def _sharing_words(sharing: Sharing) -> str:
    """How jobs share a whole GPU or an instance."""
    if isinstance(sharing, Queue):
        return f"{_sharing_words(sharing.sharing)}, {sharing.at_once} at a time"
    words = {"serial": "alone", "naive": "time-slicing", "mps": "MPS", "mps-limits": "MPS"}
    way = words[sharing.mode]
    if not sharing.limits:
        return way
    limits = sharing.limits[:1] if len(set(sharing.limits)) == 1 else sharing.limits
    return f"{way}, limits {', '.join(f'{each:g}' for each in limits)} %"


def _places(group: Hybrid) -> str:
    """The instances of `group`, and how several jobs share one of them."""
    names = []
    for part in group.partitions:
        name = f"{part.slices}c of " if part.slices else ""
        name += part.instance.profile if part.instance else ""
        if (jobs := len(part.jobs)) > 1:
            turns = "in turn" if part.at_once == 1 else f"by {_sharing_words(part.sharing)}"
            name += f" ({jobs} jobs {turns})"
        names.append(name)
    return f"MIG: {', '.join(each_counted(names))}"


def instruction(plan: Plan, names: Sequence[str]) -> str:
    """Return what to do, as a person says it; `names` are those of the jobs in order."""
    sharing, jobs = plan.sharing, len(names)
    if jobs == 1:
        return "Nothing to share: one job"
    every_job = "both jobs" if jobs == 2 else f"all {jobs} jobs"
    cap_w = plan.prediction.power_cap_w
    cap = "" if cap_w is None else f", at most {cap_w:g} W"
    if one_by_one(sharing):
        return f"Don't share: run {every_job} one after another{cap}"
    runs = []
    for group in groups_of(sharing, jobs):
        own = [names[number - 1] for number in group.jobs]
        way = _way(group.sharing, own) if isinstance(group, Group) else "on MIG instances"
        runs.append(f"{every_job if len(own) == jobs else _listed(own)} {way}")
    if len(runs) > 1:
        return f"Run {', then '.join(runs)}{cap}"
    if sharing.instances:
        return f"Use MIG, {places(sharing, names)}{cap}"
    way = runs[0].removeprefix(f"{every_job} ").removeprefix("under ").removeprefix("by ")
    return f"Use {way}{cap}"


def order_of_starts(sharing: Sharing, names: Sequence[str]) -> str:
    """Return the order in which jobs start on one GPU, as a sentence; empty if it has none."""
    jobs = len(names)
    if sharing.mode == "serial" or not (one_by_one(sharing) or with_a_queue(sharing, jobs)):
        return ""
    turns = [names[at] for run in running_together(sharing, jobs) for at in run]
    return f"The jobs start in this order: {in_order(turns)}."


def _way(sharing: Sharing, names: Sequence[str]) -> str:
    """How several jobs, in the order of their starts, share the whole GPU, or one has it alone."""
    if isinstance(sharing, Queue):
        return f"{_way(sharing.sharing, names)}, at most {sharing.at_once} at a time"
    if len(limits := sorted({*sharing.limits}, reverse=True)) > 1:
        pairs = list(zip(names, sharing.limits, strict=True))
        capped = [
            f"{_listed([name for name, own in pairs if own == each])} capped at {each:g} %"
            for each in limits
            if each < 100
        ]
        return f"under MPS, {', '.join(capped)} of the SMs"
    match sharing.mode:
        case "serial":
            return "alone"
        case "naive":
            return "by time-slicing"
        case "mps":
            return "under MPS"
        case _:
            return f"under MPS, each capped at {sharing.limits[0]:g} % of the SMs"


def _listed(names: Sequence[str]) -> str:
    *others, last = each_counted(names)
    return f"{', '.join(others)} and {last}" if others else last


def fleet_instruction(advised: Recommendation) -> str:
    """Return what to do with many jobs or several GPUs, as a person says it."""
    plan = advised.best
    caps_w = " or ".join(f"{cap_w:g}" for cap_w in plan.power_caps_w)
    cap = f", at most {caps_w} W a GPU" if caps_w else ""
    if len(advised.jobs) == 1:
        return f"Nothing to share: run the job alone{cap}"
    where = "" if advised.gpus == 1 else " on each"
    gpus = " and ".join(map(str, advised.hosts)) if where else with_article(advised.gpu.key)
    jobs = f"the {len(advised.jobs)} jobs on {gpus}"
    most_in_all = max(len(on.members) for on in plan.gpus)
    most = max(
        each.at_once if isinstance(each, Group) else len(each.jobs)
        for on in plan.gpus
        for each in groups_of(on.sharing, len(on.members))
    )
    if most == 1:
        turns = "one at a time on each" if where else "one after another"
        turns = "each alone" if most_in_all == 1 else turns
        return f"Don't share: run {jobs}, {turns}{cap}"
    if most_in_all == most:
        turns = f"up to {most} together{where}"
    elif plan.way == "queue":
        turns = f"at most {most} at once{where}, the next as one ends"
    else:
        turns = f"in {'groups' if plan.way == 'exact' else 'batches'} of up to {most}{where}"
    return f"Run {jobs}{_common_way(plan)}, {turns}{cap}"


def _common_way(plan: Plan) -> str:
    """How jobs share a GPU, if all do so in one way, or that some are on MIG instances."""
    if any(on.sharing.instances for on in plan.gpus):
        return " on MIG instances"
    modes = {
        part.sharing.mode
        for on in plan.gpus
        for group in groups_of(on.sharing, len(on.members))
        for part in group.partitions
        if len(part.jobs) > 1
    }
    ways = {
        "mps": " under MPS",
        "mps-limits": " under MPS with limits",
        "naive": " by time-slicing",
    }
    return ways[modes.pop()] if len(modes) == 1 else ""


def _all_done(advised: Recommendation, plan: Plan) -> str:
    """The time of all jobs where plans are ranked by something else."""
    before_s, done_s = advised.serial.makespan_interval_s, plan.makespan_interval_s
    if advised.ranked_by == "makespan" or before_s is None or done_s is None:
        return ""
    before, done = units.duration(before_s.p50), units.duration(done_s.p50)
    return f"; all done in {done}" + (f" instead of {before}" if before != done else "")
