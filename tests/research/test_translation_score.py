"""Profiles on GPUs that they were not measured on, beside what was measured there."""

import json
from pathlib import Path

import pytest

from research.files import profiles_in
from research.translation_score import FOLDER, TranslatedStep, scored, scores

THEIRS = Path(__file__).parents[3] / "shared" / "data"
# Of the GPU's part between H200 and H100, of FP32 language models, of TF32 vision and of timm's.
MOST = (0.04, 0.04, 0.12, 0.12, 0.12, 0.20)


def step(predicted_s, measured_s, spread=0.1):
    return TranslatedStep("made-up", "a100-40gb", 1.0, predicted_s, measured_s, spread)


def test_a_score_counts_errors_both_ways_and_what_lies_inside():
    found = scored("made up", [step(1.1, 1.0), step(0.9, 1.0), step(2.0, 1.0)])
    assert found.mape == pytest.approx(1.2 / 3)
    assert found.bias == pytest.approx(1.0 / 3)
    assert found.worst == pytest.approx(1.0)
    assert found.inside == pytest.approx(2 / 3)
    assert found.one_ratio == 0


def test_the_written_scores_reach_their_targets():
    written = json.loads((FOLDER.parent / "accuracy.json").read_text())["scores"]
    assert [each["mape"] <= most for each, most in zip(written, MOST, strict=True)] == [True] * 6
    steps = sum(each["steps"] for each in written)
    assert 0.85 <= sum(each["steps"] * each["inside"] for each in written) / steps <= 0.95


def test_the_written_scores_of_our_own_profiles_are_those_of_now():
    written = json.loads((FOLDER.parent / "accuracy.json").read_text())["scores"]
    for now, then in zip(scores(), written, strict=False):
        assert (now.check, now.steps) == (then["check"], then["steps"])
        assert now.mape == pytest.approx(then["mape"], abs=0.003)


@pytest.mark.skipif(not THEIRS.exists(), reason="needs others' timings, which are not ours to ship")
def test_what_others_timed_is_reached_as_was_written():
    written = json.loads((FOLDER.parent / "accuracy.json").read_text())["scores"]
    found = scores(THEIRS)
    assert [each.check for each in found] == [each["check"] for each in written]
    for now, then in zip(found, written, strict=True):
        assert now.mape == pytest.approx(then["mape"], abs=0.005)


def test_every_profile_of_the_check_is_of_a_gpu_and_has_its_kernels():
    for each in profiles_in(FOLDER).values():
        assert each.trace is not None
        assert each.estimated_from is None
