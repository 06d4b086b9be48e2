"""The recommendation in sentences and as JSON: plan, gain, certainty, alternatives, notes."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from advisor.errors import counted, with_article
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.precedence import rule_in_words, starved
from advisor.plan.ranking import Verdict, verdict
from advisor.plan.reasons import HostBound, named, slowed
from advisor.plan.rules import TOO_SLOW
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.memory import pools_of
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import without_utilisation
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import way_advised
from advisor.sharing import Mps, Naive
from advisor.sharing.groups import one_by_one

_NOTICEABLE_STRETCH = 1.05  # of the host's work; smaller ones get no sentence
_NOTICEABLE_SPEEDUP = 1.05  # of a job under a tied plan
_TOGETHER = (str(Naive()), str(Mps()))
_MOST_NAMED = 2  # jobs with too little time
_NEGLIGIBLE_LENGTH = 0.01  # of the longest job's
_BY_LENGTHS: tuple[ObjectiveName, ...] = ("makespan", "mean-completion", "deadlines", "energy")


def answer(advised: Recommendation) -> str:
    """Return the sentences of `paragraphs` as one text."""
    return " ".join(paragraphs(advised))


def paragraphs(advised: Recommendation, *, hints: bool = True) -> tuple[str, ...]:
    """Return a recommendation in paragraphs: advice and gain, certainty, alternatives, notes.

    Without `hints`, slow hosts are left out unless they come first, and so are the job that a tied
    plan runs faster and the rule by which the best plan comes first.
    """
    best, summary = advised.best, verdict(advised)
    host_first = "fix-host-first" in summary.answers
    hosts = []
    if summary.host_bound and (hints or host_first):
        hosts = [_host_path(summary.host_bound, first=host_first)]
    plan = [_advice(advised)]
    if slow := starved(best, advised.level):
        jobs = slowed([(advised.jobs[at].name, times) for at, times in slow.items()])
        plan.append(f"While all run, {jobs}.")
    plan += [*_deadline_sentences(advised), _interval_sentence(advised)]
    plan += _alternatives(advised, summary, hints=hints)
    notes = [*filter(None, [forecast.with_estimates_named(advised.standing, "")])]
    if (stretch := best.prediction.host_stretch) > _NOTICEABLE_STRETCH:
        notes.append(f"Too few CPU cores: work on the CPU takes {units.number(stretch)}x as long.")
    notes += _lengths_apart(advised)
    if advised.note:
        notes.append(f"Ranked by {advised.ranked_by}: {advised.note}.")
    if (cap_w := best.prediction.power_cap_w) is not None:
        notes.append(forecast.cap_note(cap_w))
    return tuple([*hosts, *plan, *notes] if host_first else [*plan, *hosts, *notes])


def metric_cards(advised: Recommendation) -> list[tuple[str, str, str]]:
    """Return figures of the best plan by medians: title, value, and a value to compare with."""
    mix, shown = advised.best.prediction, forecast.shown_cost(advised.ranked_by)
    cost, serial = (_cost(advised, plan).p50 for plan in (advised.best, advised.serial))
    power_w = None if mix.power_w is None else _exactly(mix.power_w.p50)
    limit_w = mix.power_cap_w or advised.gpu.power_limit_w
    measure = OBJECTIVES[advised.ranked_by].measure.capitalize()
    return [
        (measure, shown(_exactly(cost)), f"serial {shown(_exactly(serial))}"),
        ("Gain over serial", _gain_text(advised), forecast.short_basis(mix)),
        ("Memory", units.held(mix), _memory_left(advised).removeprefix("; ")),
        ("Power", units.watts(power_w), f"limit {limit_w:g} W" if limit_w else "limit not known"),
    ]


def _cost(advised: Recommendation, plan: Plan) -> Interval:
    return known_cost(plan, advised.ranked_by)


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)


def _advice(advised: Recommendation) -> str:
    best, jobs = advised.best, len(advised.jobs)
    if jobs == 1:
        makespan = best.makespan_interval_s
        done = "" if makespan is None else f", done in {units.duration(makespan.p50)}"
        where = with_article(advised.gpu.key)
        return f"Nothing to share: one job on {where}{done}{_memory_left(advised)}."
    cap_w = forecast.chosen_cap_w(advised, best)
    text = f"{way_advised(best.sharing, jobs)} on {with_article(advised.gpu.key)}"
    text += "" if cap_w is None else f", at most {cap_w:g} W"
    text += "" if best.prediction.confirmed_on_hardware else ", estimated"
    text += f": {_outcome(advised)}{_memory_left(advised)}."
    if unknown := _may_lose(advised):
        text += (
            f" Whether sharing is worthwhile depends on the GPU utilization of "
            f"{', '.join(unknown)}, which is unknown: read it in `nvidia-smi` while the job runs "
            f"alone, and add it by `advisor profile --from-numbers` with --gpu-utilization."
        )
    together = [each for each in advised.left_out if each.sharing in _TOGETHER]
    if together and all(one_by_one(plan.sharing) for plan in advised.plans):
        why = together[0].why
        text += (
            f" All at once{' ' if why.startswith(('does not fit', 'leaves no')) else ': '}{why}."
        )
    return text


def _may_lose(advised: Recommendation) -> tuple[str, ...]:
    """Jobs without a known utilisation, if it decides whether the best plan beats serial."""
    if one_by_one(advised.best.sharing) or forecast.gain(advised, advised.best).p05 >= 1:
        return ()
    return without_utilisation([job.profile for job in advised.jobs])


def _outcome(advised: Recommendation) -> str:
    """Cost and gain of the best plan, in medians or, if it may lose, in ranges."""
    plan, by = advised.best, OBJECTIVES[advised.ranked_by]
    cost, shown = _cost(advised, plan), forecast.shown_cost(advised.ranked_by)
    makespan = plan.makespan_interval_s
    done = "as long as it takes" if makespan is None else units.duration(makespan.p50)
    if one_by_one(plan.sharing):
        return f"all done in {done}"
    if _may_lose(advised):
        return by.headline(cost, shown(cost), _gain_text(advised))
    headline = by.headline(cost, shown(_exactly(cost.p50)), _gain_text(advised))
    if by.then is not None:
        return f"{headline}; all done in {done}"
    saved = _cost(advised, advised.serial).p50 - cost.p50
    if by.unit == "ratio" or saved <= 0:
        return headline
    return f"{headline}, saves {shown(_exactly(saved))}"


def _gain_text(advised: Recommendation) -> str:
    """The median gain of the best plan over serial, or its range if the plan may lose."""
    better = forecast.gain(advised, advised.best)
    if _may_lose(advised):
        return f"{units.number(better.p05)}x to {units.number(better.p95)}x"
    return units.times(_exactly(better.p50))


def _memory_left(advised: Recommendation) -> str:
    """Memory left in the fullest partition when each job holds its upper end."""
    mix = advised.best.prediction
    held_mib = [each.memory_interval_mib.p95 for each in mix.jobs]
    together = max if mix.sharing.mode in ("serial", "phases") else sum
    left_mib = min(
        pool.capacity_mib - together([held_mib[job] for job in pool.jobs])
        for pool in pools_of(mix, advised.gpu)
    )
    if left_mib < 0:
        return "; fits if each job's memory is capped"
    return f"; fits with {units.gib_of(left_mib)} to spare"


def _interval_sentence(advised: Recommendation) -> str:
    best, better = advised.best, forecast.gain(advised, advised.best)
    ranges = forecast.shown_cost(advised.ranked_by)(_cost(advised, best))
    if advised.ranked_by != "makespan":  # which the first line calls "all done in"
        ranges = f"{OBJECTIVES[advised.ranked_by].measure} {ranges}"
    if better.p05 < better.p95:
        ranges += f", gain {units.times(better)}"
    basis, host = forecast.basis(best.prediction), forecast.host_note(advised.standing)
    return f"90 % interval: {ranges}; {basis}. {host}"


def _alternatives(advised: Recommendation, summary: Verdict, *, hints: bool) -> list[str]:
    """The plans that tie with the best; else how far behind the next one is."""
    ties = [plan for plan in advised.plans[1:] if plan.ties_best]
    if not ties:
        if (gap := summary.next_behind) is None:
            return []
        runner_up = advised.plans[1]
        name = "Sharing at its best" if "dont-share" in summary.answers else "The next"
        behind = f"{abs(gap):.0%} {'ahead' if gap < 0 else 'behind'}"
        by = _deciding_rule(advised)
        kind = forecast.plan_kind(advised, runner_up)
        return [f"{name}, {runner_up.rank} ({kind}), is {behind}, more than our error{by}."]
    confirmed = next((plan for plan in ties if plan.prediction.confirmed_on_hardware), None)
    shown = [plan for plan in ties if plan in ties[:3] or plan in (advised.serial, confirmed)]
    text = ", ".join(f"{plan.rank} ({forecast.plan_kind(advised, plan)})" for plan in shown)
    text += f" and {len(ties) - len(shown)} more" if len(ties) > len(shown) else ""
    text += _faster_job(advised.best, shown) if hints else ""
    if confirmed is not None and not advised.best.prediction.confirmed_on_hardware:
        text += f"; real runs confirm {confirmed.rank}, but not 1"
    return [f"Statistically tied: {text}{_deciding_rule(advised) if hints else ''}."]


def _faster_job(best: Plan, ties: Sequence[Plan]) -> str:
    """The job that a tied plan speeds up most, among plans that share throughout."""
    offers = [
        (own.step_s.p50 / other.step_s.p50, plan.rank, own.job)
        for plan in ties
        if plan.sharing.mode not in ("serial", "phases")
        for own, other in zip(best.prediction.jobs, plan.prediction.jobs, strict=True)
    ]
    times, rank, job = max(offers, default=(0.0, 0, ""))
    if times < _NOTICEABLE_SPEEDUP or best.sharing.mode in ("serial", "phases"):
        return ""
    return f"; {rank} runs {job} {times:.2f}x as fast while all run"


def _deciding_rule(advised: Recommendation) -> str:
    """The rule by which the best plan precedes the cheapest, if that is another plan."""
    rule = advised.best.precedes_by
    return "" if rule in (None, "cost") else f"; 1 is first {rule_in_words(rule, advised.level)}"


def _host_path(jobs: Sequence[HostBound], *, first: bool) -> str:
    """The CPU-bound jobs, and how much faster a measured variant was."""
    parts = []
    for job in jobs:
        parts.append(f"kernels run in {job.gpu_share:.0%} of a step of {job.job} alone")
        if job.variant is not None and job.variant_step_s is not None:
            parts[-1] += (
                f" ({job.variant} was measured at {units.duration(job.variant_step_s)} a step "
                f"instead of {units.duration(job.step_s)})"
            )
    lead = "Reduce CPU time first" if first else "CPU-bound"
    return (
        f"{lead}: {'; '.join(parts)}. To test torch.compile, a CUDA graph or more loader workers, "
        f"profile the job with it and compare the two profiles."
    )


def _deadline_sentences(advised: Recommendation) -> Iterator[str]:
    """Sentences about the deadlines of the best plan, and about what a protected job rules out."""
    best = advised.best
    if any(job.deadline_s is not None for job in advised.jobs):
        by_deadlines = advised.ranked_by == "deadlines" and not one_by_one(best.sharing)
        if best.late_jobs:
            yield _missed(advised)
        elif not by_deadlines:  # else the first sentence contains it
            yield "Plan 1 keeps every deadline."
        unsure = [advised.jobs[at].name for at in sorted(best.late("p95") - best.late("p50"))]
        due = sum(bool(job.deadline_s) for job in advised.jobs)
        late = f"its interval {named(unsure)} is late"
        if len(unsure) == due > 1:
            late = f"their intervals {'both' if due == 2 else 'all'} are late"
        elif len(unsure) > 1:
            late = f"their intervals {named(unsure)} are late"
        if unsure:
            yield f"That is by medians: at the upper end of {late}."
    slow = (each for each in advised.left_out if each.why == TOO_SLOW)
    yield from (f"{each.sharing} left out: {each.why}." for each in slow)


def _missed(advised: Recommendation) -> str:
    late = named([advised.jobs[number - 1].name for number in advised.best.late_jobs])
    punctual = next((plan for plan in advised.plans if not plan.late_jobs), None)
    if punctual is not None:
        rest = f"; plan {punctual.rank} keeps every deadline: --objective deadlines."
        return f"Plan 1 is too late for {late}{rest}"
    needs: dict[str, None] = {}  # of jobs, copies once, that are late even alone
    for job, mix in zip(advised.jobs, advised.serial.prediction.jobs, strict=True):
        alone_s = (job.work_steps or 0.0) * mix.paced_s.at(advised.level)
        if job.deadline_s is not None and alone_s > job.deadline_s:
            times = f"{units.duration(alone_s)} even alone, due in {units.duration(job.deadline_s)}"
            needs[f"{job.name} needs {times}"] = None
    why = "; ".join(list(needs)[:_MOST_NAMED])
    allow = f"{why}. Allow" if why else "allow"
    return (
        f"Plan 1 is too late for {late}, and no plan keeps every deadline: {allow} more time, or "
        f"take a job out."
    )


def _lengths_apart(advised: Recommendation) -> Iterator[str]:
    """That the shortest job is negligible next to the longest, if their lengths count."""
    lengths_s = [job.alone_s for job in advised.jobs if job.alone_s is not None]
    if advised.ranked_by not in _BY_LENGTHS or len(lengths_s) < len(advised.jobs):
        return
    least_s, most_s = min(lengths_s), max(lengths_s)
    share = least_s / (most_s or 1.0)
    if share >= _NEGLIGIBLE_LENGTH:
        return
    jobs = (advised.jobs[lengths_s.index(length_s)] for length_s in (least_s, most_s))
    one, other = (f"{job.name} ({counted(job.epochs, 'epoch')})" for job in jobs)
    yield (
        f"Lengths differ: {one} is {100 * share:.2g}% of {other}, so how they share "
        f"hardly counts. The default is 1 epoch; set others by `NAME@EPOCHS`."
    )


def recommendation_document(advised: Recommendation, top: int | None = None) -> dict[str, Any]:
    """Return what ``advisor recommend --json`` prints.

    `workloads` defines each name, so that ``advisor runs`` can run the `top`
    plans, by default all, on a machine without the profiles.
    """
    summary = verdict(advised)
    runner_up = advised.plans[1] if len(advised.plans) > 1 else None
    return {
        "schema": forecast.SCHEMA, "gpu": advised.gpu.key, "objective": advised.objective,
        "ranked_by": advised.ranked_by, "note": advised.note,
        **forecast.standing_document(advised.standing),
        "verdict": {
            "answers": list(summary.answers), "text": answer(advised),
            "binding": forecast.binding_document(summary.binding),
            "runner_up": None if runner_up is None else {
                "rank": runner_up.rank, "sharing": str(runner_up.sharing),
                "behind": summary.next_behind, "within_error": runner_up.ties_best,
            },
            "host_bound": [asdict(each) for each in summary.host_bound],
        },
        "workloads": forecast.workloads_document(advised.jobs),
        "epochs": [job.epochs for job in advised.jobs],
        "serial": _plan_document(advised, advised.serial),
        "plans": [_plan_document(advised, plan) for plan in advised.plans[:top]],
        "left_out": [asdict(each) for each in advised.left_out], "searched": advised.searched,
    }  # fmt: skip


def _plan_document(advised: Recommendation, plan: Plan) -> dict[str, Any]:
    own = {
        "rank": plan.rank, "ties_best": plan.ties_best, "late": list(plan.late_jobs),
        "precedes_by": plan.precedes_by, "commands": list(plan.commands), "why": plan.why,
    }  # fmt: skip
    jobs = [
        forecast.job_document(job) | forecast.request_document(request)
        for job, request in zip(plan.prediction.jobs, advised.jobs, strict=True)
    ]
    return own | forecast.forecast_fields(plan) | {"jobs": jobs}
