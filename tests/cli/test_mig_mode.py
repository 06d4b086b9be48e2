"""A GPU of this machine in MIG mode, as its driver shows it: what is recommended there."""

import json

import pytest

from tests.cli.conftest import BERT, GPU, RESNET
from tests.hardware.nvml import FakeGpu, FakeLibrary, mig_device

PARTS = (mig_device("3g.71gb", "MIG-a", 60, 71424), mig_device("4g.71gb", "MIG-b", 64, 71424))


@pytest.fixture
def in_mig_mode(install):
    """Has this machine's only GPU in MIG mode with these devices."""

    def put(*parts):
        install(FakeLibrary(FakeGpu(mig=(1, 1), instances=parts)))

    return put


def used(answer):
    return {
        part.partition("@")[0].partition("[")[0]
        for plan in json.loads(answer)["plans"]
        for group in plan["sharing"].split(";")
        for part in group.removeprefix("mig=").replace("+", ",").split(",")
        if "g." in part
    }


def test_without_root_plans_use_the_instances_that_are_there_and_with_root_the_whole_gpu(
    advisor, in_mig_mode, install
):
    in_mig_mode(*PARTS)
    answer = advisor("recommend", RESNET, BERT, "--no-root", "--json")
    assert (answer.code, "MIG mode" in answer.err) == (0, True)
    assert used(answer.out) == {"3g.71gb", "4g.71gb"}
    assert all("mig=" in plan["sharing"] for plan in json.loads(answer.out)["plans"])
    answer = advisor("recommend", RESNET, BERT, "--root", "--json")
    assert (answer.code, "-mig 0" in answer.err) == (0, True)
    assert "serial" in {plan["sharing"] for plan in json.loads(answer.out)["plans"]}
    in_mig_mode()
    assert advisor("recommend", RESNET, BERT, "--no-root").code == 3
    install(FakeLibrary(FakeGpu(mig=(1, 1), instances=PARTS), FakeGpu(uuid="GPU-1")))
    answer = advisor("recommend", RESNET, BERT, "--json")
    assert (answer.code, "MIG mode" in answer.err) == (0, False), "another GPU is whole"


def test_plans_use_what_there_is_and_another_layout_is_compared(advisor, in_mig_mode):
    in_mig_mode(*PARTS[:1])
    answer = advisor("recommend", RESNET, BERT, "--json")
    document = json.loads(answer.out)
    assert (answer.code, "MIG mode" in answer.err) == (0, True)
    assert used(answer.out) == {"3g.71gb"}
    elsewhere = advisor.document("recommend", RESNET, BERT, "--root")["plans"][0]
    other = document["another_layout"]
    assert (other["sharing"], other["makespan_s"]) == (
        elsewhere["sharing"],
        pytest.approx(elsewhere["makespan_s"]),
    )
    assert other["makespan_s"] < document["plans"][0]["makespan_s"]
    ratio = other["makespan_s"] / document["plans"][0]["makespan_s"]
    assert f"{100 * (1 - ratio):.0f} % faster" in answer.err
    assert advisor.document("recommend", RESNET, "--no-root")["another_layout"] is None


@pytest.mark.parametrize(
    "words",
    [("copies", RESNET), ("recommend", f"{RESNET}:9"), ("recommend", RESNET, "--gpus", "2")],
)
def test_other_questions_name_the_instance_to_plan_within(advisor, in_mig_mode, words):
    in_mig_mode(*PARTS)
    answer = advisor(*words, "--no-root")
    assert (answer.code, "--gpu KEY" in answer.err) == (2, True)


def test_a_simulation_and_an_export_without_root_use_what_there_is(advisor, in_mig_mode):
    in_mig_mode(*PARTS)
    words = ("simulate", RESNET, BERT, "--no-root", "--sharing")
    assert advisor(*words, "mig=3g.71gb,4g.71gb").code == 0
    for sharing in ("mig=1g.18gb,4g.71gb", "mps", "mig"):
        assert advisor(*words, sharing).code == 3
    plan = json.loads(advisor("export", RESNET, BERT, "--no-root", "--format", "json").out)
    assert "mig=" in plan["plans"][0]["sharing"]


def test_an_instance_has_the_memory_that_the_installed_driver_says(advisor, install):
    mib = 60_000
    listed = {
        "id": 9,
        "name": b"MIG 3g.71gb",
        "sliceCount": 3,
        "instanceCount": 2,
        "multiprocessorCount": 60,
        "memorySizeMB": mib,
        "places": [(4, 4), (0, 4)],
    }
    install(FakeLibrary(FakeGpu(profiles={2: listed})))
    words = ("predict", RESNET, "--gpu", GPU, "--sharing", "mig=3g.71gb@0", "--json")
    assert json.loads(advisor(*words).out)["memory_capacity_mib"] == mib
    install(FakeLibrary())
    least_mib = json.loads(advisor(*words).out)["memory_capacity_mib"]
    assert least_mib == 71_168, "the smallest that any driver reported"


def test_jobs_are_planned_within_one_instance_as_on_a_gpu(advisor, in_mig_mode):
    in_mig_mode(*PARTS)
    listed = advisor("gpus")
    assert f"MIG-a: NVIDIA H200 MIG 3g.71gb, {GPU}-3g.71gb" in listed.out
    answer = advisor("recommend", RESNET, BERT, "--gpu", f"{GPU}-3g.71gb", "--json")
    assert answer.code == 0
    assert {plan["sharing"].partition("=")[0] for plan in json.loads(answer.out)["plans"]} >= {
        "mps",
        "serial",
    }
