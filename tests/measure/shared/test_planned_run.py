import json
from dataclasses import asdict

import pytest

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedMix, mixes_of
from advisor.measure.shared.run_list_file import read_plans
from advisor.sharing import Mps, Naive
from advisor.workload.named_workloads import workload

PLAN = {
    "id": "p1", "sharing": "mps=43,57", "purpose": "drawn", "repeats": None,
    "workloads": ["mlp-toy-bs32", asdict(workload("cnn-cifar10-bs32"))],
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Reads a file with these plans."""

    def written(*plans, **other):
        file = tmp_path / "plans.json"
        file.write_text(json.dumps({"schema": 1, "gpu": "h200-141gb", "plans": plans} | other))
        return read_plans(file, "h200-141gb")

    return written


def test_a_workload_is_named_or_written_out(read):
    (plan,) = read(PLAN)
    assert plan.workloads == (workload("mlp-toy-bs32"), workload("cnn-cifar10-bs32"))


def test_a_shared_plan_is_one_run(read):
    (plan,) = read(PLAN)
    assert mixes_of(plan) == (
        PlannedMix(
            id="p1", sharing=Mps((43, 57)), purpose="drawn", repeats=None, workloads=plan.workloads
        ),
    )


def test_a_serial_plan_runs_each_workload_alone(read):
    (plan,) = read(PLAN | {"sharing": "serial", "purpose": "repeat", "repeats": "p0"})
    first, second = mixes_of(plan)
    assert (first.id, first.repeats, second.id, second.repeats) == ("p1.1", "p0.1", "p1.2", "p0.2")
    assert first.sharing == second.sharing == Naive()
    assert first.workloads + second.workloads == plan.workloads


def test_copies_in_a_serial_plan_run_once(read):
    (plan,) = read(PLAN | {"sharing": "serial", "workloads": ["mlp-toy-bs32"] * 3})
    (mix,) = mixes_of(plan)
    assert mix.id == "p1"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sharing": "mps=43"}, "1 limit for 2 jobs"),
        ({"sharing": "mig=3g.71gb,4g.71gb"}, "MIG plans cannot be run"),
        ({"sharing": "shared"}, "is not a sharing"),
        ({"sharing": 3}, "sharing must be a string, got 3"),
        ({"id": ""}, "needs an id"),
        ({"id": None}, "id must be a string, got None"),
        ({"purpose": "fun"}, "purpose must be one of solo, .*, got 'fun'"),
        ({"repeats": "p0"}, 'if and only if purpose is "repeat"'),
        ({"purpose": "repeat"}, 'if and only if purpose is "repeat"'),
        ({"purpose": "memory"}, 'if and only if purpose is "memory"'),
        ({"capacity_mib": 24576}, 'if and only if purpose is "memory"'),
        ({"purpose": "memory", "capacity_mib": 0}, "a card has at least 1 MiB"),
        (
            {"purpose": "memory", "capacity_mib": 24.5},
            "capacity_mib must be a whole number, got 24.5",
        ),
        ({"colour": "red"}, r"unknown key 'plans\[1\].colour'"),
        ({"workloads": []}, "1 to 48 workloads, got 0"),
        ({"workloads": ["mlp-toy-bs32"] * 49, "sharing": "mps"}, "got 49"),
        ({"workloads": "mlp-toy-bs32"}, "workloads must be an array"),
        ({"workloads": ["mlp-tou-bs32"]}, r"workloads\[0\]: no workload is called"),
        ({"workloads": [7]}, r"workloads\[0\]: must be a table, got 7"),
        ({"workloads": [{"name": "x"}]}, r"'plans\[1\].workloads\[0\].source' is missing"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused_with_its_place(read, change, said):
    with pytest.raises(InvalidInput, match=said) as refusal:
        read(PLAN | {"id": "p0"}, PLAN | change)
    assert "plans[1]" in str(refusal.value).partition("plans.json: ")[2]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("batch", 0, "batch must be at least 1"),
        ("batch", -2, "batch must be at least 1"),
        ("batch", True, "batch must be a whole number, got True"),
        ("batch", 32.0, "batch must be a whole number, got 32.0"),
        ("precision", "fp8", "precision must be one of default, tf32, amp, fp16, got 'fp8'"),
        ("name", "a/b", "names no workload"),
        ("resolution", "32", "resolution must be a whole number, got '32'"),
        ("batches", 3, "unknown key .*batches'"),
    ],
)
def test_a_workload_that_cannot_be_meant_is_refused(read, field, value, said):
    entry = asdict(workload("mlp-toy-bs32")) | {field: value}
    with pytest.raises(InvalidInput, match=said):
        read(PLAN | {"workloads": [entry], "sharing": "naive"})


def test_a_plan_may_ask_for_a_smaller_card(read):
    (plan,) = read(PLAN | {"purpose": "memory", "capacity_mib": 24576})
    (mix,) = mixes_of(plan)
    assert (mix.purpose, mix.capacity_mib) == ("memory", 24576)


def test_a_cpu_cannot_look_like_a_smaller_card(tmp_path):
    file = tmp_path / "plans.json"
    entry = PLAN | {"purpose": "memory", "capacity_mib": 24576, "sharing": "naive"}
    file.write_text(json.dumps({"schema": 1, "gpu": "cpu", "plans": [entry]}))
    with pytest.raises(InvalidInput, match="drop capacity_mib"):
        read_plans(file, "cpu")


def test_a_missing_key_is_named(read):
    with pytest.raises(InvalidInput, match=r"'plans\[0\].sharing' is missing"):
        read({key: value for key, value in PLAN.items() if key != "sharing"})


def test_two_plans_of_one_id_are_refused(read):
    with pytest.raises(InvalidInput, match="two runs would have the id 'p1'"):
        read(PLAN, PLAN)


@pytest.mark.parametrize("schema", [2, "1", True, None])
def test_a_schema_of_another_time_is_refused(read, schema):
    with pytest.raises(InvalidInput, match="schema"):
        read(PLAN, schema=schema)


def test_plans_for_another_gpu_are_refused_with_both_names(read):
    with pytest.raises(InvalidInput, match="for a100-40gb, and this device is h200-141gb"):
        read(PLAN, gpu="a100-40gb")


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"schema": 1}', "\xff"])
def test_a_file_that_holds_no_plans_is_refused_by_its_path(tmp_path, text):
    file = tmp_path / "plans.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"plans\.json"):
        read_plans(file, "cpu")


def test_a_missing_file_is_refused_by_its_path(tmp_path):
    with pytest.raises(InvalidInput, match=r"none\.json"):
        read_plans(tmp_path / "none.json", "cpu")
