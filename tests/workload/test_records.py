"""Profiles and runs as files: written and read back equal, refused where they cannot be true."""

import json
from dataclasses import replace

import pytest

from advisor.errors import AdvisorError, InvalidInput
from advisor.files.reading import REMOVED_FIELDS, parse_json, read_json, read_toml
from advisor.files.records import parse_record
from advisor.files.writing import record_line, record_text
from advisor.hardware.gpus import gpu
from advisor.hardware.machine import Calibration
from advisor.learn.observations import shared_runs
from advisor.prediction.model import Model
from advisor.workload.job import JobFile
from advisor.workload.minimal_profile import MinimalProfile
from advisor.workload.profile import EpochEnd, PartSeconds, Profile
from advisor.workload.run import PlanDocument, Run
from advisor.workload.store import read_profile
from research.evaluate import of_pace
from tests import synthetic
from tests.measure.calibrate.recorded import calibration
from tests.research.whole_jobs import LONG, SHORT, whole

PROFILE = replace(synthetic.profile(), host_s=0.01)
RUN = synthetic.run([PROFILE])
NAIVE = whole("set-naive", "naive", (3.0, 5.0))
DIED = whole("failed", "naive", (3.0, None))
MEMORY_RUN = replace(RUN, purpose="memory", capacity_mib=24576, free_mib=23961.0)
TOOK = PartSeconds(start_s=4.0, settle_s=1.0, windows_s=3.0, meter_s=0.25, trace_s=2.0)


def changed(text, path, value):
    """The JSON document `text` with `value` at `path`."""
    document = json.loads(text)
    *parents, last = path
    node = document
    for key in parents:
        node = node[key]
    node[last] = value
    return json.dumps(document)


def keys(path):
    return [int(key) if key.isdigit() else key for key in path.split(".")]


ROUND = replace(
    PROFILE,
    trace=replace(PROFILE.trace, steps=16),
    epoch_end=EpochEnd(seconds=3.0, steps=80),
    windows=tuple(replace(each, check_s=1e-3) for each in PROFILE.windows),
)


@pytest.mark.parametrize("profile", [PROFILE, replace(PROFILE, took=TOOK), ROUND])
def test_a_profile_reads_back_as_it_was_written(profile):
    assert parse_record(Profile, record_line(profile), "here") == profile


@pytest.mark.parametrize("run", [RUN, MEMORY_RUN, NAIVE, DIED])
def test_a_run_reads_back_as_it_was_written(run):
    assert parse_record(Run, record_line(run), "here") == run


def test_an_old_profile_with_a_removed_field_and_without_newer_ones_is_read():
    document = json.loads(record_line(PROFILE))
    document["workload"][min(REMOVED_FIELDS)] = 1
    for node, name in (
        (document, "took"),
        (document, "epoch_end"),
        (document["workload"], "execution"),
        (document["trace"], "steps"),
        *((window, "check_s") for window in document["windows"]),
    ):
        del node[name]
    assert parse_record(Profile, json.dumps(document), "here") == PROFILE


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Profile, record_line(PROFILE)),
        (Run, record_line(RUN)),
        (MinimalProfile, "{}"),
        (PlanDocument, "{}"),
        (Calibration, "{}"),
        (Model, "{}"),
        (JobFile, "{}"),
        (None, "{}"),
    ],
)
def test_a_file_of_a_newer_advisor_is_named_as_such_before_its_new_fields(kind, text):
    newer = json.dumps(json.loads(text) | {"schema": 9, "new_field": 1})
    with pytest.raises(InvalidInput, match="here: it has schema 9, and"):
        parse_json(newer, "here") if kind is None else parse_record(kind, newer, "here")


HUGE = 2**64
IMPOSSIBLE = [
    ("trace.steps", 0),
    ("epoch_end", {"seconds": 0.0}),
    ("epoch_end", {"seconds": 3.0, "loader_s": 4.0}),
    ("windows.0.check_s", -1.0),
    ("schema", 2),
    ("schema", True),
    ("step_ms", 3.0),
    ("idle_powr_w", 1),
    ("power_w", 1e9),
    ("power_w", "300"),
    ("power_w", float("nan")),
    ("host_s", 0.0),
    ("host_cpu_share", 64.0),
    ("cores.0", False),
    ("windows", []),
    ("windows.0.seconds", 5e-324),
    ("windows.0.steps", 1e-9),
    ("memory.device_mib", 1.0),
    ("counters.gract", 97.0),
    ("mps.unlimited.windows", []),
    ("trace.blocks", [1]),
    ("trace.duration_us.0", False),
    ("trace.duration_us", [0.0] * 100),
    ("trace.waits_us", [2.0, 1.0]),
    ("took", {"start_s": 1.0}),
    ("workload.bach", 1),
    ("workload.batch", 0),
    ("workload.batch", 128.0),
    ("workload.precision", "fp8"),
    ("workload.loader_workers", HUGE),
    ("workload.examples_per_epoch", 128 * 48_159_360_000),
]


@pytest.mark.parametrize(("path", "value"), IMPOSSIBLE)
def test_a_profile_that_cannot_be_true_is_refused_with_its_file(tmp_path, path, value):
    file = tmp_path / "p.json"
    file.write_text(changed(record_line(PROFILE), keys(path), value))
    with pytest.raises(InvalidInput) as refusal:
        read_profile(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert path != "idle_powr_w" or "idle_power_w" in str(refusal.value)


@pytest.mark.parametrize(
    ("run", "path", "value"),
    [
        (RUN, "mps_clients", HUGE),
        (RUN, "tenants.0.host_check_s", -1.0),
        (RUN, "capacity_mib", 24576),
        (RUN, "purpose", "memory"),
        (RUN, "sharing", "mps/priority=0,1"),
        (RUN, "surprise", 1),
        (NAIVE, "completion", None),
        (NAIVE, "purpose", "drawn"),
        (NAIVE, "sharing", "serial"),
        (NAIVE, "completion.steps", [1]),
        (NAIVE, "completion.steps", [0, 1]),
        (NAIVE, "completion.began_s", [-1.0, 0.0]),
        (NAIVE, "completion.ended_s", [0.0, 1.0]),
        (NAIVE, "completion.pauses_s", [-0.1]),
    ],
)
def test_a_run_that_cannot_have_been_is_refused(run, path, value):
    with pytest.raises(InvalidInput, match=r"^here: "):
        parse_record(Run, changed(record_line(run), keys(path), value), "here")


def numbers_in(node, path=()):
    """Paths of the numbers in a document; of a list, those of its first entry."""
    inner = node.items() if isinstance(node, dict) else enumerate(node[:1])
    for key, value in inner:
        if isinstance(value, dict | list):
            yield from numbers_in(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


@pytest.mark.parametrize("digits", ["1e999", "1" + "0" * 400])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Profile, record_line(ROUND)),
        (Run, record_line(NAIVE)),
        (Calibration, record_text(calibration())),
    ],
)
def test_no_number_is_larger_than_any_can_be(kind, text, digits):
    for path in numbers_in(json.loads(text)):
        endless = changed(text, path, "endless").replace('"endless"', digits)
        with pytest.raises(InvalidInput, match="here"):
            parse_record(kind, endless, "here")


@pytest.mark.parametrize(
    "text",
    [
        record_line(PROFILE)[:-40],
        record_line(PROFILE).replace('"power_w":300.0', '"power_w":300.0,"power_w":200.0'),
        changed(record_line(PROFILE), ("mps",), "X").replace('"X"', "[" * 9999 + "]" * 9999),
    ],
    ids=["cut off", "a key twice", "nested deep"],
)
def test_a_damaged_profile_is_refused_with_its_file(tmp_path, text):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"p\.json"):
        read_profile(tmp_path / "p.json")


def test_a_profile_is_read_again_only_if_its_file_changed(tmp_path):
    file = tmp_path / "p.json"
    file.write_text(record_line(PROFILE))
    first = read_profile(file)
    assert read_profile(file) is first
    file.write_text(record_line(replace(PROFILE, gpu_s=0.0625)))
    assert read_profile(file).gpu_s == 0.0625


@pytest.mark.parametrize(
    "text",
    [
        "",
        b"\xff",
        '{"b": [{"a": 1, "\\u0061": 2}]}',
        "[-Infinity]",
        "9" * 5000,
        "[" * 65 + "]" * 65,
        '{"a":' * 100_000,
    ],
    ids=range(7),
)
def test_a_text_that_is_not_json_or_sets_a_key_twice_is_refused_with_the_remedy(text):
    with pytest.raises(InvalidInput, match=r"^here: .*\. Correct it\.$"):
        parse_json(text, "here", "Correct it.")


@pytest.mark.parametrize("text", ["1", '"a"', "null", "[]", '{"a":{"a":1}}', "[" * 64 + "]" * 64])
def test_other_json_is_read_as_it_is(text, tmp_path):
    (tmp_path / "it.json").write_text(text)
    assert read_json(tmp_path / "it.json") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3000 + "]" * 3000,
        ".".join("a" * 3000) + " = 1",
        "a = 1\na = 2",
        b"a = '\xff'",
        "a = 1" + "0" * 5000,
    ],
    ids=range(5),
)
def test_a_text_that_is_not_toml_is_refused_with_its_path(text, tmp_path):
    path = tmp_path / "jobs.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(AdvisorError, match=r"jobs\.toml: "):
        read_toml(path)


def test_whole_jobs_teach_no_pace():
    assert not NAIVE.shows_pace
    assert shared_runs({p.name: p for p in (SHORT, LONG)}, [NAIVE], gpu("h200-141gb")) == ()
    assert of_pace([NAIVE]) == []
