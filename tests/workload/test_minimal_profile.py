"""A job of which only a log and nvidia-smi tell: its numbers as a profile."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.profile import Profile
from advisor.workload.records import parse_record
from advisor.workload.store import load_profile, read_profile
from advisor.workload.writing import profile_text

NUMBERS = {
    "schema": 1, "workload": "my-job", "gpu": "a100-40gb", "batch_size": 64, "step_s": 0.12,
    "memory_mib": 5300, "power_w": 190, "gpu_utilization": 0.83, "memory_utilization": 0.41,
}  # fmt: skip
WATCHED = MinimalProfile(**NUMBERS)

SHARES = st.floats(0, 1)
# nvidia-smi's of the GPU and of its memory: both, the first, or none.
UTILISATIONS = st.tuples(SHARES, SHARES | st.none()) | st.just((None, None))


def _minimal(utilisations, **numbers):
    gpu, memory = utilisations
    return MinimalProfile(gpu_utilization=gpu, memory_utilization=memory, **numbers)


MINIMAL = st.builds(
    _minimal,
    schema=st.just(1),
    workload=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}", fullmatch=True),
    gpu=st.sampled_from(["a100-40gb", "h200-141gb"]),
    batch_size=st.integers(1, 10**6),
    step_s=st.floats(1e-6, 60),
    memory_mib=st.floats(100, 2**20),
    power_w=st.none() | st.floats(0, 1e4),
    utilisations=UTILISATIONS,
    examples_per_epoch=st.none() | st.integers(1, 10**6),
)


def written(tmp_path, **changes):
    path = tmp_path / "my-job.json"
    path.write_text(json.dumps({k: v for k, v in (NUMBERS | changes).items() if v is not ...}))
    return path


def refused(tmp_path, **changes):
    with pytest.raises(InvalidInput) as refusal:
        read_profile(written(tmp_path, **changes))
    assert "my-job.json: " in str(refusal.value)
    assert "--from-numbers --help" in str(refusal.value)
    return str(refusal.value)


@given(MINIMAL)
def test_what_is_written_is_read_back_equal(minimal):
    assert parse_record(MinimalProfile, minimal_text(minimal), "here") == minimal
    assert parse_record(Profile, profile_text(minimal.whole()), "here") == minimal.whole()


def test_the_numbers_of_a_log_are_a_profile_in_which_nothing_else_was_measured(tmp_path):
    read = read_profile(written(tmp_path))
    assert read == WATCHED.whole()
    assert (read.name, read.gpu, read.workload.batch) == ("my-job", "a100-40gb", 64)
    assert read.step_s == 0.12
    assert read.busy_share == pytest.approx(0.83)
    assert (read.memory.device_mib, read.power_w) == (5300, 190)
    unknown = (read.host_s, read.trace, read.mps, read.idle_power_w, read.provenance, read.epoch_s)
    assert unknown == (None,) * 6
    assert load_profile(str(written(tmp_path)), "a100-40gb") == read


def test_what_is_not_known_of_it_is_null(tmp_path):
    nothing = {"power_w": None, "gpu_utilization": None, "memory_utilization": None}
    read = read_profile(written(tmp_path, **nothing))
    assert (read.power_w, read.counters, read.gpu_s, read.busy_share) == (None,) * 4


def test_an_epoch_has_a_length_where_its_examples_are_counted(tmp_path):
    read = read_profile(written(tmp_path, examples_per_epoch=6400))
    assert read.epoch_s == pytest.approx(12)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"step_s": float("nan")}, "step_s"),
        ({"step_s": float("inf")}, "step_s"),
        ({"step_s": -0.12}, "step_s must be finite and above 0, got -0.12"),
        ({"step_s": 0}, "step_s must be finite and above 0, got 0"),
        ({"step_s": 120}, "120 ms are 0.12 s"),
        ({"memory_mib": -1}, "memory_mib must be above 0"),
        ({"memory_mib": 0}, "memory_mib must be above 0"),
        ({"memory_mib": 9}, "memory_mib must be at least 100, got 9: a CUDA context alone takes"),
        ({"memory_mib": 9}, "9 GiB are 9216"),
        ({"memory_mib": 1e9}, "memory_mib must be at most"),
        ({"power_w": -1}, "power_w must be finite and at least 0"),
        ({"power_w": 190_000}, "power_w must be at most 10,000"),
        ({"gpu_utilization": 83}, "gpu_utilization is a share in 0..1, got 83: 83 % is 0.83"),
        ({"memory_utilization": 41.0}, "got 41: 41 % is 0.41"),
        ({"gpu_utilization": None}, "says nothing without gpu_utilization: nvidia-smi shows both"),
        ({"gpu_utilization": -0.1}, "gpu_utilization is a share in 0..1, got -0.1."),
        ({"gpu_utilization": 830}, "share in 0..1, got 830."),
        ({"gpu_utilization": "0.83"}, "gpu_utilization: Input should be a valid number"),
        ({"batch_size": 0}, "batch must be at least 1"),
        ({"batch_size": 64.5}, "batch_size: Input should be a valid integer"),
        ({"examples_per_epoch": 0}, "examples_per_epoch must be at least 1"),
        ({"workload": "../my-job"}, "names no workload"),
        ({"schema": 2}, "its schema is 2, this advisor reads 1"),
        ({"step_s": ...}, "step_s is missing"),
        ({"power_w": ...}, "power_w is missing"),
        ({"schema": ...}, "schema is missing"),
        ({"utilisation": 0.83}, "utilisation is no known field"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_or_have_another_unit_are_refused(changes, said, tmp_path):
    assert said in refused(tmp_path, **changes)


def test_numbers_may_be_written_as_windows_writes_them(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_profile(path).step_s == WATCHED.step_s


def test_a_number_that_is_there_twice_is_refused(tmp_path):
    path = tmp_path / "my-job.json"
    path.write_text(minimal_text(WATCHED).replace("}", ', "step_s": 0.2}'))
    with pytest.raises(InvalidInput, match="'step_s' occurs twice"):
        read_profile(path)


def test_a_profile_of_another_gpu_is_refused_as_a_whole_one_is(tmp_path):
    with pytest.raises(InvalidInput, match="measured on a100-40gb, but h200-141gb was asked for"):
        load_profile(str(written(tmp_path)), "h200-141gb")


def test_nothing_here_knows_how_to_start_it():
    with pytest.raises(InvalidInput, match="my-job: its profile is bare numbers"):
        WATCHED.whole().workload.check_startable()


def test_a_whole_profile_is_none_of_bare_numbers(tmp_path):
    path = tmp_path / "whole.json"
    path.write_text(profile_text(replace(WATCHED.whole(), host_s=0.01)))
    assert read_profile(path).host_s == 0.01
