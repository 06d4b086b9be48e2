"""The constants of slices are what the measurements say, and the score is of models left out."""

import json
from pathlib import Path

import numpy as np
import pytest

from advisor.prediction.part_curve import PartCurve
from research.slice_answers import left_out, models_of
from research.slice_cases import SLICES, Case, cases, limit_cases
from research.slice_fit import FORMS, columns, fitted
from research.slice_score import mape

ROOT = Path(__file__).parents[2]
OTHERS = ROOT.parent / "shared" / "data"
ACCURACY = json.loads((ROOT / "benchmarks" / "slices" / "accuracy.json").read_text())
TRUTH = PartCurve(sharpness=2.0, sms=0.9, bandwidth=0.4, surplus=1.5)


def invented(seed=0):
    """Jobs whose steps follow the curve exactly, three numbers telling their work."""
    rng = np.random.default_rng(seed)
    for number in range(24):
        shown = rng.uniform(0.02, 0.9)
        odds = 1.0 + 0.8 * np.log(shown)
        power, busy = np.exp((odds - 2) / 3), np.exp((odds - 1) / 3)
        for data, part, shares in (
            (SLICES, "1g", (0.13, 0.125)), (SLICES, "3g", (0.39, 0.5)), (SLICES, "4g", (0.52, 0.5)),
            ("limits", "14 %", (0.13, 1.0)), ("limits", "50 %", (0.5, 1.0)),
        ):  # fmt: skip
            slower = float(np.exp(TRUTH.log_slowdown(odds, TRUTH.work_slowdown(*shares))))
            yield Case(
                data, f"model {number % 4}", f"job {number}", part, shares, (1.0, 1.0), slower,
                (shown, float(power), float(busy)),
            )  # fmt: skip


def test_a_fit_to_steps_that_follow_the_curve_finds_it():
    everything = columns(list(invented()))
    found = fitted(everything, FORMS[0], np.ones(len(everything.model), dtype=bool))
    for name in ("sharpness", "sms", "bandwidth", "surplus"):
        assert getattr(found.curve, name) == pytest.approx(getattr(TRUTH, name), rel=0.02)
    assert found.weights[0] == pytest.approx([1.0, 0.8], rel=0.02)
    assert found.weights[1] == pytest.approx([2.0, 3.0], rel=0.02)


def test_a_model_is_scored_by_a_fit_that_never_saw_it():
    everything = columns(list(invented()))
    all_of_it = np.ones(len(everything.model), dtype=bool)
    odd = [*invented()]
    odd[0] = Case(**{**{f: getattr(odd[0], f) for f in odd[0].__slots__}, "slowdown": 50.0})
    plain, _ = left_out(everything, FORMS[0], all_of_it, ["model 0"])
    changed, _ = left_out(columns(odd), FORMS[0], all_of_it, ["model 0"])
    kept = everything.model == "model 0"
    kept[0] = False
    assert changed[0][kept] == pytest.approx(plain[0][kept], abs=1e-9)


def test_every_profile_with_a_probe_is_a_case_under_each_of_its_limits():
    found = list(limit_cases())
    assert len({(each.data, each.job) for each in found}) * 3 == len(found)
    assert all(each.slowdown >= 1 for each in found)


@pytest.mark.skipif(not OTHERS.is_dir(), reason="others' measurements are not on this machine")
def test_the_committed_accuracy_is_what_the_measurements_say():
    everything = columns(cases(OTHERS))
    all_of_it = np.ones(len(everything.model), dtype=bool)
    found = fitted(everything, FORMS[0], all_of_it)
    for name, value in ACCURACY["curve"].items():
        assert getattr(found.curve, name) == pytest.approx(value, rel=0.1)
    slices = everything.of(SLICES)
    errors, _ = left_out(everything, FORMS[0], all_of_it, models_of(everything, SLICES))
    for sign, entry in zip(errors, ACCURACY["scores"], strict=False):
        assert mape(sign[slices]) == pytest.approx(entry["mape"], abs=0.02)
