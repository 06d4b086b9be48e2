"""Calibrations as files, and what of them cannot be true."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.store import load_calibration, read_calibration
from advisor.workload.writing import calibration_text
from tests.measure.calibrate.recorded import calibration


def test_a_calibration_reads_back_as_it_was_written(tmp_path):
    (tmp_path / "c.json").write_text(calibration_text(calibration()))
    assert read_calibration(tmp_path / "c.json") == calibration()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["schema"], 2, "schema is 2"),
        (["gpu"], None, "gpu"),
        (["host"], [], "begin with one core"),
        (["host", 0, "cores"], 3, "begin with one core"),
        (["host", 0, "check_s"], 0.0, "takes time"),
        (["host", 0, "check_s"], -1.0, "takes time"),
        (["host", 0, "check_s"], float("nan"), "check_s"),
        (["idle_power_w"], -76.0, "idle_power_w"),
        (["idle_power_w"], float("inf"), "idle_power_w"),
        (["contexts", "driver_mib"], -1.0, "driver_mib"),
        (["contexts", "limited", 0, "context_mib"], -1.0, "context_mib"),
        (["switching", 0, "overhead"], 1.0, "overhead"),
        (["switching", 0, "slice_s"], -1e-3, "slice_s"),
        (["switching", 0, "switch_s"], float("nan"), "switch_s"),
        (["idle_power"], 76.0, "idle_power"),
    ],
)
def test_a_calibration_that_cannot_be_true_is_refused_with_its_field(tmp_path, path, value, said):
    document = json.loads(calibration_text(calibration()))
    *parents, last = path
    node = document
    for key in parents:
        node = node[key]
    node[last] = value
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=said) as refusal:
        read_calibration(tmp_path / "c.json")
    assert "advisor calibrate" in str(refusal.value)


def test_a_truncated_calibration_is_refused(tmp_path):
    (tmp_path / "c.json").write_text(calibration_text(calibration())[:-50])
    with pytest.raises(InvalidInput, match=r"c\.json"):
        read_calibration(tmp_path / "c.json")


def test_each_sm_taken_away_saves_what_the_limits_tried_say():
    assert calibration().contexts.per_sm_mib == pytest.approx((290 / 66 + 528 / 120) / 2)


@given(st.integers(1, 100), st.integers(1, 100))
def test_more_busy_cores_never_seem_faster_than_those_measured(one, other):
    made = calibration()
    assert made.host_check_s(max(one, other)) >= made.host_check_s(min(one, other)) * (1 - 1e-12)
    assert made.host_check_s(1) == 1e-3
    assert made.host_check_s(5) == pytest.approx(1.05e-3)
    assert made.host_check_s(100) == pytest.approx(1.1e-3)


def test_a_user_who_never_calibrated_has_no_calibration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_calibration("h200-141gb") is None
    with pytest.raises(InvalidInput, match=r"none\.json"):
        load_calibration("h200-141gb", tmp_path / "none.json")


def test_a_calibration_of_another_gpu_is_refused(tmp_path):
    (tmp_path / "c.json").write_text(calibration_text(calibration()))
    with pytest.raises(InvalidInput, match="measured on h200-141gb, but a100-80gb"):
        load_calibration("a100-80gb", tmp_path / "c.json")
