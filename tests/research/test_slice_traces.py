"""What traces tell of limits and slices is as far off as is said, and ranges hold what they say."""

import json
from pathlib import Path

import pytest

from advisor.prediction.model_file import load_model
from research.compute_mates import runs_apart, steps_of
from research.compute_mates import scored as mates_scored
from research.slice_cases import HOPPER
from research.slice_traces import on_slices, scored, under_limits

ROOT = Path(__file__).parents[2]
OTHERS = ROOT.parent / "shared" / "data"
FOLDER = ROOT / "benchmarks" / "slices"
TRACES = json.loads((FOLDER / "traces.json").read_text())["scores"]
MATES = json.loads((FOLDER / "mates.json").read_text())["scores"]
MODEL = load_model(ROOT / "models" / "sharing.json")


@pytest.mark.parametrize("said", TRACES[:4], ids=lambda each: each["check"])
def test_a_limit_left_out_of_the_probe_is_inside_its_range_nine_times_in_ten(said):
    assert 0.85 <= said["inside"] <= 0.95
    assert abs(said["bias"]) < 0.04
    probed = "others known" in said["check"]
    (key,) = (each for each in HOPPER if each in said["check"])
    found = scored(list(under_limits(key, MODEL, probed=probed)))
    assert found["inside"] == pytest.approx(said["inside"], abs=0.03)
    assert found["mape"] == pytest.approx(said["mape"], abs=0.01)


@pytest.mark.skipif(not OTHERS.is_dir(), reason="others' measurements are not on this machine")
def test_translated_steps_on_slices_of_an_a100_are_inside_their_ranges():
    found = scored(list(on_slices(OTHERS, MODEL)))
    assert found["mape"] == pytest.approx(TRACES[-1]["mape"], abs=0.01)
    assert found["mape"] < 0.13
    assert found["inside"] >= 0.9


def test_jobs_with_sms_of_their_own_slow_each_other_as_real_runs_under_limits_do():
    every, *_ = MATES[HOPPER[0]]
    assert abs(every["bias"]) < 0.25 * abs(every["alone_bias"])
    # Ranges of a job alone allow for hosts twice as slow; these runs had cores like the profiles'.
    assert 0.85 <= every["inside"] <= 0.985
    few = [step for run in runs_apart(HOPPER[1]) for step in steps_of(run, MODEL)]
    found, (said, *_) = mates_scored(0, few), MATES[HOPPER[1]]
    assert found["steps"] >= said["steps"]
    assert abs(found["bias"]) < abs(found["alone_bias"])
