"""Profiles of a GPU on which nobody measured: found, estimated, kept apart from measured ones."""

from dataclasses import replace

import pytest

from advisor.errors import InvalidInput, UnknownName
from advisor.files.writing import record_line
from advisor.hardware.gpus import gpu
from advisor.prediction.find_profile import find_profile, nearest_profile
from advisor.prediction.other_gpu import on_gpu
from advisor.prediction.predictor import why_wide
from advisor.sharing import parse_sharing
from advisor.workload.store import measured_profiles
from tests import synthetic

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
    path.write_text(record_line(profile))
    return path


def test_what_nobody_measured_is_estimated_from_the_gpu_most_like_it(folder):
    assert find_profile(RESNET, A100, folder).estimated_from == "h200-141gb"
    assert find_profile(BERT, A100, folder).estimated_from == "h100-sxm-80gb"
    assert find_profile(BERT, A100, folder) is find_profile(BERT, A100, folder)


@pytest.mark.parametrize("faster", ["h200-141gb", "h100-sxm-80gb"])
def test_of_gpus_about_as_like_it_the_one_whose_host_took_least_says_what_it_takes(folder, faster):
    for key in ("h200-141gb", "h100-sxm-80gb", "l4-24gb"):
        host_s = {faster: 0.02, "l4-24gb": 0.01}.get(key, 0.03)
        there = synthetic.profile(RESNET, host_s=host_s, gpu_s=0.001)
        write(folder, replace(there, gpu=key, host_check_s=None if key == faster else 0.001))
    assert nearest_profile(RESNET, A100, folder).gpu == faster


def test_what_was_measured_goes_before_any_estimate(folder):
    own = replace(synthetic.profile(RESNET, gpu_s=0.9), gpu="a100-40gb")
    write(folder, own)
    assert find_profile(RESNET, A100, folder) == own
    assert find_profile(BERT, H200, folder).estimated_from is None


def test_no_estimate_is_made_from_an_estimate(folder):
    estimate = replace(on_gpu(synthetic.profile(RESNET), H100), gpu="h100-sxm-80gb")
    write(folder, estimate)
    assert nearest_profile(RESNET, A100, folder).gpu == "h200-141gb"


def test_a_workload_that_was_measured_nowhere_is_refused(folder, tmp_path_factory):
    with pytest.raises(InvalidInput, match="a100-40gb"):
        find_profile(RESNET, A100, tmp_path_factory.mktemp("empty"))
    for here in (A100, H200):
        with pytest.raises(UnknownName, match=rf"Did you mean .*{RESNET}.* {here.key}:"):
            find_profile(RESNET.replace("bs", "bs9"), here, folder)


def test_a_file_of_another_gpu_is_estimated_unless_it_is_an_estimate_itself(folder):
    there = str(folder / "h200-141gb" / f"{RESNET}.json")
    write(folder, replace(synthetic.profile(RESNET, gpu_s=0.9), gpu="a100-40gb"))
    assert find_profile(there, A100, folder).estimated_from == "h200-141gb"
    assert find_profile(there, A100, folder) is find_profile(there, A100, folder)
    estimate = write(folder, on_gpu(synthetic.profile(RESNET), H100))
    with pytest.raises(InvalidInput, match="h200-141gb"):
        find_profile(str(estimate), A100, folder)


def test_nothing_is_learnt_from_an_estimate(folder):
    write(folder, on_gpu(synthetic.profile(RESNET), H100))
    assert measured_profiles("h100-sxm-80gb", folder)[0].keys() == {BERT}
    with pytest.raises(InvalidInput, match="are estimates"):
        measured_profiles("h100-sxm-80gb", folder, {RESNET})


WHOLE = synthetic.profile()
DARK = replace(synthetic.profile(BERT), trace=None)
BARE = replace(DARK, counters=None, mps=None)


@pytest.mark.parametrize(
    ("jobs", "sharing", "lacking"),
    [
        ([WHOLE, WHOLE], "mps=50,50", []),
        ([BARE, BARE], "serial", []),
        ([BARE], "mps", []),
        ([WHOLE, BARE], "naive", ["trace"]),
        ([WHOLE, BARE], "mig=3g.71gb,4g.71gb", ["trace"]),
        ([WHOLE, replace(BARE, gpu_s=None)], "mps", ["utilisation", "trace", "counters"]),
    ],
)
def test_a_wide_range_names_the_job_and_what_its_profile_lacks(jobs, sharing, lacking):
    reason = why_wide(jobs, parse_sharing(sharing), H200)
    assert (reason is None) == (not lacking)
    assert all(part in reason for part in [BERT, *lacking] if lacking)
