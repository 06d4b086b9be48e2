"""How far steps on parts of a GPU are off that are told from nvidia-smi's numbers alone.

    python -m research.slice_score THEIRS > benchmarks/slices/accuracy.json

THEIRS is the folder of what others measured on an A100. Each model is left out of the fit in turn,
with all profiles of the same family. Of the form of the answer, the accuracy says two things: what
this form is off by, and what is lost if the form, too, is chosen without each model, by leaving out
the others in turn. Intervals are as wide as those of the other models have to be.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from advisor.prediction.trace import Floats
from research.slice_cases import LIMITS, MIG_MODE, SLICES, cases
from research.slice_fit import FORMS, Cases, Chosen, Fitted, Form, columns, fitted

_SIGNS = ("memory utilisation", "power", "GPU utilisation")
_PROBE = "two MPS limits"
_NINE_IN_TEN = 0.9
_ODDS = np.linspace(-5, 5, 401)
_DRAWS = 2000


def models_of(all_cases: Cases, *data: str) -> list[str]:
    """Of all cases, or of those in `data`."""
    chosen = all_cases.model[all_cases.of(*data)] if data else all_cases.model
    return [str(each) for each in np.unique(chosen)]


def left_out(
    all_cases: Cases, form: Form, among: Chosen, models: Sequence[str]
) -> tuple[Floats, Floats]:
    """Log errors and doubts of `models`, each without itself, both (signs, cases); nan elsewhere.

    Fits to those of `all_cases` that are `among` them.
    """
    errors = np.full((len(_SIGNS), len(all_cases.model)), np.nan)
    doubts = errors.copy()
    for model in models:
        own = among & (all_cases.model == model)
        found = fitted(all_cases, form, among & ~own)
        for sign in range(len(_SIGNS)):
            shown = own & ~np.isnan(all_cases.shown[:, sign])
            errors[sign, shown] = _error(found, all_cases, sign)[shown]
            doubts[sign, shown] = found.doubt(all_cases, sign)[shown]
    return errors, doubts


def _error(found: Fitted, all_cases: Cases, sign: int) -> Floats:
    return found.log_slowdown(all_cases, sign) - all_cases.log_slowdown


def chosen_forms(all_cases: Cases) -> dict[str, tuple[Floats, dict[str, str]]]:
    """Log errors of the slices of each model by the form that the others choose; and the forms.

    By the least error, and by the rule of one standard error: the first form that is worse than the
    best by no more than that.
    """
    slices, models = all_cases.of(SLICES), models_of(all_cases, SLICES)
    rules = ("least error", "one standard error")
    errors = {rule: np.full(len(all_cases.model), np.nan) for rule in rules}
    names: dict[str, dict[str, str]] = {rule: {} for rule in rules}
    for model in models:
        others = all_cases.model != model
        rest = [each for each in models if each != model]
        left = [left_out(all_cases, form, others, rest)[0][0] for form in FORMS]
        tried = [np.abs(np.expm1(each[slices & others])) for each in left]
        means = np.array([each.mean() for each in tried])
        best = int(np.argmin(means))
        spare = tried[best].std() / np.sqrt(len(tried[best]))
        for rule, at in zip(
            rules, (best, int(np.argmax(means <= means[best] + spare))), strict=True
        ):
            own = slices & ~others
            errors[rule][own] = _error(fitted(all_cases, FORMS[at], others), all_cases, 0)[own]
            names[rule][model] = FORMS[at].name
    return {rule: (errors[rule], names[rule]) for rule in rules}


def by_probe(all_cases: Cases, form: Form) -> tuple[Floats, Floats, Floats]:
    """Log errors and doubts if the work of each job is told by its steps under two limits.

    And log errors if it is told midway between that and what memory utilisation says.
    """
    alone = np.full(len(all_cases.model), np.nan)
    both, doubts = alone.copy(), alone.copy()
    ours = all_cases.of(SLICES, LIMITS)
    for model in models_of(all_cases, SLICES):
        found = fitted(all_cases, form, all_cases.model != model)
        slowed = found.curve.work_slowdown(*all_cases.shares.T)
        curves = np.array([found.curve.log_slowdown(odds, slowed) for odds in _ODDS])
        shown = found.log_odds(all_cases, 0)
        for job in np.unique(all_cases.job[ours & (all_cases.model == model)]):
            own = ours & (all_cases.job == job)
            probe = own & all_cases.of(LIMITS)
            away = curves[:, probe] - all_cases.log_slowdown[probe]
            odds = _ODDS[np.argmin((away**2).sum(axis=1))]
            doubts[own] = found.curve.doubt(odds, slowed[own])
            for errors, told in ((alone, odds), (both, (odds + shown[own][0]) / 2)):
                log_slowdown = found.curve.log_slowdown(told, slowed[own])
                errors[own] = log_slowdown - all_cases.log_slowdown[own]
    return alone, doubts, both


def by_trees(all_cases: Cases) -> Floats:
    """Log errors of slices by trees on the same numbers, each model left out."""
    from sklearn.ensemble import RandomForestRegressor

    slices, x = all_cases.of(SLICES), np.hstack([all_cases.shown, all_cases.shares])
    errors = np.full(len(all_cases.model), np.nan)
    for model in models_of(all_cases, SLICES):
        own = slices & (all_cases.model == model)
        rest = slices & ~own
        trees = RandomForestRegressor(300, random_state=0)
        trees.fit(x[rest], all_cases.log_slowdown[rest])
        errors[own] = trees.predict(x[own]) - all_cases.log_slowdown[own]
    return errors


def without_fit(all_cases: Cases) -> dict[str, Floats]:
    """Log errors of what needs no fit."""
    busy, sms = all_cases.shown[:, 2], all_cases.shares[:, 0]
    return {
        "as if alone": -all_cases.log_slowdown,
        "busy time stretched by SMs": np.log(np.maximum(1, busy / sms)) - all_cases.log_slowdown,
    }


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


def inside(all_cases: Cases, scaled: Floats, chosen: Chosen) -> float:
    """Share of `chosen` in intervals as wide as those of the data's other models have to be."""
    known = np.flatnonzero(chosen & np.isfinite(scaled))
    alike = all_cases.of(str(all_cases.data[known[0]]))
    wide = {
        model: reach(all_cases, scaled, alike & (all_cases.model != model))
        for model in np.unique(all_cases.model[known])
    }
    return float(np.mean([scaled[each] <= wide[all_cases.model[each]] for each in known]))


def entry(
    all_cases: Cases, chosen: Chosen, by: str, log_errors: Floats, scaled: Floats | None = None
) -> dict[str, Any]:
    """What is said of one way to answer; `scaled` are its errors over their doubts."""
    low, high = interval_of(all_cases, chosen, log_errors)
    parts = {
        str(part): chosen & (all_cases.part == part) for part in np.unique(all_cases.part[chosen])
    }
    found: dict[str, Any] = {"data": str(all_cases.data[chosen][0]), "by": by}
    found |= {
        "steps": int(chosen.sum()),
        "mape": mape(log_errors[chosen]),
        "low": low,
        "high": high,
    }
    found["bias"] = float(np.mean(np.expm1(log_errors[chosen])))
    found["of_part"] = {part: mape(log_errors[at]) for part, at in parts.items()}
    if scaled is not None:
        held = {part: inside(all_cases, scaled, at) for part, at in parts.items()}
        found |= {"inside": inside(all_cases, scaled, chosen), "inside_of_part": held}
    return found


def scores(all_cases: Cases) -> dict[str, Any]:
    """The constants, and the errors of everything that they are compared with."""
    form, everything = FORMS[0], np.ones(len(all_cases.model), dtype=bool)
    slices, in_mode, limits = map(all_cases.of, (SLICES, MIG_MODE, LIMITS))
    found, doubts = left_out(all_cases, form, everything, models_of(all_cases))
    probed, probe_doubts, both = by_probe(all_cases, form)
    errors = dict(zip((*_SIGNS, _PROBE), (*found, probed), strict=True))
    each_doubt = (*doubts, probe_doubts)
    scaled = {
        sign: np.abs(log_errors) / doubt
        for (sign, log_errors), doubt in zip(errors.items(), each_doubt, strict=True)
    }
    asked = ((slices, errors), (in_mode, _SIGNS[2:]), (limits, _SIGNS[:2]))
    told = [
        entry(all_cases, at, sign, errors[sign], scaled[sign])
        for at, signs in asked
        for sign in signs
    ]
    chosen = chosen_forms(all_cases)
    compared = {f"form chosen by {rule}": each for rule, (each, _) in chosen.items()}
    compared |= {f"{_SIGNS[0]} and {_PROBE}": both, "trees": by_trees(all_cases)}
    compared |= without_fit(all_cases)
    of_limits = ~slices & ~in_mode
    return {
        "schema": 1,
        **constants(fitted(all_cases, form, everything)),
        "doubts": {
            sign: {
                "doubt": reach(all_cases, each, slices),
                "doubt_of_limits": reach(all_cases, each, of_limits),
            }
            for sign, each in scaled.items()
        },
        "forms_chosen": {rule: names for rule, (_, names) in chosen.items()},
        "scores": told + [entry(all_cases, slices, by, each) for by, each in compared.items()],
    }


def constants(found: Fitted) -> dict[str, Any]:
    """Those of the curve, and of each sign."""
    signs = {
        sign: {"constant": float(weights[0]), "slope": float(weights[1])}
        for sign, weights in zip(_SIGNS, found.weights, strict=True)
    }
    return {"curve": asdict(found.curve), "signs": signs}


def rounded(value: Any) -> Any:
    """`value` with every number in it to a thousandth."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


def main(words: Sequence[str]) -> None:
    print(json.dumps(rounded(scores(columns(cases(Path(words[0]))))), indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
