"""How well left-out batch sizes are estimated, and that the score says so."""

from pathlib import Path

import pytest

from research.batch_score import committed, left_out, of_profiles, scored, scores
from tests.prediction.test_other_batch import measured

HERE = Path(__file__)
THEIRS = HERE.parents[3] / "shared" / "data"


def test_a_workload_that_obeys_the_law_is_found_again():
    line = {size: 3.0 + 0.1 * size for size in (32, 48, 64, 80)}
    (between, beyond) = scored("made up", "step", left_out(line))
    assert (between.where, between.sizes, between.inside) == ("between", 2, 1.0)
    assert between.mape < 0.03
    assert beyond.mape == pytest.approx(0.0, abs=0.02)
    assert between.mape < min(between.as_step, between.as_example)


def test_sizes_too_far_from_the_others_are_not_scored():
    assert len(list(left_out({1: 1.0, 2: 2.0, 64: 64.0}))) == 2


def test_whole_profiles_are_scored_by_their_two_paths():
    profiles = [measured(size) for size in (16, 64, 256)]
    assert all(abs(each.error) < 0.1 for each in of_profiles(profiles))


def test_the_committed_profiles_have_two_networks_at_three_sizes():
    found = committed(HERE.parents[2] / "benchmarks" / "translation" / "profiles")
    assert sorted(map(len, found)) == [3, 3]


@pytest.mark.skipif(not THEIRS.is_dir(), reason="what others measured is not at hand")
def test_between_sizes_that_others_measured_a_step_is_five_per_cent_off_and_intervals_hold():
    between = [each for each in scores(THEIRS) if each.where == "between"]
    assert {each.source for each in between} > {"MISO", "MIGPerf", "Zeus, V100", "Zeus, A40"}
    steps = [each for each in between if each.number == "step" and each.sizes > 6]
    assert all(each.mape <= 0.05 for each in steps)
    assert all(each.inside >= 0.85 for each in steps)
    assert all(each.mape < min(each.as_step, each.as_example) for each in steps)
