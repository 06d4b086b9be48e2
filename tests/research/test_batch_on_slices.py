"""Batch sizes that were left out, on slices of an A100."""

from pathlib import Path

import pytest

from advisor.prediction.interval import Interval
from advisor.prediction.model_file import load_model
from advisor.prediction.predictor import Predictor
from advisor.workload.store import model_path
from research.batch_on_slices import A100, OnSlice, bare_profiles, on_slices, summary

THEIRS = Path(__file__).parents[3] / "shared" / "data"
theirs = pytest.mark.skipif(not THEIRS.is_dir(), reason="what others measured is not at hand")


def test_errors_with_and_without_the_own_batch_size_stand_beside_each_other():
    step = OnSlice(
        model="m", batch=8, slice="1g.5gb", measured_s=1.0, left_out=Interval(0.7, 0.8, 0.9),
        known=Interval(0.9, 1.1, 1.2),
    )  # fmt: skip
    told = summary([step])
    assert told["mape_left_out"] == pytest.approx(0.2)
    assert told["mape_known"] == pytest.approx(0.1)
    assert (told["inside_left_out"], told["inside_known"]) == (0.0, 1.0)


@theirs
def test_each_model_has_its_bare_numbers_at_four_sizes():
    assert {len(each) for each in bare_profiles(THEIRS).values()} == {4}


@theirs
def test_leaving_a_batch_size_out_adds_little_to_the_error_on_slices():
    told = summary(list(on_slices(THEIRS, Predictor(A100, load_model(model_path(None))))))
    assert told["steps"] > 50
    assert told["mape_left_out"] < told["mape_known"] + 0.03
    assert told["inside_left_out"] >= 0.85
