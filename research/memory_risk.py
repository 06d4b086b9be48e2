"""Whether mixes run out of memory as often as predicted, on cards made smaller.

A trial has several families: it is scored once for each, by the edge that was fitted to trials
without that family, and these scores share the trial's weight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.prediction.fit.memory_fit import Trial, fit_edges
from advisor.prediction.memory_edge import cautious_edge
from advisor.prediction.trace import Floats
from advisor.sharing import Mode

# Bounds of predicted risk between which outcomes are counted.
_BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)

# From this risk on a mix is said not to fit.
_MISFIT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Trials whose predicted risk was alike.

    Attributes:
        trials: How many; a trial of several families counts in parts.
        predicted: Their mean risk.
        observed: Share of them that ran out.
    """

    trials: float
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskRow:
    """Trials of one mode on cards made smaller.

    Attributes:
        trials: How many.
        misfits: How many of them ran out.
        recall: Share of misfits that were predicted; None if there was none.
        false_alarms: Share of the others that were predicted to run out; None if there are none.
        cautious_recall: As `recall`, of the rule that no cache is ever given up.
        cautious_false_alarms: As `false_alarms`, of that rule.
        brier: Mean squared distance of risk and outcome.
        bins: By predicted risk, lowest first; empty ones are left out.
    """

    mode: Mode
    trials: int
    misfits: int
    recall: float | None
    false_alarms: float | None
    cautious_recall: float | None
    cautious_false_alarms: float | None
    brier: float
    bins: tuple[Bin, ...]


@dataclass(frozen=True, slots=True)
class _Judged:
    """A trial for one of its families; `weight` is its part of the trial."""

    mode: Mode
    risk: float
    cautious: float
    ran_out: bool
    weight: float


def risk_rows(tried: Sequence[Trial], sigma: float) -> tuple[RiskRow, ...]:
    """`tried` scored, by mode.

    Args:
        tried: Trials on one GPU.
        sigma: Relative standard error of a process's memory, for the cautious rule.
    """
    judged = list(_judged(tried, sigma))
    return tuple(
        _risk_row(mode, [each for each in tried if each.mode == mode],
                  [each for each in judged if each.mode == mode])
        for mode in sorted({each.mode for each in tried})
    )  # fmt: skip


def _judged(tried: Sequence[Trial], sigma: float) -> Iterator[_Judged]:
    cautious = cautious_edge(sigma)
    for family in sorted({family for each in tried for family in each.families}):
        edges = fit_edges([each for each in tried if family not in each.families])
        for each in tried:
            if family in each.families:
                edge = edges.get(each.mode, cautious)
                yield _Judged(
                    mode=each.mode,
                    risk=edge.risk(each.needs, each.capacity_mib),
                    cautious=cautious.risk(each.needs, each.capacity_mib),
                    ran_out=each.refused > 0,
                    weight=1 / len(each.families),
                )


def _risk_row(mode: Mode, tried: Sequence[Trial], judged: Sequence[_Judged]) -> RiskRow:
    risk, cautious, ran_out, weight = np.array(
        [(each.risk, each.cautious, each.ran_out, each.weight) for each in judged], dtype=float
    ).T
    return RiskRow(
        mode=mode,
        trials=len(tried),
        misfits=sum(each.refused > 0 for each in tried),
        recall=_share(risk, weight * ran_out),
        false_alarms=_share(risk, weight * (1 - ran_out)),
        cautious_recall=_share(cautious, weight * ran_out),
        cautious_false_alarms=_share(cautious, weight * (1 - ran_out)),
        brier=float(np.average((risk - ran_out) ** 2, weights=weight)),
        bins=_bins(risk, ran_out, weight),
    )


def _share(risk: Floats, weight: Floats) -> float | None:
    """Share of what `weight` selects that was said not to fit; None if it selects nothing."""
    return float(weight[risk >= _MISFIT].sum() / weight.sum()) if weight.sum() else None


def _bins(risk: Floats, ran_out: Floats, weight: Floats) -> tuple[Bin, ...]:
    of = np.clip(np.digitize(risk, _BINS[1:-1]), 0, len(_BINS) - 2)
    return tuple(
        Bin(
            trials=float(weight[of == number].sum()),
            predicted=float(np.average(risk[of == number], weights=weight[of == number])),
            observed=float(np.average(ran_out[of == number], weights=weight[of == number])),
        )
        for number in range(len(_BINS) - 1)
        if (of == number).any()
    )
