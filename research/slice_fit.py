"""Fits what a part of a GPU costs a job of which only nvidia-smi's numbers are known.

The constants of `advisor.prediction.part_curve` and `advisor.prediction.fewer_sms`, by the cases of
`research.slice_cases`; every set of measurements has the same weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.prediction.part_curve import PartCurve
from advisor.prediction.trace import Floats
from research.slice_cases import Case

Chosen = NDArray[np.bool_]
# An error of a twentieth counts by its square, a larger one by its size.
_FEW_PER_CENT = 0.05
_LEAST_SHOWN = 0.005


@dataclass(frozen=True, slots=True)
class Cases:
    """Cases as columns, each of shape (cases,); `shown` is (cases, 3), `shares` (cases, 2)."""

    data: NDArray[np.str_]
    model: NDArray[np.str_]
    job: NDArray[np.str_]
    part: NDArray[np.str_]
    shares: Floats
    compared: Floats
    log_slowdown: Floats
    shown: Floats
    weight: Floats

    def of(self, *data: str) -> Chosen:
        return np.isin(self.data, data)


def columns(found: Sequence[Case]) -> Cases:
    data = np.array([each.data for each in found])
    sets, counts = np.unique(data, return_counts=True)
    share = dict(zip(sets, len(found) / len(sets) / counts, strict=True))
    return Cases(
        data=data,
        model=np.array([each.model for each in found]),
        job=np.array([each.job for each in found]),
        part=np.array([each.part for each in found]),
        shares=np.array([each.shares for each in found]),
        compared=np.array([each.compared for each in found]),
        log_slowdown=np.log([each.slowdown for each in found]),
        shown=np.array([each.shown for each in found]),
        weight=np.array([share[each] for each in data]),
    )


@dataclass(frozen=True, slots=True)
class Form:
    """From what nvidia-smi shows, shape (cases, 3), what tells the work of an A100's job.

    Attributes:
        signs: Those, shape (cases, signs).
    """

    name: str
    signs: Callable[[Floats], Floats]


def _logs(*at: int) -> Callable[[Floats], Floats]:
    return lambda shown: np.log(np.maximum(shown[:, at], _LEAST_SHOWN))


# Those with fewer constants first.
FORMS = (
    Form("memory utilisation", _logs(0)),
    Form("root of memory utilisation", lambda shown: np.sqrt(shown[:, :1])),
    Form("memory utilisation and power", _logs(0, 1)),
    Form("memory and GPU utilisation", _logs(0, 2)),
)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The curve, and the weights of one and each sign; `weights[0]` is of the form's own signs."""

    form: Form
    curve: PartCurve
    weights: tuple[Floats, Floats, Floats]

    def log_odds(self, all_cases: Cases, sign: int) -> Floats:
        return _design(all_cases, self.form, sign) @ self.weights[sign]

    def log_slowdown(self, all_cases: Cases, sign: int) -> Floats:
        return _log_slowdown(self.curve, self.log_odds(all_cases, sign), all_cases)

    def doubt(self, all_cases: Cases, sign: int) -> Floats:
        slowed = self.curve.work_slowdown(*all_cases.shares.T)
        return self.curve.doubt(self.log_odds(all_cases, sign), slowed)


def _design(all_cases: Cases, form: Form, sign: int) -> Floats:
    signs = (form.signs if sign == 0 else _logs(sign))(np.nan_to_num(all_cases.shown, nan=0.5))
    return np.column_stack([np.ones(len(signs)), signs])


def _log_slowdown(curve: PartCurve, log_odds: Floats, all_cases: Cases) -> Floats:
    here, there = (
        curve.log_slowdown(log_odds, curve.work_slowdown(*shares.T))
        for shares in (all_cases.shares, all_cases.compared)
    )
    return here - there


def fitted(all_cases: Cases, form: Form, taught: Chosen) -> Fitted:
    """The constants by the cases `taught`: the curve first, then each sign under that curve."""
    designs = [_design(all_cases, form, sign) for sign in range(3)]
    widths = [each.shape[1] for each in designs]
    best = np.argmax(~np.isnan(all_cases.shown), axis=1)  # memory, else power, else utilisation
    root = np.sqrt(all_cases.weight)

    def curve_of(x: Floats) -> PartCurve:
        return PartCurve(float(np.exp(x[0])), float(x[1]), float(x[2]), float(np.exp(x[3])))

    def off(curve: PartCurve, log_odds: Floats, chosen: Chosen) -> Floats:
        error = _log_slowdown(curve, log_odds, all_cases) - all_cases.log_slowdown
        return np.asarray((root * error)[chosen])

    def all_off(x: Floats) -> Floats:
        parts = np.split(x[4:], np.cumsum(widths)[:-1])
        odds = np.array([design @ w for design, w in zip(designs, parts, strict=True)])
        return off(curve_of(x), odds[best, np.arange(len(best))], taught)

    begin = np.concatenate([[0.5, 1.0, 0.4, 0.5], *([1.0] + [2.0] * (n - 1) for n in widths)])
    found = _solved(all_off, begin)
    curve = curve_of(found)
    weights = [np.split(found[4:], np.cumsum(widths)[:-1])[0]]
    for sign in (1, 2):
        known = taught & ~np.isnan(all_cases.shown[:, sign])
        design = designs[sign]
        weights.append(_solved(lambda w: off(curve, design @ w, known), np.array([2.0, 3.0])))  # noqa: B023
    return Fitted(form, curve, (weights[0], weights[1], weights[2]))


def _solved(off: Callable[[Floats], Floats], begin: Floats) -> Floats:
    from scipy.optimize import least_squares

    return np.asarray(least_squares(off, begin, loss="soft_l1", f_scale=_FEW_PER_CENT).x)
