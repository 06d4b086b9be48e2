"""Profiles of a GPU on which nobody measured: found, estimated, kept apart from measured ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.catalogue import gpu
from advisor.prediction.estimated_profile import found_profile, measured_on, translated
from advisor.prediction.gpu_transfer import on_gpu
from advisor.workload.estimates import measured_profiles, write_estimates
from advisor.workload.gpu_side import GpuSide, Operator, OperatorTime
from advisor.workload.store import read_profile
from advisor.workload.writing import calibration_text, profile_text
from tests import synthetic
from tests.measure.calibrate.recorded import calibration

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"
A100, H100, H200 = gpu("a100-40gb"), gpu("h100-sxm-80gb"), gpu("h200-141gb")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """One workload measured on an H200, and another on an H100 too."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "nobody"))
    for key, names in (("h200-141gb", (RESNET, BERT)), ("h100-sxm-80gb", (BERT,))):
        (tmp_path / key).mkdir()
        for name in names:
            write(tmp_path, replace(synthetic.profile(name), gpu=key))
    return tmp_path


def write(folder, profile):
    (folder / profile.gpu).mkdir(exist_ok=True)
    path = folder / profile.gpu / f"{profile.name}.json"
    path.write_text(profile_text(profile))
    return path


def test_what_nobody_measured_is_estimated_from_the_gpu_most_like_it(folder):
    assert found_profile(RESNET, A100, folder).estimated_from == "h200-141gb"
    assert found_profile(BERT, A100, folder).estimated_from == "h100-sxm-80gb"
    assert found_profile(BERT, A100, folder) is found_profile(BERT, A100, folder)


@pytest.mark.parametrize("faster", ["h200-141gb", "h100-sxm-80gb"])
def test_of_gpus_about_as_like_it_the_one_whose_host_took_least_says_what_it_takes(folder, faster):
    for key in ("h200-141gb", "h100-sxm-80gb", "l4-24gb"):
        host_s = {faster: 0.02, "l4-24gb": 0.01}.get(key, 0.03)
        there = synthetic.profile(RESNET, host_s=host_s, gpu_s=0.001)
        write(folder, replace(there, gpu=key, host_check_s=None if key == faster else 0.001))
    assert measured_on(RESNET, A100, folder).gpu == faster


def test_a_host_path_that_was_not_measured_is_no_fast_one(folder):
    unknown = replace(synthetic.profile(RESNET), gpu="h100-sxm-80gb", host_s=None, host=None)
    write(folder, replace(unknown, trace=None))
    assert measured_on(RESNET, A100, folder).gpu == "h200-141gb"


def test_what_was_measured_goes_before_any_estimate(folder):
    own = replace(synthetic.profile(RESNET, gpu_s=0.9), gpu="a100-40gb")
    write(folder, own)
    assert found_profile(RESNET, A100, folder) == own
    assert found_profile(BERT, H200, folder).estimated_from is None


def test_no_estimate_is_made_from_an_estimate(folder):
    estimate = replace(on_gpu(synthetic.profile(RESNET), H100), gpu="h100-sxm-80gb")
    write(folder, estimate)
    assert measured_on(RESNET, A100, folder).gpu == "h200-141gb"


def calibrated(folder, key, fp32_ms, *, own):
    """A calibration of the GPU `key` that says how long 2 TFLOP take there, as a file."""
    product = OperatorTime(Operator("linear", "1x10000x10000x10000", "fp32"), fp32_ms)
    side = GpuSide(l2_mib=None, sm_clock_mhz=None, launch_us=None, times=(product,))
    path = folder / "nobody" / "advisor" / "calibrations" / f"{key}.json" if own else folder / "c"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(calibration_text(calibration(gpu=key, gpu_side=side)))
    return path


def test_rates_that_were_measured_replace_those_of_the_maker(folder):
    stated = found_profile(BERT, A100, folder)
    given = calibrated(folder, A100.key, 500.0, own=False)
    assert found_profile(BERT, A100, folder, given).gpu_s > 2 * stated.gpu_s
    calibrated(folder, A100.key, 50.0, own=True)
    assert found_profile(BERT, A100, folder).gpu_s < stated.gpu_s
    assert found_profile(BERT, A100, folder, given).gpu_s > 2 * stated.gpu_s
    assert found_profile(BERT, A100, folder, Path("none")) == stated


def test_rates_count_of_the_gpu_that_an_estimate_comes_from_too(folder):
    stated = found_profile(BERT, A100, folder)
    calibrated(folder, "h100-sxm-80gb", 500.0, own=True)
    assert found_profile(BERT, A100, folder).gpu_s < stated.gpu_s / 2
    assert found_profile(BERT, A100, folder, Path("none")) == stated


def test_a_workload_that_was_measured_nowhere_is_refused(folder):
    for here in (A100, H200):
        with pytest.raises(UnknownName, match=rf"Near: .*{RESNET}.* measure it on .*\({here.key};"):
            found_profile(RESNET.replace("bs", "bs9"), here, folder)


def test_where_nothing_was_measured_on_any_gpu_that_is_said(tmp_path):
    with pytest.raises(InvalidInput, match="no workload was measured on a100-40gb"):
        found_profile(RESNET, A100, tmp_path)


def test_a_file_of_another_gpu_is_refused_with_what_translates_it(folder):
    with pytest.raises(InvalidInput, match="advisor translate"):
        found_profile(str(folder / "h200-141gb" / f"{RESNET}.json"), A100, folder)


def test_estimates_are_read_back_as_they_were_written(folder, tmp_path):
    ((_, estimate),) = translated([RESNET], A100, folder)
    (path,) = write_estimates(tmp_path / "out", [estimate])
    assert read_profile(path) == estimate
    assert write_estimates(tmp_path / "out", [estimate]) == (path,)


def test_an_estimate_never_replaces_what_was_measured(folder):
    own = write(folder, replace(synthetic.profile(RESNET), gpu="a100-40gb"))
    before = own.read_text()
    with pytest.raises(InvalidInput, match="measured on a100-40gb"):
        translated([RESNET], A100, folder)
    with pytest.raises(InvalidInput, match="an estimate does not take its place"):
        write_estimates(own.parent, [on_gpu(synthetic.profile(RESNET), A100)])
    assert own.read_text() == before


def test_nothing_is_learnt_from_an_estimate(folder):
    write(folder, on_gpu(synthetic.profile(RESNET), H100))
    assert measured_profiles("h100-sxm-80gb", folder)[0].keys() == {BERT}
    with pytest.raises(InvalidInput, match="its profile is an estimate"):
        measured_profiles("h100-sxm-80gb", folder, {RESNET})
