"""Deadlines, protected jobs and lengths of jobs, in sentences."""

from collections.abc import Iterator

from advisor.english import counted
from advisor.plan import ObjectiveName
from advisor.plan.reasons import named
from advisor.plan.recommendation import Recommendation
from advisor.plan.rules import TOO_SLOW
from advisor.report import units
from advisor.sharing.traversal import one_by_one

# Jobs with too little time that are named at most.
_NAMED = 2
# A job that takes less than this share of the time of another is over before it counts.
_NOTHING = 0.01
_BY_LENGTHS: tuple[ObjectiveName, ...] = ("makespan", "mean-completion", "deadlines", "energy")


def promises(advised: Recommendation) -> Iterator[str]:
    """Whether the best plan keeps deadlines, and what a protected job rules out."""
    if any(job.deadline_s is not None for job in advised.jobs):
        if not _said_before(advised):
            yield _deadlines(advised)
        if risk := _risk(advised):
            yield risk
    for each in advised.left_out:
        if each.why == TOO_SLOW:
            yield f"{each.sharing} left out: {each.why}."


def lengths_apart(advised: Recommendation) -> Iterator[str]:
    """That the shortest job is next to nothing beside the longest, where their lengths count."""
    known = [job for job in advised.jobs if job.alone_s is not None]
    if advised.ranked_by not in _BY_LENGTHS or len(known) < len(advised.jobs):
        return
    by_length = sorted(known, key=lambda job: job.alone_s or 0.0)
    short, long = by_length[0], by_length[-1]
    share = (short.alone_s or 0.0) / (long.alone_s or 1.0)
    if share >= _NOTHING:
        return
    one, other = (f"{job.name} ({counted(job.epochs, 'epoch')})" for job in (short, long))
    yield (
        f"Lengths differ: {one} is {100 * share:.2g}% of {other}, so how they share "
        f"hardly counts. Epochs are 1 unless said: `NAME@EPOCHS`."
    )


def _said_before(advised: Recommendation) -> bool:
    """Whether the first sentence already says that all deadlines are kept."""
    best = advised.best
    shared = not one_by_one(best.sharing)
    return advised.ranked_by == "deadlines" and shared and not best.late_jobs


def _risk(advised: Recommendation) -> str | None:
    """Jobs that keep their deadlines in the median, but not at the upper end."""
    expected, at_worst = advised.best.late("p50"), advised.best.late("p95")
    if not (unsure := [advised.jobs[at].name for at in sorted(at_worst - expected)]):
        return None
    if len(unsure) > 1 and len(unsure) == len(due := [j for j in advised.jobs if j.deadline_s]):
        each = "both" if len(due) == 2 else "all"
        return f"That is by medians: at the upper end of their ranges {each} are late."
    late = "its range {} is late" if len(unsure) == 1 else "their ranges {} are late"
    return f"That is by medians: at the upper end of {late.format(named(unsure))}."


def _too_short(advised: Recommendation) -> list[str]:
    """Of each job, copies once, that not even alone ends before its deadline, what it needs."""
    said: dict[str, None] = {}
    for job, mix in zip(advised.jobs, advised.serial.prediction.jobs, strict=True):
        alone_s = (job.work_steps or 0.0) * mix.step_s.at(advised.level)
        if job.deadline_s is not None and alone_s > job.deadline_s:
            needs, due = units.duration(alone_s), units.duration(job.deadline_s)
            said[f"{job.name} needs {needs} even alone, due in {due}"] = None
    return list(said)


def _deadlines(advised: Recommendation) -> str:
    late = [advised.jobs[number - 1].name for number in advised.best.late_jobs]
    if not late:
        return "Under plan 1 every deadline is kept."
    missed = f"Plan 1 is too late for {named(late)}"
    punctual = next((plan for plan in advised.plans if not plan.late_jobs), None)
    if punctual is None:
        needs = "; ".join(_too_short(advised)[:_NAMED])
        why = f"{needs}. Allow" if needs else "allow"
        return f"{missed}, and no plan keeps every deadline: {why} more time, or take a job out."
    return f"{missed}; plan {punctual.rank} keeps every deadline: --objective deadlines."
