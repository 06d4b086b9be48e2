"""Explains missed targets: the parts of a mode's error, and what would be needed."""

from collections.abc import Iterator, Mapping, Sequence

from advisor.sharing import SHARED_MODES, Mode
from advisor.validate.evaluate import Evaluation
from advisor.validate.score_tables import MODE_WORDS, markdown, percent
from research.error_budget import (
    COMMON,
    HOST,
    MEMORY,
    NOISE,
    PARTS,
    SMS,
    Budget,
    budget_of,
)
from research.targets import Target

_NEEDED: Mapping[str, str] = {
    NOISE: "runs that repeat better; no model gets below this",
    HOST: "the pace of each core while a run goes on, not just before and after it, or a host "
    "whose cores keep theirs",
    MEMORY: "what each kernel takes of L2 and DRAM, since counters tell the mean of a whole job, "
    "and runs of jobs that fill both",
    SMS: "which kernels meet on an SM and how they slow each other there, since replay gives out "
    "shares of SMs, and more runs in which all SMs are taken",
    COMMON: "more families to learn from, since this error grows with none of the others",
}
_OF_PACE = ("MAPE",)


def budgets_of(evaluation: Evaluation) -> Mapping[Mode, Budget]:
    """By mode; modes in which no job was missed are left out."""
    return {mode: budget for mode in SHARED_MODES if (budget := budget_of(evaluation, mode))}


def section(budgets: Mapping[Mode, Budget], targets: Sequence[Target]) -> str:
    """A table of shares, then a line for each mode; empty if no job was missed."""
    if not budgets:
        return ""
    return "\n\n".join((
        "## What the error consists of",
        markdown(("share of the squared error", *(MODE_WORDS[mode] for mode in budgets)),
                 _rows(list(budgets.values()))),
        "Of the squared error of a step, families left out. The noise of one run is half the mean "
        "squared difference of two. The rest is drawn as a sum of parts, none below zero: one for "
        "jobs that the host paces, one that grows with what all jobs take of the DRAM, one with "
        "the SMs that mates keep busy, both beyond the median job, and one that is alike in all "
        "jobs. In parentheses: 90 % of 200 draws of families with replacement lie there, so a "
        "share says where error lies and not for sure what causes it.",
        *(f"**{MODE_WORDS[mode]}**: {' '.join(_said(targets, mode, budget))}"
          for mode, budget in budgets.items()),
    ))  # fmt: skip


def _rows(budgets: list[Budget]) -> Iterator[tuple[str, ...]]:
    for part in PARTS:
        yield part, *(_share(*budget.parts[part]) for budget in budgets)
    yield "error RMSE", *(percent(budget.rmse) for budget in budgets)
    yield "RMSE of replay alone", *(percent(budget.replay_rmse) for budget in budgets)


def _share(middle: float, low: float, high: float) -> str:
    return f"{100 * middle:.0f} % ({100 * low:.0f} to {100 * high:.0f})"


def _said(targets: Sequence[Target], mode: Mode, budget: Budget) -> Iterator[str]:
    missed = [
        f"{what.split(', ', 1)[1]} {reached} ({asked})"
        for what, asked, reached, met in (target.cells for target in targets)
        if what.startswith(f"{MODE_WORDS[mode]}, ") and met == "no"
        if any(word in what for word in _OF_PACE)
    ]
    yield f"missed: {'; '.join(missed)}." if missed else "every target of pace is met."
    largest = max(PARTS, key=lambda part: budget.parts[part][0])
    yield f"The largest part: {largest}. Needed would be {_NEEDED[largest]}."
    yield (
        f"The worst twentieth of the jobs holds {percent(budget.worst)} of all, "
        f"{budget.hardest} alone {percent(budget.of_hardest)}."
    )
    if budget.host_checked is not None:
        yield (
            f"Of jobs that the host paces, {percent(budget.host_checked)} of the error goes "
            "with how fast the check found their cores."
        )
