"""Calibrations of a machine as files, and profiles that were made elsewhere."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.files.writing import record_text
from advisor.hardware.gpus import gpu
from advisor.prediction.model import load_model
from advisor.workload.profile_checks import Present, stale_profiles
from advisor.workload.spec import Script
from advisor.workload.store import load_calibration, model_path, read_calibration
from tests import synthetic
from tests.measure.calibrate.recorded import calibration

H200 = gpu("h200-141gb")
RECORDED = Path(__file__).parents[1] / "measure" / "calibrate" / "h200.json"


@pytest.fixture
def file(tmp_path):
    (tmp_path / "c.json").write_text(record_text(calibration()))
    return tmp_path / "c.json"


def test_a_calibration_reads_back_as_it_was_written(file):
    assert read_calibration(file) == calibration()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", 0),
        ("gpu", None),
        ("idle_power", 76.0),
        ("idle_power_w", float("inf")),
        ("contexts.driver_mib", -1.0),
        ("switching.0.overhead", 1.0),
        ("switching.0.switch_s", float("nan")),
    ],
)
def test_a_calibration_that_cannot_be_true_is_refused_with_file_and_command(file, path, value):
    document = node = json.loads(file.read_text())
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    for key in parents:
        node = node[key]
    node[last] = value
    file.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=r"c\.json.*advisor calibrate"):
        read_calibration(file)


def test_a_calibration_is_read_for_its_own_gpu_alone(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert load_calibration(H200.key) is None
    with pytest.raises(InvalidInput, match=r"none\.json"):
        load_calibration(H200.key, tmp_path / "none.json")
    with pytest.raises(InvalidInput, match=r"h200-141gb.*a100-80gb"):
        load_calibration("a100-80gb", file)


def test_a_calibration_of_an_h200_agrees_with_what_runs_there_taught():
    found, model = load_calibration(H200.key, RECORDED)[1], load_model(model_path()).of(H200)
    contexts = found.contexts
    assert contexts.driver_mib == pytest.approx(H200.reserved_mib, abs=1)
    assert contexts.plain_mib == pytest.approx(model.context.usual_mib, rel=0.05)
    for limited in contexts.limited:
        per_sm_mib = (contexts.mps_mib - limited.context_mib) / (contexts.sms - limited.sms)
        assert per_sm_mib == pytest.approx(model.context.per_sm_mib, rel=0.02)
        assert limited.sms == 2 * int(limited.limit_pct * H200.sms / 200)
    # Replay's slices are fitted to whole steps and stand for more than slices.
    slicing, seen = model.physics.slicing, found.switching[0]
    assert 1 / 3 < seen.slice_s / slicing.slice_s < 3
    assert 1 / 3 < seen.switch_s / slicing.switch_s < 3


HERE = synthetic.PROVENANCE
A = replace(synthetic.profile("resnet50-imagenet64-bs128"), host_check_s=None)
B = replace(synthetic.profile("bert-base-finetune-bs16"), host_check_s=1e-3)


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        ({}, [""]),
        ({"driver": "580.159.04", "torch": "2.11.3+cu130"}, [""]),
        ({"driver": "590.1", "torch": "2.12.0"}, ["590", "2.12"]),
        ({"host_cores": 64}, ["--check-host"]),
    ],
)
def test_a_profile_made_with_another_driver_torch_or_host_is_stale(change, stale):
    notes = list(map(str, stale_profiles([A, B], replace(HERE, **change))))
    assert [word in note for word, note in zip(stale, notes, strict=False)] == [True] * len(notes)
    assert len(notes) == len([word for word in stale if word])
    assert all(A.name in note and B.name in note for note in notes)
    assert stale_profiles([A, B], Present()) == (), "nothing is known of the machine here"


def test_a_script_is_not_stale_by_the_torch_of_advisors_environment():
    script = Script(command=("env/bin/python", "train.py"), folder="/")
    own = replace(A, workload=replace(A.workload, source="script", script=script))
    assert stale_profiles([own], replace(HERE, torch="2.12.0")) == ()


def test_a_checked_host_makes_only_profiles_stale_that_do_not_know_their_own():
    (host,) = stale_profiles([A, B], replace(HERE, host_cpu="another"), host_known=True)
    assert host.jobs == (A.name,)
