"""Bare numbers of a job, from its log and nvidia-smi, as a profile."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.files.records import parse_record
from advisor.files.writing import record_line
from advisor.workload.minimal_profile import MinimalProfile, minimal_text
from advisor.workload.profile import Profile
from advisor.workload.store import load_profile, read_profile

NUMBERS = {
    "schema": 1,
    "workload": "my-job",
    "gpu": "a100-40gb",
    "batch_size": 64,
    "step_s": 0.12,
    "memory_mib": 5300,
    "power_w": 190,
    "gpu_utilization": 0.83,
    "memory_utilization": 0.41,
}
WATCHED = MinimalProfile(**NUMBERS)

SHARES = st.floats(0, 1)
NUMBERS_OF_A_JOB = dict(
    schema=st.just(1),
    workload=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,119}", fullmatch=True),
    gpu=st.sampled_from(["a100-40gb", "h200-141gb"]),
    batch_size=st.integers(1, 10**6),
    memory_mib=st.floats(100, 2**20),
    power_w=st.none() | st.floats(0, 1e4),
    gpu_utilization=st.floats(0.005, 1),
    memory_utilization=SHARES | st.none(),
)
MINIMAL = st.builds(
    MinimalProfile,
    **NUMBERS_OF_A_JOB,
    step_s=st.floats(1e-6, 60),
    examples_per_epoch=st.none() | st.integers(1, 10**6),
) | st.builds(
    MinimalProfile,
    **NUMBERS_OF_A_JOB,
    step_s=st.none() | st.floats(1e-6, 60),
    duration_s=st.floats(60, 10**6),
)


def written(tmp_path, **changes):
    path = tmp_path / "my-job.json"
    path.write_text(json.dumps({k: v for k, v in (NUMBERS | changes).items() if v is not ...}))
    return path


@given(MINIMAL)
def test_what_is_written_is_read_back_equal(minimal):
    assert parse_record(MinimalProfile, minimal_text(minimal), "here") == minimal
    assert parse_record(Profile, record_line(minimal.whole()), "here") == minimal.whole()


def test_the_numbers_of_a_log_are_a_profile_in_which_nothing_else_was_measured(tmp_path):
    read = read_profile(written(tmp_path, examples_per_epoch=6400))
    assert (read.name, read.gpu, read.workload.batch) == ("my-job", "a100-40gb", 64)
    assert (read.step_s, read.epoch_s) == pytest.approx((0.12, 12))
    assert read.busy_share == pytest.approx(0.83)
    assert (read.memory.device_mib, read.power_w) == (5300, 190)
    assert (read.host_s, read.trace, read.mps, read.idle_power_w, read.provenance) == (None,) * 5
    assert load_profile(str(written(tmp_path)), "a100-40gb") == WATCHED.whole()


@given(st.floats(60, 10**6), st.none() | st.floats(1e-3, 60))
def test_a_job_of_some_duration_takes_so_long_alone_whatever_its_step(duration_s, step_s):
    job = MinimalProfile(**NUMBERS | {"step_s": step_s, "duration_s": duration_s}).whole()
    assert job.epoch_s == pytest.approx(duration_s, abs=job.step_s)
    assert job.busy_share == pytest.approx(0.83)


def test_a_number_that_is_null_is_not_known(tmp_path):
    nothing = {"power_w": None, "gpu_utilization": None, "memory_utilization": None}
    read = read_profile(written(tmp_path, **nothing))
    assert (read.power_w, read.counters, read.gpu_s, read.busy_share) == (None,) * 4


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("step_s", float("nan"), "NaN"),
        ("step_s", 0, ""),
        ("step_s", 120, "120 ms are 0.12 s"),
        ("step_s", ..., ""),
        ("memory_mib", 9, "9 GiB are 9216"),
        ("memory_mib", 1e9, ""),
        ("power_w", 190_000, ""),
        ("gpu_utilization", 83, "83 % is 0.83"),
        ("gpu_utilization", None, "memory_utilization"),
        ("gpu_utilization", "0.83", ""),
        ("memory_utilization", 41.0, "41 % is 0.41"),
        ("batch_size", 0, "batch"),
        ("examples_per_epoch", 0, ""),
        ("step_s", None, "duration_s"),
        ("duration_s", 0.05, "duration_s"),
        ("workload", "../my-job", ""),
        ("schema", 0, ""),
        ("utilisation", 0.83, ""),
    ],
)
def test_a_number_that_cannot_be_or_has_another_unit_is_refused(tmp_path, field, value, remedy):
    with pytest.raises(InvalidInput, match=r"my-job\.json: .*--from-numbers --help") as refusal:
        read_profile(written(tmp_path, **{field: value}))
    assert (remedy or field.partition("_")[0]) in str(refusal.value)


def test_numbers_may_be_written_as_windows_writes_them_and_are_of_their_gpu_alone(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert read_profile(path).step_s == WATCHED.step_s
    with pytest.raises(InvalidInput, match=r"a100-40gb.*h200-141gb"):
        load_profile(str(path), "h200-141gb")
