"""Errors of power and activity of the whole GPU, for model families left out.

The laws of power are fitted to the runs without any job of a family; then every scored run with a
job of that family is predicted once, at the pace that was predicted for it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.hardware.gpus import Gpu
from advisor.learn.observations import ObservedRun, shared_runs
from advisor.learn.scores import RunComparison, sharing_of
from advisor.prediction.power import Power, gract, smact
from advisor.report.format import percent
from advisor.sharing import SHARED_MODES, Mode
from advisor.workload.run import Run
from research.evaluate import Evaluation
from research.score_tables import MODE_WORDS, markdown
from research.steps import joined

_HEADINGS = (
    "sharing",
    "n",
    "power MAPE",
    "in 90 % interval",
    "power noise",
    "GRACT off",
    "SMACT off",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRow:
    """Errors in one mode; None if nothing was measured.

    Attributes:
        n: Predictions: each run once for each family in it.
        power_mape: Mean absolute error of the GPU's power, as a share.
        power_coverage90: Share of measured powers inside their 90 % interval.
        power_noise: Mean absolute difference of power between a run and its repeat, as a share.
        gract_error: Mean absolute difference of GRACT, as a share of 1: 0.05 is five points.
        smact_error: The same of SMACT.
    """

    mode: Mode
    n: int
    power_mape: float
    power_coverage90: float
    power_noise: float | None
    gract_error: float | None
    smact_error: float | None


@dataclass(frozen=True, slots=True)
class _Error:
    mode: Mode
    power: float
    inside: bool
    gract: float | None
    smact: float | None


def power_score(evaluation: Evaluation) -> tuple[PowerRow, ...]:
    """Score the drawn runs by the laws of the models of `evaluation`, which saw no such family."""
    chosen = evaluation.chosen
    scored = {comparison.run.id: comparison for comparison in evaluation.runs}
    errors: list[_Error] = []
    for observed in shared_runs(chosen.profiles, chosen.scored, chosen.gpu):
        raw = replace(observed, profiles=observed.as_measured)
        for family in sorted(set(observed.families)):
            power = evaluation.models[family].of(chosen.gpu).power
            errors += _errors(chosen.gpu, power, raw, scored[observed.run.id])
    rows = []
    for mode in SHARED_MODES:
        repeats = [
            (first, again)
            for first, again in chosen.repeats
            if first.id in scored and sharing_of(first).mode == mode
        ]
        if of_mode := [error for error in errors if error.mode == mode]:
            rows.append(_row(mode, of_mode, repeats))
    return tuple(rows)


def _errors(
    gpu: Gpu, power: Power, observed: ObservedRun, comparison: RunComparison
) -> list[_Error]:
    predicted_s = np.array([job.predicted_s.p50 for job in comparison.jobs])
    speeds = list(map(float, np.minimum(1.0, observed.alone_s / predicted_s)))
    law = power.law(observed.mode, len(observed.profiles))
    shares = power.shares_w(observed.profiles, speeds, gpu, law)
    measured_w, counters = observed.run.power_w, observed.run.counters
    if shares is None or measured_w is None:
        return []
    watts = float(shares.sum())
    return [
        _Error(
            mode=observed.mode,
            power=watts / measured_w - 1,
            inside=law.low <= np.log(measured_w / watts) <= law.high,
            gract=_apart(
                gract(observed.profiles, speeds, observed.mode),
                counters.gract if counters else None,
            ),
            smact=_apart(
                smact(observed.profiles, speeds, observed.sharing),
                counters.sm_active if counters else None,
            ),
        )
    ]


def _row(mode: Mode, errors: Sequence[_Error], repeats: Sequence[tuple[Run, Run]]) -> PowerRow:
    return PowerRow(
        mode=mode,
        n=len(errors),
        power_mape=float(np.mean([abs(error.power) for error in errors])),
        power_coverage90=float(np.mean([error.inside for error in errors])),
        power_noise=_mean(
            abs(again.power_w / once.power_w - 1) if once.power_w and again.power_w else None
            for once, again in repeats
        ),
        gract_error=_mean(error.gract for error in errors),
        smact_error=_mean(error.smact for error in errors),
    )


def _apart(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else abs(one - other)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def power_section(rows: Sequence[PowerRow]) -> str:
    """Return the table in Markdown; empty if no power was measured."""
    if not rows:
        return ""
    cells = [
        (
            MODE_WORDS[row.mode],
            str(row.n),
            percent(row.power_mape),
            percent(row.power_coverage90),
            percent(row.power_noise),
            _points(row.gract_error),
            _points(row.smact_error),
        )
        for row in rows
    ]
    return joined(
        "## Power and activity of the GPU",
        markdown(_HEADINGS, cells),
        "Predicted from the predicted pace, as users have it. Activity is in points of a hundred: "
        "GRACT of time, SMACT of SMs and time.",
    )


def _points(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
