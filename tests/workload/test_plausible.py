"""Numbers that nothing measured or asked for can have."""

import json
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.prediction.model_file import Model
from advisor.validate.entries import Entry
from advisor.workload.job import Arrival, Job
from advisor.workload.job_file import _JobFile
from advisor.workload.machine_calibration import Calibration
from advisor.workload.plan_document import PlanDocument
from advisor.workload.profile import Profile
from advisor.workload.records import _adapter, parse_record
from advisor.workload.run import Run
from advisor.workload.writing import profile_text, run_line
from tests import synthetic

PROFILE = replace(synthetic.profile(), host_s=0.01)
TWO_TO_64 = 2**64
WINDOWS = ("mps", "limited", 0, "windows")


def changed(path, value, text=None):
    document = json.loads(text or profile_text(PROFILE))
    *parents, last = path
    node = document
    for key in parents:
        node = node[key]
    node[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("memory", "device_mib"), 1e300, "device_mib must be at most 16,777,216"),
        (("mps", "memory", "device_mib"), 1e300, "device_mib must be at most"),
        (("power_w",), 1e9, "power_w must be at most 10,000"),
        (("idle_power_w",), 1e9, "idle_power_w must be at most"),
        (("energy_j",), 1e300, "energy_j must be at most"),
        (("host_s",), 1e6, "host_s must be at most 86,400"),
        (("host_s",), 0.0, "host_s must be finite and above 0"),
        (("gpu_s",), 1e6, "gpu_s must be at most"),
        (("host_check_s",), 1e6, "host_check_s must be at most"),
        (("host_cpu_share",), 64.0, "host_cpu_share must be at most 2"),
        (("cores",), [TWO_TO_64], "a core's number must be at most"),
        (("cores",), [-1], "a core's number must be finite and at least 0"),
        (("windows", 0, "seconds"), 1e300, "seconds of a window must be at most 86,400"),
        (("windows", 0, "seconds"), 5e-324, "a step in seconds must be finite and above 0"),
        (("windows", 0, "steps"), 1e-9, "a step in seconds must be at most 86,400"),
        (("windows", 0, "steps"), 1e300, "a step in seconds must be finite and at least 1e-09"),
        (WINDOWS, [], "at least one window"),
        (("mps", "unlimited", "windows"), [], "at least one window"),
        (("mps", "limited", 0, "limit_pct"), 101, "limit_pct must be at most 100"),
        (("mps", "limited", 0, "sms"), TWO_TO_64, "sms must be at most"),
        (
            ("trace", "resident_blocks", 0),
            TWO_TO_64,
            "resident blocks of an SM must be at most 1,024",
        ),
        (("trace", "blocks", 0), TWO_TO_64, "blocks of a kernel must be at most"),
        (("trace", "threads", 0), TWO_TO_64, "threads of a block must be at most"),
        (("trace", "stream_of"), [TWO_TO_64] * 100, "a stream's number must be at most"),
        (("trace", "duration_us", 0), 1e300, "launch, duration or wait in us must be at most"),
        (("trace", "duration_us"), [0.0] * 100, "take time together"),
        (("trace", "waits_us"), [1e300], "launch, duration or wait in us must be at most"),
        (("trace", "waits_us"), [2.0, 1.0], "waits must not decrease"),
        (("trace", "waits_us"), [-1.0], "a wait are finite and at least 0 us"),
        (("counters", "pcie_rx_mib_s"), 1e300, "pcie_rx_mib_s must be at most"),
        (("counters", "pcie_tx_mib_s"), -1, "pcie_tx_mib_s must be finite and at least 0"),
        (("provenance", "host_cores"), TWO_TO_64, "host_cores must be at most"),
        (("provenance", "sm_clock_mhz"), TWO_TO_64, "sm_clock_mhz must be at most"),
        (("workload", "batch"), TWO_TO_64, "batch must be at most"),
        (("workload", "table_mib"), TWO_TO_64, "table_mib must be at most"),
        (("workload", "loader_workers"), TWO_TO_64, "loader_workers must be at most 1,024"),
        (("workload", "examples_per_epoch"), TWO_TO_64, "examples_per_epoch must be at most"),
        (("workload", "examples_per_epoch"), 128 * 48_159_360_000, "epoch would take 5,574 days"),
    ],
)
def test_a_profile_that_no_gpu_can_have_made_is_refused(path, value, said):
    with pytest.raises(InvalidInput, match=said):
        parse_record(Profile, changed(path, value), "here")


def test_an_epoch_of_a_year_is_believed():
    workload = replace(PROFILE.workload, examples_per_epoch=128 * 100 * 31_536_000)
    assert replace(PROFILE, workload=workload).epoch_s == 365 * 86_400


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("power_w",), True),
        (("power_w",), "300"),
        (("workload", "batch"), True),
        (("workload", "batch"), 128.0),
        (("workload", "batch"), "128"),
        (("cores", 0), False),
        (("trace", "duration_us", 0), False),
        (("workload", "name"), 1),
        (("schema",), True),
        (("power_w",), float("nan")),
        (("power_w",), float("inf")),
    ],
)
def test_what_only_looks_like_a_number_is_refused(path, value):
    where = ".".join(map(str, path)).replace(".0", " 1")  # entries are counted from 1
    with pytest.raises(InvalidInput, match=rf"^here: {where}: .*Measure it"):
        parse_record(Profile, changed(path, value), "here")


def test_a_key_that_is_there_twice_is_refused():
    text = profile_text(PROFILE).replace('"power_w":300.0', '"power_w":300.0,"power_w":200.0')
    with pytest.raises(InvalidInput, match="'power_w' occurs twice"):
        parse_record(Profile, text, "here")


def test_a_record_nested_ten_thousand_deep_is_refused():
    text = changed(("mps",), "HERE").replace('"HERE"', "[" * 10_000 + "]" * 10_000)
    with pytest.raises(InvalidInput, match="here"):
        parse_record(Profile, text, "here")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("power_w",), 1e9, "power_w must be at most"),
        (("mps_clients",), TWO_TO_64, "mps_clients must be at most"),
        (("tenants", 0, "sms"), TWO_TO_64, "sms must be at most"),
        (("tenants", 0, "host_check_s"), -1.0, "host_check_s must be finite"),
        (("tenants", 0, "windows", 0, "seconds"), 1e300, "seconds of a window"),
    ],
)
def test_a_run_that_cannot_have_been_is_refused(path, value, said):
    text = run_line(synthetic.run([PROFILE]))
    with pytest.raises(InvalidInput, match=said):
        parse_record(Run, changed(path, value, text), "here")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"epochs": 1e300}, "epochs must be at most"),
        ({"epochs": 5e-324}, "epochs must be finite and at least 1e-09"),
        ({"validation_s": 1e300}, "validation_s must be at most"),
        ({"checkpoint_s": 1e300}, "checkpoint_s must be at most"),
        ({"deadline_s": 1e300}, "deadline_s must be at most"),
    ],
)
def test_a_job_of_centuries_or_of_no_time_is_refused(asked, said):
    with pytest.raises(InvalidInput, match=said):
        Job(PROFILE, **asked)


@pytest.mark.parametrize("arrival_s", [1.7e9, 1.7e18, 1e300])
def test_an_arrival_counted_from_1970_says_what_to_do(arrival_s):
    with pytest.raises(InvalidInput, match="Of times since 1970, or in nanoseconds"):
        Arrival(Job(PROFILE), arrival_s)


def _records(schema):
    """The schemas of all records inside a schema of pydantic's."""
    if isinstance(schema, dict):
        if schema.get("type") == "dataclass":
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list | tuple):
        for each in schema:
            yield from _records(each)


@pytest.mark.parametrize("kind", [Profile, Run, Calibration, Model, Entry, _JobFile, PlanDocument])
def test_every_part_of_a_file_is_read_strictly(kind):
    found = list(_records(_adapter(kind).core_schema))
    strict = {"extra_fields_behavior": "forbid", "allow_inf_nan": False, "strict": True}
    assert found
    assert [each["cls"] for each in found if not strict.items() <= each["config"].items()] == []
