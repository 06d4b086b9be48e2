"""Plans as tables that fit in 80 columns, for a terminal or a file."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from advisor.english import counted, is_or_are
from advisor.errors import InvalidInput
from advisor.plan.recommendation import Plan, Recommendation
from advisor.report import units
from advisor.report.answer_text import paragraphs
from advisor.report.forecast_text import (
    Letters,
    epoch,
    equal_jobs,
    letters_of,
    memory_held,
)
from advisor.report.glance import at_a_glance, on_a_screen
from advisor.report.headline import (
    bounds_note,
    gain,
    host_note,
    plan_name,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from advisor.terminal.terminal_tables import Cell

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
    from advisor.terminal.terminal_tables import FixedRow

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
