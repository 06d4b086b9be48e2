"""The recommendation in sentences: plan, gain, certainty, alternatives, notes."""

from collections import Counter
from collections.abc import Iterator

from advisor.errors import counted, in_percent
from advisor.plan import ObjectiveName
from advisor.plan.objectives import starved
from advisor.plan.ranking import verdict
from advisor.plan.reasons import named, slowed
from advisor.plan.rules import TOO_SLOW
from advisor.plan.values import GpuPlan, Plan, Recommendation
from advisor.prediction.memory import pools_of
from advisor.prediction.predictor import without_utilisation
from advisor.report import forecast
from advisor.report import format as units
from advisor.report.headline import certainty, difference, headline, order_of_starts, why_first
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.sharing.groups import groups as groups_of

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
    """Yield deadlines that no plan keeps, what to do, how sure it is, and what it takes."""
    best = advised.best
    yield from forecast.deadlines_missed(advised)
    yield headline(advised, best)
    yield certainty(advised, best)
    if not best.way and (
        order := order_of_starts(best.sharing, [job.name for job in advised.jobs])
    ):
        yield order
    sure = None
    if not best.one_by_one and best.gain.p05 < 1:
        sure = next((plan for plan in advised.plans if plan.gain.p05 > 1), None)
    if sure is not None:
        named = f"{forecast.plan_name(advised, sure)}: {units.times(sure.gain)}"
        yield f"To be sure of a gain, take {named}."
    uses = [(on.gpu, on.sharing) for plan in (best, sure or best) for on in plan.gpus]
    yield from forecast.layout_needs(uses, advised.serial.sharing)


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
    yield from filter(None, [forecast.with_estimates_named(standing, "")])
    if (stretch := best.prediction.host_stretch) > _NOTICEABLE_STRETCH:
        yield f"Too few CPU cores: CPU work takes {units.number(stretch)}x as long."
    yield from _lengths_apart(advised)
    if (cap_w := best.prediction.power_cap_w) is not None:
        yield forecast.cap_note(cap_w)
    if not best.prediction.confirmed_on_hardware:
        yield f"It is {forecast.NOT_CONFIRMED}."
    yield forecast.host_note(standing)
    yield from filter(None, [why_first(advised)])


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
    """Return what a GPU would gain in another MIG layout, or with MIG mode off, as in `other`."""
    gap = difference(advised, other, advised.best)
    return (
        f"With root, the best plan is {other.notation}: {gap} than plan 1. --root ranks all plans."
    )
