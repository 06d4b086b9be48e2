"""Estimates of steps on parts of a GPU from nvidia-smi's numbers, each model left out of the fit.

What `research.slice_score` scores: the chosen form of the answer, and what it is compared with.
"""

from collections.abc import Sequence

import numpy as np

from advisor.prediction.trace import Floats
from research.slice_cases import LIMITS, SLICES
from research.slice_fit import FORMS, Cases, Chosen, Fitted, Form, fitted

SIGNS = ("memory utilisation", "power", "GPU utilisation")
_ODDS = np.linspace(-5, 5, 401)


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
    errors = np.full((len(SIGNS), len(all_cases.model)), np.nan)
    doubts = errors.copy()
    for model in models:
        own = among & (all_cases.model == model)
        found = fitted(all_cases, form, among & ~own)
        for sign in range(len(SIGNS)):
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
        own, simplest = slices & ~others, int(np.argmax(means <= means[best] + spare))
        for rule, at in zip(rules, (best, simplest), strict=True):
            errors[rule][own] = _error(fitted(all_cases, FORMS[at], others), all_cases, 0)[own]
            names[rule][model] = FORMS[at].name
    return {rule: (errors[rule], names[rule]) for rule in rules}


def by_probe(all_cases: Cases, form: Form) -> tuple[Floats, Floats, Floats]:
    """Log errors and doubts if each job's work is estimated from its steps under two limits.

    And log errors if it is the mean of that and of the estimate from memory utilisation.
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
            for errors, work in ((alone, odds), (both, (odds + shown[own][0]) / 2)):
                log_slowdown = found.curve.log_slowdown(work, slowed[own])
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
