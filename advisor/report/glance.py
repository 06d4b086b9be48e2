"""A recommendation on one screen: the best plan in full, every other plan in a line."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from advisor.errors import counted
from advisor.plan import ObjectiveName
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.ranking import out_of_order, rule_in_words, verdict
from advisor.plan.reasons import HostBound, limit_in_words, named
from advisor.plan.rules import TOO_SLOW
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.prediction import JobPrediction
from advisor.prediction.predictor import briefly
from advisor.report import format as units
from advisor.report.forecast import (
    Letters,
    epoch,
    equal_jobs,
    gain,
    memory_held,
    plan_name,
    shown_cost,
)
from advisor.report.format import explained, fits, plain_table, words_of
from advisor.sharing.groups import kind_of, one_by_one

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.report.format import FittedTable

    pass


_MOST_OTHERS = 4


class _Report(Protocol):
    """Renders a recommendation with the plans given, with or without hints."""

    def __call__(self, shown: Sequence[Plan], *, hints: bool = True) -> "RenderableType": ...


def on_a_screen(advised: Recommendation, report: _Report) -> "RenderableType":
    """The `report` on the best plan and as many others as fit on a screen.

    The others are the best plan of each other kind of sharing, for readers who choose between
    kinds, then the next plans: 4 at most, besides serial and the best plan with MIG. Hints are left
    out where these two need the room.
    """
    wanted = [_with_others(advised, most) for most in range(_MOST_OTHERS, -1, -1)]
    least = _only(advised, advised.best, advised.serial)
    tried = [(shown, hints) for hints in (True, False) for shown in wanted]
    for shown, hints in (*tried, (least, True), (least, False)):
        if fits(report(shown, hints=hints)):
            return report(shown, hints=hints)
    return report([advised.best], hints=False)


def _with_others(advised: Recommendation, most: int) -> list[Plan]:
    """The best plan, the best with MIG, serial, and `most` others, one of each kind first."""
    with_mig = [plan for plan in advised.plans if plan.sharing.mode in ("mig", "hybrid")]
    firsts = {kind_of(plan.sharing): plan.rank for plan in reversed(advised.plans)}
    certain = _only(advised, advised.best, *with_mig[:1], advised.serial)
    others = [plan for plan in advised.plans if plan not in certain]
    others.sort(key=lambda plan: plan.rank not in firsts.values())
    return _only(advised, *certain, *others[:most])


def _only(advised: Recommendation, *plans: Plan) -> list[Plan]:
    """`plans` in the order of their ranks, each once."""
    unranked = [] if advised.serial in advised.plans else [advised.serial]
    return [plan for plan in (*advised.plans, *unranked) if plan in plans]


def at_a_glance(
    advised: Recommendation, shown: Sequence[Plan], letters: "Letters"
) -> "Iterator[RenderableType]":
    """The report on the plans `shown`, the best first."""
    from rich.padding import Padding
    from rich.text import Text

    best = advised.best
    mix, named = best.prediction, [letters[job.name][0] for job in advised.jobs]
    yield Text(f"1  {plan_name(advised, best)}: {explained(best.sharing, named)}", style="bold")
    yield Padding(_jobs_table(mix.jobs, letters), (0, 0, 0, 3), expand=False)
    brief = replace(mix, wide_because=mix.wide_because and briefly(mix.wide_because))
    binds = limit_in_words(brief, verdict(advised).binding)
    held = memory_held(best)
    held += "" if mix.power_w is None else f", {units.number(mix.power_w.p50)} W"
    yield Padding(f"{held}; {binds}", (0, 0, 1, 3), style="dim", expand=False)
    if len(shown) > 1:
        yield _others_table(advised, shown[1:])
    yield Text(_more(advised, shown))


def _jobs_table(jobs: Sequence[JobPrediction], letters: "Letters") -> "FittedTable":
    """Each job's time for an epoch under the best plan."""
    table = plain_table("", "job", "epoch while all run", "step vs alone")
    table.abreast, table.columns[1].no_wrap = 2, True
    for same in equal_jobs(jobs):
        letter, what = letters[same[0].job]
        slower = f"{units.number(same[0].slowdown)}x"
        copies = units.collapsed([letter] * len(same))
        table.add_row(copies, what, epoch(same[0]), slower)
    return table


def _others_table(advised: Recommendation, plans: Sequence[Plan]) -> "FittedTable":
    """A line for each of `plans`."""
    marked = _some_ran(advised)
    headings = ("or", OBJECTIVES[advised.ranked_by].measure, "gain", "memory")
    table = plain_table("", *headings, *([""] if marked else []))
    table.abreast, table.columns[1].overflow = 2, "fold"
    shown = shown_cost(advised.ranked_by)
    for plan in plans:
        mix = plan.prediction
        mark = "" if mix.confirmed_on_hardware else "estimated"
        table.add_row(
            str(plan.rank), plan_name(advised, plan),
            shown(known_cost(plan, advised.ranked_by)),
            f"{units.number(gain(advised, plan).p50)}x",
            units.gib_of(mix.memory_total_mib), *([mark] if marked else []),
        )  # fmt: skip
    return table


def _moved(advised: Recommendation, others: Sequence[Plan]) -> Iterator[str]:
    """Why lines are not in the order of the numbers in them."""
    for rule, pairs in out_of_order(advised, others).items():
        named = ", ".join(f"{earlier} before {later}" for earlier, later in pairs)
        yield f"{named} {rule_in_words(rule, advised.level)}."


def _some_ran(advised: Recommendation) -> bool:
    """Whether some plans are confirmed by runs; if none are, the first line says so."""
    return any(plan.prediction.confirmed_on_hardware for plan in advised.plans)


def _more(advised: Recommendation, shown: Sequence[Plan]) -> str:
    """How to read the lines of the other plans, and which options show more."""
    left = len(advised.plans) - len(shown)
    marked = shown[1:] if _some_ran(advised) else ()
    best = words_of(advised.best.sharing).notation  # which stands above with an example
    notations = dict.fromkeys(words_of(plan.sharing).notation for plan in shown[1:])
    unread = [each for each in notations if each not in ("", best)]
    said = [*_moved(advised, shown[1:])]
    said += [f"{'; '.join(unread)}."] if unread else []
    if advised.serial not in shown:  # a gain says little beside nothing that it is a gain over
        alone = shown_cost(advised.ranked_by)(known_cost(advised.serial, advised.ranked_by))
        said.append(f"{plan_name(advised, advised.serial)}: {alone}.")
    said += [f"{counted(left, 'more plan')}: --top {len(advised.plans)}."] if left else []
    if not all(plan.prediction.confirmed_on_hardware for plan in marked):
        said.append("Estimated: not confirmed on hardware.")
    full = "In full, with what was left out" if advised.left_out else "In full"
    return " ".join([*said, f"{full}: --details. Commands of plan 1: --commands 1."])


_MEASURE = (
    "To see what torch.compile, a CUDA graph or more loader workers bring, profile the job so and "
    "compare the two profiles."
)


def host_path(jobs: Sequence[HostBound], *, first: bool) -> str:
    """The jobs whose host path to shorten, and how much faster a measured variant was."""
    said = []
    for each in jobs:
        said.append(f"kernels run in {each.gpu_share:.0%} of a step of {each.job} alone")
        if each.variant is not None and each.variant_step_s is not None:
            said[-1] += (
                f" ({each.variant} was measured at {units.duration(each.variant_step_s)} a step "
                f"instead of {units.duration(each.step_s)})"
            )
    lead = "Make the host's part faster first" if first else "The host holds jobs back"
    return f"{lead}: {'; '.join(said)}. {_MEASURE}"


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
