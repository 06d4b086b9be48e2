"""The recommendation in sentences: plan, gain, certainty, alternatives, notes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from advisor.errors import counted, in_percent, with_article
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, known_cost, starved
from advisor.plan.ranking import rule_in_words, verdict
from advisor.plan.reasons import SEEN, named, slowed
from advisor.plan.rules import TOO_SLOW
from advisor.plan.values import GpuPlan, Plan, Recommendation
from advisor.prediction.memory import pools_of
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import without_utilisation
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.format import each_counted, in_order, places, short_names
from advisor.sharing import Group, Mps, Naive, Queue, Sharing, parse_sharing
from advisor.sharing.groups import groups as groups_of
from advisor.sharing.groups import one_by_one, running_together

_NOTICEABLE_STRETCH = 1.05  # of the host's work; smaller ones get no sentence
_TOGETHER = (str(Naive()), str(Mps()))
_RISKY = 0.01  # a smaller risk of running out of memory is not worth a sentence
_NO_ROOM = "does not fit: "
_MOST_NAMED = 2  # jobs with too little time
_NEGLIGIBLE_LENGTH = 0.01  # of the longest job's
_BY_LENGTHS: tuple[ObjectiveName, ...] = ("makespan", "mean-completion", "deadlines", "energy")


def answer(advised: Recommendation) -> str:
    """Return the sentences of `paragraphs` as one text."""
    return " ".join(paragraphs(advised))


def paragraphs(advised: Recommendation) -> tuple[str, ...]:
    """Return a recommendation in paragraphs: what to do, what it brings, what to know, a hint."""
    return (*opening(advised), *caveats(advised), *hints(advised))


def opening(advised: Recommendation) -> Iterator[str]:
    """Yield deadlines that no plan keeps, what to do, what it brings, and what is not possible."""
    yield from forecast.deadlines_missed(advised)
    best = advised.best
    names = [job.name for job in advised.jobs]
    yield f"{fleet_instruction(advised) if best.way else instruction(best, names)}."
    yield f"{outcome(advised)}{forecast.ranking_note(advised.level)}"
    sure = None
    if not best.one_by_one and best.gain.p05 < 1:
        sure = next((plan for plan in advised.plans if plan.gain.p05 > 1), None)
    if sure is not None:
        named = f"{forecast.plan_name(advised, sure)}: {units.times(sure.gain)}"
        yield f"To be sure of a gain, take {named}."
    uses = [(on.gpu, on.sharing) for plan in (best, sure or best) for on in plan.gpus]
    yield from forecast.layout_needs(uses, advised.serial.sharing)


def instruction(plan: Plan, names: Sequence[str], *, in_short: bool = False) -> str:
    """Return what to do, as a person says it; `names` are those of the jobs in order.

    In short, it is without the order of a queue.
    """
    sharing, jobs = plan.sharing, len(names)
    if jobs == 1:
        return "Nothing to share: one job"
    every_job = "both jobs" if jobs == 2 else f"all {jobs} jobs"
    cap_w = plan.prediction.power_cap_w
    cap = "" if cap_w is None else f", at most {cap_w:g} W"
    if one_by_one(sharing):
        order = [names[at] for group in running_together(sharing, jobs) for at in group]
        turns = "" if sharing.mode == "serial" else f": {', then '.join(order)}"
        return f"Don't share: run {every_job} one after another{turns}{cap}"
    runs = []
    for group in groups_of(sharing, jobs):
        own = [names[number - 1] for number in group.jobs]
        way = _way(group.sharing, own, in_short) if isinstance(group, Group) else "on MIG instances"
        runs.append(f"{every_job if len(own) == jobs else _listed(own)} {way}")
    if len(runs) > 1:
        return f"Run {', then '.join(runs)}{cap}"
    if sharing.instances:
        return f"Use MIG, {places(sharing, names)}{cap}"
    way = runs[0].removeprefix(f"{every_job} ").removeprefix("under ").removeprefix("by ")
    return f"Use {way}{cap}"


def _way(sharing: Sharing, names: Sequence[str], in_short: bool = False) -> str:
    """How several jobs, in the order of their starts, share the whole GPU, or one has it alone."""
    if isinstance(sharing, Queue):
        way = f"{_way(sharing.sharing, names)}, at most {sharing.at_once} at a time"
        return way if in_short else f"{way} in this order: {in_order(names)}"
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


def outcome(advised: Recommendation) -> str:
    """Return what the best plan costs and gains over one after another, with ranges."""
    plan, by = advised.best, OBJECTIVES[advised.ranked_by]
    shown, time = forecast.shown_cost(advised.ranked_by), _all_done(advised, plan)
    where = f" on {with_article(advised.gpu.key)}"
    if plan.way:  # what to do has named the GPUs
        where = ""
        if by.name == "throughput":
            turns = "one after another" if advised.gpus == 1 else "one at a time"
            where = f" over {turns}"
    if by.name == "throughput" and plan.rank != advised.serial.rank:
        return f"Gain in throughput {units.times(plan.gain)}{where}{time}."
    words = shown(_cost(advised, plan))
    if by.name != "makespan":
        words = f"{by.measure.capitalize()} {words}"
    if plan.rank == advised.serial.rank:
        gained = forecast.best_gain(advised)
        return f"{words}{where}{time}{f'; {gained}' if gained else ''}."
    before = units.middle(_cost(advised, advised.serial), shown)
    return f"{words} instead of {before}{where}: gain {units.times(plan.gain)}{time}."


def _all_done(advised: Recommendation, plan: Plan) -> str:
    """The time of all jobs where plans are ranked by something else."""
    before_s, done_s = advised.serial.makespan_interval_s, plan.makespan_interval_s
    if advised.ranked_by == "makespan" or before_s is None or done_s is None:
        return ""
    before, done = units.duration(before_s.p50), units.duration(done_s.p50)
    return f"; all done in {done}" + (f" instead of {before}" if before != done else "")


def _cost(advised: Recommendation, plan: Plan) -> Interval:
    return known_cost(plan, advised.ranked_by)


def missing_ways(advised: Recommendation) -> Iterator[str]:
    """Yield why jobs cannot share the whole GPU at once, by time-slicing or under MPS."""
    ways: dict[str, list[tuple[str, str]]] = {}
    for each in advised.left_out:
        if each.sharing in _TOGETHER:
            way = units.way_of(parse_sharing(each.sharing), len(advised.jobs))
            ways.setdefault(each.why.partition(":")[0], []).append((way, each.why))
    for same in ways.values():
        yield f"No {' or '.join(way for way, _ in same)}: {same[0][1].removeprefix(_NO_ROOM)}."


def caveats(advised: Recommendation) -> Iterator[str]:
    """Yield notes on the best plan, the most important first."""
    best, standing = advised.best, advised.standing
    if best.way:
        yield from (caveat(advised), *effort(advised))
        return
    yield from _deadline_sentences(advised)
    if slow := starved(best, advised.level):
        jobs = slowed([(advised.jobs[at].name, times) for at, times in slow.items()])
        yield f"While all run, {jobs}."
    if advised.note:
        yield f"Ranked by {advised.ranked_by}: {advised.note}."
    unknown = without_utilisation([job.profile for job in advised.jobs])
    if unknown and not best.one_by_one and best.gain.p05 < 1:
        yield (
            "Whether sharing is worthwhile depends on the GPU utilisation of "
            f"{', '.join(unknown)}, which is unknown. Read it in `nvidia-smi` while the job runs "
            "alone. Add it: `advisor profile --from-numbers` with --gpu-utilization."
        )
    yield from missing_ways(advised)
    if memory_left_mib(advised) < 0:
        yield "It fits because each job's memory is capped."
    yield from _faster(advised)
    yield from filter(None, [forecast.with_estimates_named(standing, "")])
    if (stretch := best.prediction.host_stretch) > _NOTICEABLE_STRETCH:
        yield f"Too few CPU cores: CPU work takes {units.number(stretch)}x as long."
    yield from _lengths_apart(advised)
    if (cap_w := best.prediction.power_cap_w) is not None:
        yield forecast.cap_note(cap_w)
    if not best.prediction.confirmed_on_hardware:
        yield f"It is {forecast.NOT_CONFIRMED}."
    yield forecast.host_note(standing)


def _deadline_sentences(advised: Recommendation) -> Iterator[str]:
    """Sentences about the deadlines of the best plan, and about what a protected job rules out."""
    best = advised.best
    if any(job.deadline_s is not None for job in advised.jobs):
        by_deadlines = advised.ranked_by == "deadlines" and not best.one_by_one
        if best.late_jobs:
            yield _missed(advised)
        elif not by_deadlines:  # else the first sentence contains it
            yield "Plan 1 keeps every deadline."
        unsure = [advised.jobs[at].name for at in sorted(best.late("p95") - best.late("p50"))]
        due = sum(bool(job.deadline_s) for job in advised.jobs)
        late = f"its interval, {named(unsure)} is late"
        if len(unsure) == due > 1:
            late = f"their intervals, {'both' if due == 2 else 'all'} are late"
        elif len(unsure) > 1:
            late = f"their intervals, {named(unsure)} are late"
        if unsure:
            yield f"These are medians: at the upper end of {late}."
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
    return f"Plan 1 is too late for {late}: {allow} more time, or leave a job out."


def _faster(advised: Recommendation) -> Iterator[str]:
    """The plan that costs least, where a simpler one is recommended."""
    cheapest = min(advised.plans, key=lambda plan: _cost(advised, plan).at(advised.level))
    ratio = _cost(advised, cheapest).p50 / _cost(advised, advised.best).p50
    if cheapest is not advised.best and 1 - ratio >= SEEN:
        rule = advised.best.precedes_by
        why = ": a tie" if cheapest.ties_best else ": too little for a more complex plan"
        if rule not in (None, "cost", "simplicity"):
            why = f", but plan 1 is first {rule_in_words(rule, advised.level)}"
        saving = OBJECTIVES[advised.ranked_by].saving.format(
            less=in_percent(1 - ratio, 1), more=in_percent(1 / ratio - 1, 1)
        )
        yield f"{forecast.plan_name(advised, cheapest)} {saving} in the median{why}."


def memory_left_mib(advised: Recommendation) -> float:
    """Return the memory left in the fullest partition when each job holds its upper end."""
    mix = advised.best.prediction
    held_mib = [each.memory_interval_mib.p95 for each in mix.jobs]
    return min(
        pool.capacity_mib - pool.most_mib(held_mib[job] for job in pool.jobs)
        for pool in pools_of(mix, advised.gpu)
    )


def _lengths_apart(advised: Recommendation) -> Iterator[str]:
    """A note if the shortest job is negligible next to the longest, and their lengths count."""
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
        f"Lengths differ: {one} is {100 * share:.2g} % of {other}, so how they share "
        f"hardly counts. The default is 1 epoch; set others by `NAME@EPOCHS`."
    )


def caveat(advised: Recommendation) -> str:
    """Return the most important note on the best plan."""
    if estimates := forecast.with_estimates_named(advised.standing, ""):
        return estimates
    if not advised.best.confirmed_on_hardware:
        return f"It is {forecast.NOT_CONFIRMED}."
    return forecast.host_note(advised.standing)


def effort(advised: Recommendation) -> Iterator[str]:
    """Yield a hint where a longer search may find a better plan."""
    if advised.longer_effort is not None:
        yield f"--effort {advised.longer_effort:g} searches longer."


def gpu_notes(advised: Recommendation) -> Iterator[str]:
    """Yield risks and unused parts: late jobs, memory, GPUs and MIG slices."""
    plan = advised.best
    if plan.late_jobs:
        yield f"Late: {named([advised.jobs[number - 1].name for number in plan.late_jobs])}."
    elif any(job.deadline_s is not None for job in advised.jobs):
        yield "It keeps every deadline."
    if (risk := plan.oom_probability) > _RISKY:
        yield f"Risk of running out of memory on the fullest GPU: {units.share(risk)}."
    busy = Counter(on.gpu.key for on in plan.gpus)
    unused = [(count.gpus - busy[str(count.gpu)], count.gpu) for count in advised.hosts]
    if idle := " and ".join(f"{count} {key}" for count, key in unused if count):
        yield f"Unused: {idle}."
    slices: dict[int, list[int]] = {}
    for on in plan.gpus:
        slices.setdefault(_slices_unused(on), []).append(on.number)
    for count, gpus in slices.items():
        if count:
            yield f"Unused on GPU {units.numbers(gpus)}: {counted(count, 'MIG slice')}."
    users = {job.user for job in advised.jobs}
    if len(users) > 1:
        yield "MPS serves one user at a time: jobs of different users do not share it."
    if advised.note:
        yield f"Ranked by {advised.ranked_by}: {advised.note}."


def _slices_unused(on: GpuPlan) -> int:
    """MIG slices of a GPU without a job all the time; none if it runs a job without MIG."""
    of_profile = {each.name: each.compute_slices for each in on.gpu.mig}
    used = [
        sum(of_profile[each.profile] for each in group.instances) if group.instances else 0
        for group in groups_of(on.sharing, len(on.members))
    ]
    return max(of_profile.values()) - max(used) if all(used) else 0


def hints(advised: Recommendation) -> Iterator[str]:
    """Yield hints that would gain more than sharing: less CPU time of host-bound jobs."""
    yield from forecast.loader_notes(advised.one_loader)
    summary, parts = verdict(advised), list[str]()
    if "fix-host-first" not in summary.answers:
        return
    for job in summary.host_bound:
        parts.append(f"{job.job} keeps the GPU busy for {in_percent(job.gpu_share)} of a step")
        if job.variant is not None and job.variant_step_s is not None:
            parts[-1] += f" ({job.variant}: {units.duration(job.variant_step_s)} a step)"
    yield f"Less CPU time would gain more (torch.compile, loader workers): {'; '.join(parts)}."


def another_layout_text(advised: Recommendation, other: Plan) -> str:
    """Return the gain of the plan `other`, in another MIG layout or with MIG mode off."""
    ratio = _cost(advised, other).p50 / _cost(advised, advised.best).p50
    return (
        f"With root, the best plan is {other.notation}: {ratio:.2f}x the "
        f"{OBJECTIVES[advised.ranked_by].measure} of plan 1 here. --root ranks all plans."
    )


def headline(advised: Recommendation, plan: Plan) -> str:
    """Return what to do under `plan` and what it costs instead, in one line, with short names."""
    short = short_names(job.name for job in advised.jobs)
    first = instruction(plan, [short[job.name] for job in advised.jobs], in_short=True)
    cost, serial = (_cost(advised, each) for each in (plan, advised.serial))
    if advised.ranked_by == "deadlines":
        part = f"the tightest job ends after {cost.p50:.0%} of its time"
        return f"{first}: {part}{_all_done(advised, plan)}."
    if advised.ranked_by == "throughput":
        much = units.number(plan.gain.p50)
        gained = "" if cost.p50 == serial.p50 else f": {much}x the work in an hour"
        return f"{first}{gained}{_all_done(advised, plan)}."
    shown = forecast.shown_cost(advised.ranked_by)
    after, before = (units.middle(each, shown) for each in (cost, serial))
    if before != after:
        number, _, unit = before.partition(" ")
        after += f" instead of {number if unit == after.partition(' ')[2] else before}"
    each = " until a job ends, on average" if advised.ranked_by == "mean-completion" else ""
    return f"{first}: {after}{each}{_all_done(advised, plan)}."


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


def certainty(advised: Recommendation, plan: Plan) -> str:
    """Return how sure the gain of `plan` is, in one line; or which deadline it misses."""
    if plan.late_jobs:
        rows = zip(plan.predictions, plan.ends_s or (), plan.deadlines_s, strict=True)
        late_s, latest = max((end_s.p50 - due_s, job.job) for job, end_s, due_s in rows if due_s)
        others = len(plan.late_jobs) - 1
        more = f"; {counted(others, 'other job')} late" if others else ""
        punctual = (each for each in advised.plans if not each.late_jobs)
        keeps = next((forecast.plan_name(advised, each) for each in punctual), "No plan")
        return (
            f"{latest} ends {units.duration(late_s)} after its deadline{more}. "
            f"{units.shortened(keeps)} keeps every deadline."
        )
    better = plan.gain
    if plan.one_by_one:
        gained = forecast.best_gain(advised)
        return f"{gained[:1].upper()}{gained[1:]}." if gained else ""
    parts = [f"Gain {units.times(better)}"]
    if not plan.confirmed_on_hardware:
        parts.append(forecast.short_basis(plan.prediction))
    own, best = forecast.way_name(advised, plan), forecast.best_of_each_way(advised)
    ties = [way for way, each in best.items() if way != own and each.ties_best]
    if plan.ties_best and ties:
        every = len(ties) > 1 and len(ties) == len(best) - 1
        parts.append("all ways are tied" if every else f"tied with {', '.join(ties)}")
    return f"{'; '.join(parts)}."
