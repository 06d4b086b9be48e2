"""A recommendation in sentences: what to do, the gain, how sure it is, and the alternatives."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.errors import InvalidInput, counted, is_or_are, with_article
from advisor.plan.objectives import OBJECTIVES, known_cost
from advisor.plan.ranking import Verdict, rule_in_words, starved, verdict
from advisor.plan.reasons import slowed
from advisor.plan.values import Plan, Recommendation
from advisor.prediction.memory import pools_of
from advisor.prediction.prediction import Interval
from advisor.prediction.predictor import without_utilisation
from advisor.report import format as units
from advisor.report.forecast import (
    Letters,
    basis,
    bounds_note,
    cap_note,
    chosen_cap_w,
    epoch,
    equal_jobs,
    gain,
    host_note,
    letters_of,
    memory_held,
    plan_kind,
    plan_name,
    short_basis,
    shown_cost,
    with_estimates_named,
)
from advisor.report.format import way_advised
from advisor.report.glance import at_a_glance, host_path, lengths_apart, on_a_screen, promises
from advisor.sharing import Mps, Naive
from advisor.sharing.groups import one_by_one

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.report.format import Cell

    pass


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


_FELT = 1.05
"""Host work that takes so many times as long is worth a sentence."""

_TREATED = 1.05
"""A job is treated better that is so many times as fast."""

_TOGETHER = (str(Naive()), str(Mps()))


def answer(advised: Recommendation) -> str:
    """The sentences of `paragraphs` as one text."""
    return " ".join(paragraphs(advised))


def paragraphs(advised: Recommendation, *, hints: bool = True) -> tuple[str, ...]:
    """A recommendation in paragraphs: advice and gain, certainty, alternatives, notes.

    Without `hints`, slow hosts are left out unless they come first, and so are which job an
    alternative treats better and by what rule the best plan comes first.
    """
    found = verdict(advised)
    host_first = "fix-host-first" in found.answers
    shown = bool(found.host_bound) and (hints or host_first)
    hosts = [host_path(found.host_bound, first=host_first)] if shown else []
    noted = [said] if (said := with_estimates_named(advised.standing, "")) else []
    if (stretch := advised.best.prediction.host_stretch) > _FELT:
        noted.append(
            f"The host has too few cores: its work takes {units.number(stretch)}x as long."
        )
    noted += lengths_apart(advised)
    if advised.note:
        noted.append(f"Ranked by {advised.ranked_by}: {advised.note}.")
    if (cap_w := advised.best.prediction.power_cap_w) is not None:
        noted.append(cap_note(cap_w))
    plan = [_advice(advised), *_starved(advised), *promises(advised), _how_sure(advised)]
    plan += _others(advised, found, hints=hints)
    return tuple([*hosts, *plan, *noted] if host_first else [*plan, *hosts, *noted])


def metric_cards(advised: Recommendation) -> list[tuple[str, str, str]]:
    """Figures of the best plan by medians: title, value, and what it compares with."""
    best, by = advised.best, OBJECTIVES[advised.ranked_by]
    mix, shown = best.prediction, shown_cost(advised.ranked_by)
    cost, serial = (known_cost(each, advised.ranked_by).p50 for each in (best, advised.serial))
    power_w = None if mix.power_w is None else _certain(mix.power_w.p50)
    limit_w = mix.power_cap_w or advised.gpu.power_limit_w
    return [
        (by.measure.capitalize(), shown(_certain(cost)), f"serial {shown(_certain(serial))}"),
        ("Gain over serial", _gained(advised, best), short_basis(mix)),
        ("Memory", units.held(mix), _spare(advised, best).removeprefix("; ")),
        ("Power", units.watts(power_w), f"limit {limit_w:g} W" if limit_w else "limit not known"),
    ]


def _advice(advised: Recommendation) -> str:
    best, jobs = advised.best, len(advised.jobs)
    if jobs == 1:
        makespan = best.makespan_interval_s
        done = "" if makespan is None else f", done in {units.duration(makespan.p50)}"
        return f"Nothing to share: one job{done}{_spare(advised, best)}."
    cap_w = chosen_cap_w(advised, best)
    what = f"{way_advised(best.sharing, jobs)} on {with_article(advised.gpu.key)}"
    what += "" if cap_w is None else f", at most {cap_w:g} W"
    what += "" if best.prediction.confirmed_on_hardware else ", estimated"
    said = f"{what}: {_outcome(advised, best)}{_spare(advised, best)}."
    return f"{said}{untold(advised, best)}{_no_room(advised)}"


def _starved(advised: Recommendation) -> Iterator[str]:
    """Who pays for the best plan, where that is much."""
    slow = starved(advised.best, advised.level)
    if slow:
        said = slowed([(advised.jobs[at].name, times) for at, times in slow.items()])
        yield f"While all run, {said}."


def _no_room(advised: Recommendation) -> str:
    """Why the jobs do not share, where all their memory together does not fit; else empty."""
    together = [each for each in advised.left_out if each.sharing in _TOGETHER]
    if not together or not all(one_by_one(plan.sharing) for plan in advised.plans):
        return ""
    why = together[0].why
    return f" All at once{' ' if why.startswith(('does not fit', 'leaves no')) else ': '}{why}."


def _outcome(advised: Recommendation, plan: Plan) -> str:
    """What the plan achieves, in medians, and how much of the serial cost it saves.

    In ranges, where a plan may as well lose for all that is known of its jobs.
    """
    by = OBJECTIVES[advised.ranked_by]
    cost, shown = known_cost(plan, advised.ranked_by), shown_cost(advised.ranked_by)
    if one_by_one(plan.sharing):
        return f"all done in {_until(plan)}"
    if may_lose(advised, plan):
        return by.headline(cost, shown(cost), _gained(advised, plan))
    said = by.headline(cost, shown(_certain(cost.p50)), _gained(advised, plan))
    if by.then is not None:
        return f"{said}; all done in {_until(plan)}"
    saved = known_cost(advised.serial, advised.ranked_by).p50 - cost.p50
    if by.unit == "ratio" or saved <= 0:
        return said
    return f"{said}, saves {shown(_certain(saved))}"


def _gained(advised: Recommendation, plan: Plan) -> str:
    """The gain over serial, or its range where the middle of that would be a promise."""
    faster = gain(advised, plan)
    if may_lose(advised, plan):
        return f"{units.number(faster.p05)}x to {units.number(faster.p95)}x"
    return units.times(_certain(faster.p50))


def _until(plan: Plan) -> str:
    makespan = plan.makespan_interval_s
    return "as long as it takes" if makespan is None else units.duration(makespan.p50)


def _certain(value: float) -> Interval:
    return Interval(value, value, value)


def _spare(advised: Recommendation, plan: Plan) -> str:
    """Memory left in the fullest partition when each job holds its upper end."""
    mix = plan.prediction
    held = [each.memory_interval_mib.p95 for each in mix.jobs]
    together = max if mix.sharing.mode in ("serial", "phases") else sum
    left_mib = min(
        pool.capacity_mib - together([held[job] for job in pool.jobs])
        for pool in pools_of(mix, advised.gpu)
    )
    if left_mib < 0:
        return "; fits where each job's memory is capped"
    return f"; fits with {units.gib_of(left_mib)} to spare"


def _how_sure(advised: Recommendation) -> str:
    """The intervals of cost and gain, their basis, and whether the speed of the host is known."""
    best = advised.best
    cost, better = known_cost(best, advised.ranked_by), gain(advised, best)
    by = OBJECTIVES[advised.ranked_by]
    ranges = shown_cost(advised.ranked_by)(cost)
    if advised.ranked_by != "makespan":  # which the first line calls "all done in"
        ranges = f"{by.measure} {ranges}"
    if better.p05 < better.p95:
        ranges += f", gain {units.times(better)}"
    stands = f"How sure: {ranges} in nine of ten runs; {basis(best.prediction)}."
    return f"{stands} {host_note(advised.standing)}"


def _others(advised: Recommendation, found: Verdict, *, hints: bool) -> list[str]:
    """The plans that equal the best within our error; else how far behind the next one is."""
    ties = [plan for plan in advised.plans[1:] if plan.ties_best]
    if ties:
        ran = next((each for each in ties if each.prediction.confirmed_on_hardware), None)
        shown = [plan for plan in ties if plan in ties[:3] or plan in (advised.serial, ran)]
        named = ", ".join(f"{plan.rank} ({plan_kind(advised, plan)})" for plan in shown)
        more = f" and {len(ties) - len(shown)} more" if len(ties) > len(shown) else ""
        better, first = "", ""
        if hints:
            better, first = _treated_better(advised.best, shown), _first(advised)
        if ran is not None and not advised.best.prediction.confirmed_on_hardware:
            better += f"; real runs stand behind {ran.rank}, not behind 1"
        return [f"Maybe as good, within our error: {named}{more}{better}{first}."]
    if (rival := found.runner_up) is None:
        return []
    name = "Sharing at its best" if "dont-share" in found.answers else "The next"
    said = f"{name}, {rival.plan.rank} ({plan_kind(advised, rival.plan)}), is "
    said += f"{abs(rival.behind):.0%} {'ahead' if rival.behind < 0 else 'behind'}"
    by = "" if advised.best.precedes_by == "cost" else _first(advised)
    return [f"{said}, more than our error{by}."]


def _treated_better(best: Plan, ties: Sequence[Plan]) -> str:
    """The job that an equally good plan speeds up most, among plans that share throughout."""
    offers = [
        (own.step_s.p50 / other.step_s.p50, plan.rank, own.job)
        for plan in ties
        if plan.sharing.mode not in ("serial", "phases")
        for own, other in zip(best.prediction.jobs, plan.prediction.jobs, strict=True)
    ]
    times, rank, job = max(offers, default=(0.0, 0, ""))
    if times < _TREATED or best.sharing.mode in ("serial", "phases"):
        return ""
    return f"; {rank} treats {job} better, {times:.2f}x as fast while all run"


def _first(advised: Recommendation) -> str:
    """The rule by which the best plan precedes the cheapest, where that is another plan."""
    by, level = advised.ranked_by, advised.level
    cheapest = min(advised.plans, key=lambda each: known_cost(each, by).at(level))
    before = [each for each in advised.plans if each.rank < cheapest.rank] or [advised.best]
    rule = before[-1].precedes_by
    return "" if rule in (None, "cost") else f"; 1 is first {rule_in_words(rule, level)}"


_HEADINGS = ("", "epoch while all run", "memory", "gain over serial")
_WIDTHS = (2, 26, 26, 18)


def plans_report(
    advised: Recommendation, top: int | None = None, *, details: bool = False
) -> "RenderableType":
    """The answer, the best plan in full, and the best `top` others and serial in a line each.

    Args:
        advised: The recommendation.
        top: Number of plans to show; None: as many as a screen holds, at most 5, or all with
            `details`.
        details: Show every plan in full, and how the plans were found.
    """
    from rich.console import Group
    from rich.text import Text

    letters, write = letters_of(advised.jobs), _in_full if details else at_a_glance

    def report(shown: Sequence[Plan], *, hints: bool = True) -> "RenderableType":
        first, *others = paragraphs(advised, hints=hints)
        said = (Text(first, style="bold"), *map(Text, others), Text())
        return Group(*said, *write(advised, shown, letters))

    if not details and top is None:
        return on_a_screen(advised, report)
    shown = list(advised.plans[:top])
    return report(shown if advised.serial in shown else [*shown, advised.serial])


def _in_full(
    advised: Recommendation, shown: Sequence[Plan], letters: "Letters"
) -> "Iterator[RenderableType]":
    from rich.padding import Padding
    from rich.text import Text

    yield from (Text(f"{letter}  {what}") for letter, what in letters.values())
    yield Text()
    yield _row()
    for plan in shown:
        yield Text(f"{plan.rank}  {plan_name(advised, plan)}", style="bold")
        yield _row(_cells(advised, plan, letters))
        yield Padding(plan.why, (0, 0, 1, 4), style="dim", expand=False)
    yield from map(Text, _footer(advised, len(shown)))


def plan_commands(advised: Recommendation, rank: int) -> str:
    """The shell lines of the plan at `rank`.

    Raises:
        InvalidInput: There is no such plan.
    """
    if not 1 <= rank <= (plans := len(advised.plans)):
        raise InvalidInput(
            f"there is no plan {rank}; there {is_or_are(plans)} {counted(plans, 'plan')}."
        )
    return "\n".join(advised.plans[rank - 1].commands)


def _cells(advised: Recommendation, plan: Plan, letters: Letters) -> "tuple[Cell, ...]":
    mix = plan.prediction
    epochs = tuple(
        f"{units.collapsed([letters[each.job][0] for each in same])}  {epoch(same[0])}"
        for same in equal_jobs(mix.jobs)
    )
    better = units.times(gain(advised, plan))
    return "", epochs, memory_held(plan).replace(" of ", "\nof ", 1), better


def _row(cells: "Sequence[Cell]" = ()) -> "RenderableType":
    """A line of the table; without `cells` the line of headings."""
    from advisor.report.format import FixedRow

    return FixedRow(cells, _HEADINGS, _WIDTHS)


def _footer(advised: Recommendation, shown: int) -> Iterator[str]:
    if len(advised.plans) > shown:
        yield f"{counted(len(advised.plans) - shown, 'more plan')}: --top {len(advised.plans)}."
    for each in advised.left_out:
        yield f"Left out: {each.sharing}: {each.why}."
    if advised.searched:
        yield f"Searched: {advised.searched}."
    yield bounds_note(advised)
    yield host_note(advised.standing)
    yield "`--commands 1` prints the shell commands of plan 1."
