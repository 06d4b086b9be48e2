"""Errors of steps on parts of a GPU that are estimated from nvidia-smi's numbers alone.

    python -m research.slice_score THEIRS > benchmarks/slices/accuracy.json

THEIRS is the folder of what others measured on an A100. Each model is left out of the fit in turn,
with all profiles of the same family. Of the form of the answer, the accuracy says two things: what
this form is off by, and what is lost if the form, too, is chosen without each model, by leaving out
the others in turn. Intervals are as wide as those of the other models have to be, with a margin.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from advisor.prediction.trace import Floats
from research.files import rounded
from research.slice_answers import (
    SIGNS,
    by_probe,
    by_trees,
    chosen_forms,
    left_out,
    models_of,
    without_fit,
)
from research.slice_cases import LIMITS, MIG_MODE, SLICES, cases
from research.slice_fit import FORMS, Cases, Chosen, Fitted, columns, fitted

_PROBE = "two MPS limits"
_NINE_IN_TEN = 0.9
# Four models tell too little of a fifth: intervals get the least of these margins with which so
# many steps of models left out are inside, on slices of every size.
_MARGINS, _LEAST_INSIDE = tuple(1 + tenths / 10 for tenths in range(21)), 0.85
_DRAWS = 2000


def mape(log_errors: Floats) -> float:
    return float(np.mean(np.abs(np.expm1(log_errors))))


def interval_of(all_cases: Cases, chosen: Chosen, log_errors: Floats) -> tuple[float, float]:
    """Of the mean error, 95 %: models are drawn anew, and of each its jobs."""
    rng, found = np.random.default_rng(0), []
    at: list[list[Any]] = []
    for model in np.unique(all_cases.model[chosen]):
        own = chosen & (all_cases.model == model)
        jobs = np.unique(all_cases.job[own])
        at.append([np.flatnonzero(own & (all_cases.job == job)) for job in jobs])
    for _ in range(_DRAWS):
        models = [at[model] for model in rng.integers(len(at), size=len(at))]
        drawn = [jobs[job] for jobs in models for job in rng.integers(len(jobs), size=len(jobs))]
        found.append(mape(log_errors[np.concatenate(drawn)]))
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


def reach(all_cases: Cases, scaled: Floats, chosen: Chosen) -> float:
    """What nine in ten of `chosen` stay below, each set of measurements with the same weight."""
    known = chosen & np.isfinite(scaled)
    of_sets = [
        np.quantile(scaled[known & all_cases.of(str(data))], _NINE_IN_TEN, method="higher")
        for data in np.unique(all_cases.data[known])
    ]
    return float(np.mean(of_sets))


def inside(all_cases: Cases, scaled: Floats, chosen: Chosen, margin: float) -> float:
    """Share of `chosen` in intervals `margin` times as wide as the data's other models need."""
    known = np.flatnonzero(chosen & np.isfinite(scaled))
    alike = all_cases.of(str(all_cases.data[known[0]]))
    wide = {
        model: reach(all_cases, scaled, alike & (all_cases.model != model))
        for model in np.unique(all_cases.model[known])
    }
    return float(np.mean([scaled[each] <= margin * wide[all_cases.model[each]] for each in known]))


def margin_of(all_cases: Cases, scaled: Floats) -> float:
    """By how much intervals on slices have to be wider than the few other models need them."""
    slices = all_cases.of(SLICES)
    parts = [slices & (all_cases.part == part) for part in np.unique(all_cases.part[slices])]
    return next(
        each
        for each in _MARGINS
        if min(inside(all_cases, scaled, part, each) for part in parts) >= _LEAST_INSIDE
    )


def entry(
    all_cases: Cases,
    chosen: Chosen,
    by: str,
    log_errors: Floats,
    scaled: Floats | None = None,
    margin: float = 1.0,
) -> dict[str, Any]:
    """What is said of one way to answer; `scaled` are its errors over their doubts."""
    low, high = interval_of(all_cases, chosen, log_errors)
    parts = {
        str(part): chosen & (all_cases.part == part) for part in np.unique(all_cases.part[chosen])
    }
    found: dict[str, Any] = {
        "data": str(all_cases.data[chosen][0]),
        "by": by,
        "steps": int(chosen.sum()),
        "mape": mape(log_errors[chosen]),
        "low": low,
        "high": high,
        "bias": float(np.mean(np.expm1(log_errors[chosen]))),
        "of_part": {part: mape(log_errors[at]) for part, at in parts.items()},
    }
    if scaled is not None:
        held = {part: inside(all_cases, scaled, at, margin) for part, at in parts.items()}
        found |= {"inside": inside(all_cases, scaled, chosen, margin), "inside_of_part": held}
    return found


def scores(all_cases: Cases) -> dict[str, Any]:
    """The constants, and the errors of everything that they are compared with."""
    form, everything = FORMS[0], np.ones(len(all_cases.model), dtype=bool)
    slices = all_cases.of(SLICES)
    found, doubts = left_out(all_cases, form, everything, models_of(all_cases))
    probed, probe_doubts, both = by_probe(all_cases, form)
    errors = dict(zip((*SIGNS, _PROBE), (*found, probed), strict=True))
    each_doubt = dict(zip(errors, (*doubts, probe_doubts), strict=True))
    scaled = {sign: np.abs(errors[sign]) / each_doubt[sign] for sign in errors}
    margins = {sign: margin_of(all_cases, each) for sign, each in scaled.items()}
    chosen = chosen_forms(all_cases)
    compared = {f"form chosen by {rule}": each for rule, (each, _) in chosen.items()}
    compared |= {f"{SIGNS[0]} and {_PROBE}": both, "trees": by_trees(all_cases)}
    compared |= without_fit(all_cases)
    return {
        "schema": 1,
        **constants(fitted(all_cases, form, everything)),
        "doubts": {sign: reaches(all_cases, each, margins[sign]) for sign, each in scaled.items()},
        "forms_chosen": {rule: names for rule, (_, names) in chosen.items()},
        "scores": [
            *by_signs(all_cases, errors, scaled, margins),
            *(entry(all_cases, slices, by, each) for by, each in compared.items()),
        ],
    }


def by_signs(
    all_cases: Cases,
    errors: Mapping[str, Floats],
    scaled: Mapping[str, Floats],
    margins: Mapping[str, float],
) -> Iterator[dict[str, Any]]:
    """An entry for each sign that a set of measurements has."""
    for data, signs in ((SLICES, errors), (MIG_MODE, SIGNS[2:]), (LIMITS, SIGNS[:2])):
        for sign in signs:
            margin = 1.0 if data == LIMITS else margins[sign]
            yield entry(all_cases, all_cases.of(data), sign, errors[sign], scaled[sign], margin)


def reaches(all_cases: Cases, scaled: Floats, margin: float) -> dict[str, float]:
    """How wide intervals have to be on slices, and under limits."""
    slices, limits = all_cases.of(SLICES), ~all_cases.of(SLICES, MIG_MODE)
    return {
        "doubt": margin * reach(all_cases, scaled, slices),
        "doubt_of_limits": reach(all_cases, scaled, limits),
    }


def constants(found: Fitted) -> dict[str, Any]:
    """Those of the curve, and of each sign."""
    signs = {
        sign: {"constant": float(weights[0]), "slope": float(weights[1])}
        for sign, weights in zip(SIGNS, found.weights, strict=True)
    }
    return {"curve": asdict(found.curve), "signs": signs}


def main(words: Sequence[str]) -> None:
    found = scores(columns(cases(Path(words[0]))))
    print(json.dumps(rounded(found, ".3f"), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
