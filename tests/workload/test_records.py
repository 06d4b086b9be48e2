import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.workload.profile import PartSeconds, Profile
from advisor.workload.records import parse_record
from advisor.workload.run import Run
from advisor.workload.store import read_profile
from advisor.workload.stored_runs import read_runs
from advisor.workload.writing import append_run, profile_text, run_line, write_whole
from tests import synthetic

REQUIRED_PARTS = ("start_s", "settle_s", "windows_s", "meter_s")


def test_a_profile_that_was_written_reads_back_equal():
    profile = synthetic.profile()
    assert parse_record(Profile, profile_text(profile), "here") == profile


def test_a_profile_reads_back_with_the_seconds_that_each_part_of_it_took():
    took = PartSeconds(start_s=4.0, settle_s=1.0, windows_s=3.0, meter_s=0.25, trace_s=2.0)
    profile = replace(synthetic.profile(), took=took)
    assert parse_record(Profile, profile_text(profile), "here") == profile
    assert took.whole_s == 10.0, "the meter runs within the windows"


def test_a_profile_older_than_the_record_of_seconds_has_none():
    document = json.loads(profile_text(synthetic.profile()))
    del document["took"]
    assert parse_record(Profile, json.dumps(document), "here") == synthetic.profile()


def test_a_run_that_was_written_reads_back_equal():
    run = synthetic.run([synthetic.profile()])
    assert parse_record(Run, run_line(run), "here") == run


def test_a_run_on_a_card_made_smaller_reads_back_equal_and_shows_no_pace():
    whole = synthetic.run([synthetic.profile()])
    run = replace(whole, purpose="memory", capacity_mib=24576, free_mib=23961.0)
    assert parse_record(Run, run_line(run), "here") == run
    assert whole.shows_pace
    assert not run.shows_pace


@pytest.mark.parametrize(
    "change", [{"capacity_mib": 24576}, {"purpose": "memory"}, {"free_mib": 23961.0}]
)
def test_a_smaller_card_without_its_size_or_purpose_is_refused(change):
    with pytest.raises(InvalidInput, match="if and only if its purpose is memory"):
        replace(synthetic.run([synthetic.profile()]), **change)


def test_runs_are_read_in_the_order_in_which_they_were_appended(tmp_path):
    runs = tuple(synthetic.run([synthetic.profile()], run_id=name) for name in "ba")
    for run in runs:
        append_run(tmp_path / "runs.jsonl", run)
    assert read_runs(tmp_path / "runs.jsonl") == runs


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("gpu_s",), -1.0, "gpu_s"),
        (("gpu_s",), "fast", "gpu_s"),
        (("step_ms",), 3.0, "step_ms"),
        (("workload", "batch"), 0, "batch must be at least 1"),
        (("workload", "precision"), "fp8", "precision"),
        (("memory", "device_mib"), 1.0, "allocated <= reserved <= device"),
        (("windows",), [], "at least one window"),
        (("trace", "blocks"), [1], "equally long"),
        (("counters", "gract"), 97.0, "share in 0..1"),
        (("took",), dict.fromkeys(REQUIRED_PARTS, -1.0), "start_s must be finite and at least 0"),
        (("took",), {"start_s": 1.0}, "took.settle_s is missing"),
        (("schema",), 2, "schema is 2"),
    ],
)
def test_a_profile_that_cannot_be_true_is_refused_with_file_and_field(tmp_path, path, value, said):
    document = json.loads(profile_text(synthetic.profile()))
    *parents, last = path
    node = document
    for key in parents:
        node = node[key]
    node[last] = value
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=said) as refusal:
        read_profile(file)
    assert str(file) in str(refusal.value)


def test_a_nan_is_refused(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(
        profile_text(synthetic.profile(gpu_s=0.125)).replace('"gpu_s":0.125', '"gpu_s":NaN')
    )
    with pytest.raises(InvalidInput, match="gpu_s"):
        read_profile(file)


def test_a_truncated_profile_is_refused(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(profile_text(synthetic.profile())[:-40])
    with pytest.raises(InvalidInput, match=r"p\.json"):
        read_profile(file)


def test_a_profile_is_read_again_only_where_its_file_changed(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(profile_text(synthetic.profile(gpu_s=0.125)))
    first = read_profile(file)
    assert read_profile(file) is first
    file.write_text(profile_text(synthetic.profile(gpu_s=0.0625)))
    assert read_profile(file).gpu_s == 0.0625


def test_a_missing_profile_is_refused_by_its_path(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.json"):
        read_profile(tmp_path / "none.json")


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("advisor.workload.writing.os.replace", full)
    with pytest.raises(Exception, match="No space left"):
        write_whole(tmp_path / "p.json", "{}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("idle_powr_w",), "idle_powr_w is no known field; did you mean idle_power_w?"),
        (("workload", "bach"), "workload.bach is no known field; did you mean batch?"),
        (("windows", 0, "second"), "windows 1: second is no known field; did you mean seconds?"),
        (("unheard_of",), "unheard_of is no known field. "),
    ],
)
def test_of_a_misspelt_field_the_one_that_was_meant_is_named(path, said):
    document = json.loads(profile_text(synthetic.profile()))
    *parents, last = path
    node = document
    for key in parents:
        node = node[key]
    node[last] = 1
    with pytest.raises(InvalidInput) as refusal:
        parse_record(Profile, json.dumps(document), "p.json")
    assert f"p.json: {said}" in str(refusal.value)
