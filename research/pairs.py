"""Pairs of real runs of the same jobs on the same day under two ways to share, and the choice.

A pair shows whether a predicted lead is real. Each job is predicted without its family. The leads
that a way needs to come first are chosen by these pairs (`advisor.plan.precedence`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median

from advisor.learn.evaluate import Evaluation
from advisor.learn.scores import RunComparison, sharing_of
from advisor.plan.precedence import LEADS
from advisor.report.scores import MODE_WORDS, markdown, percent
from advisor.sharing import SHARED_MODES, Mode
from research.steps import joined


@dataclass(frozen=True, slots=True)
class Pair:
    """Lead in throughput of the way that is harder to set up, as shares: predicted and measured."""

    simpler: Mode
    other: Mode
    predicted: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairScore:
    """How choices between two ways come out.

    Attributes:
        error: Median absolute error of the lead.
        right: Pairs in which the way is chosen that was measured faster, with the lead that is
            needed to come first; `by_cost` without it.
        slower: Share of the chosen harder ways that were measured slower.
    """

    simpler: Mode
    other: Mode
    pairs: int
    error: float
    right: int
    by_cost: int
    slower: float


def pairs_of(runs: Sequence[RunComparison]) -> list[Pair]:
    """Return a pair for each two ways in which the same jobs ran on one day; repeats as a mean."""
    sets: dict[tuple[object, ...], dict[str, list[RunComparison]]] = {}
    for run in runs:
        jobs, day = sorted(job.job for job in run.jobs), run.run.provenance.date[:10]
        ways = sets.setdefault((*jobs, day), {})
        if len(jobs) > 1:
            ways.setdefault(str(sharing_of(run.run)), []).append(run)
    pairs = []
    for ways in sets.values():
        for one, other in combinations(ways.values(), 2):
            simpler, harder = sorted(
                (one, other), key=lambda same: SHARED_MODES.index(sharing_of(same[0].run).mode)
            )
            modes = [sharing_of(same[0].run).mode for same in (simpler, harder)]
            if modes[0] == modes[1]:
                continue
            before, now = (mean(run.measured_speedup for run in same) for same in (simpler, harder))
            predicted = harder[0].predicted_speedup / simpler[0].predicted_speedup
            pairs.append(Pair(modes[0], modes[1], predicted - 1, now / before - 1))
    return pairs


def pair_scores(evaluation: Evaluation) -> tuple[PairScore, ...]:
    """Return how choices between each two ways come out."""
    pairs = pairs_of([*evaluation.runs, *evaluation.advice])
    return tuple(
        _score(simpler, other, own)
        for simpler, other in combinations(SHARED_MODES, 2)
        if (own := [each for each in pairs if (each.simpler, each.other) == (simpler, other)])
    )


def _score(simpler: Mode, other: Mode, pairs: Sequence[Pair]) -> PairScore:
    least = LEADS[other]
    chosen = [each.measured < 0 for each in pairs if each.predicted > least]
    return PairScore(
        simpler=simpler, other=other, pairs=len(pairs),
        error=median(abs(each.predicted - each.measured) for each in pairs),
        right=sum((each.measured > 0) == (each.predicted > least) for each in pairs),
        by_cost=sum((each.measured > 0) == (each.predicted > 0) for each in pairs),
        slower=mean(chosen) if chosen else 0.0,
    )  # fmt: skip


def pairs_section(scores: Sequence[PairScore]) -> str:
    """Return the section of the report."""
    rows = [
        (f"{MODE_WORDS[row.other]} against {MODE_WORDS[row.simpler]}", str(row.pairs),
         percent(row.error), percent(LEADS[row.other]), str(row.right), str(row.by_cost),
         percent(row.slower))
        for row in scores
    ]  # fmt: skip
    headings = ("ways", "pairs", "error of the lead, median", "lead needed", "right", "right by "
                "cost alone", "chosen and slower")  # fmt: skip
    return joined(
        "## Choices between two ways",
        "The same jobs on the same day under two ways, each job predicted without its family.",
        markdown(headings, rows),
    )
