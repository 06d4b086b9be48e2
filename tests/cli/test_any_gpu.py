"""Nobody is sent in a circle: on a GPU without runs every command answers, and the first teaches.

Two profiles of an H100 are recordings; the model is fitted to made-up runs on an H200.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.hardware import DEFAULT_GPU
from advisor.hardware.catalogue import gpu, keep_gpu
from advisor.measure.shared.planned_run import mixes_of
from advisor.workload.files import MODEL_FILE
from advisor.workload.store import read_profile
from advisor.workload.writing import append_run, profile_text, write_whole
from tests import synthetic

RECORDED = Path(__file__).parents[2] / "profiles" / "h100-sxm-80gb"
PAIR = ["resnet152-imagenet-bs32", "bert-base-finetune-bs16"]
UNLISTED = "h800-80gb"


@pytest.fixture(params=["h100-sxm-80gb", UNLISTED])
def here(request, tmp_path, advisor):  # noqa: ARG001 - which says where the user's data are
    """The key of a GPU of which a user has two profiles and nothing else; one is not listed."""
    if request.param == UNLISTED:
        said = {"driver": "driver 580 of the GPU at hand"}
        listed = replace(gpu("h100-sxm-80gb"), sms=120, rates=None, sources=said)
        keep_gpu(replace(listed, key=UNLISTED, products=("NVIDIA H800",)))
    for name in PAIR:
        profile = replace(read_profile(RECORDED / f"{name}.json"), gpu=request.param)
        write_whole(own(tmp_path) / "profiles" / request.param / f"{name}.json",
                    profile_text(profile))  # fmt: skip
    return request.param


def own(tmp_path):
    return tmp_path / "nobody" / "advisor"


@pytest.fixture
def on_the_gpu(monkeypatch):
    """Plans run and are recorded as on a GPU: each job that shares takes 1.7 times as long."""

    def run_plans(key, plans, _device, store):
        made = []
        for mix in (mix for plan in plans for mix in mixes_of(plan)):
            alone = [read_profile(RECORDED / f"{each.name}.json") for each in mix.workloads]
            slowdown = 1.0 if len(alone) == 1 else 1.7
            run = synthetic.run(alone, str(mix.sharing), slowdown, mix.id)
            made.append(replace(run, gpu=key, purpose="validation"))
            append_run(store, made[-1])
        return tuple(made)

    monkeypatch.setattr("advisor.validate.advised.run_plans", run_plans)


def test_every_question_is_answered_from_two_profiles(advisor, here, tmp_path):
    plan = tmp_path / "plan.json"
    for words in (
        ["recommend", *PAIR],
        ["predict", *PAIR, "--sharing", "mps=50,50"],
        ["predict", *PAIR, "--sharing", "mig=3g.40gb,4g.40gb"],
        ["simulate", *PAIR, "--sharing", "naive"],
        ["export", *PAIR, "--sharing", "mps", "--format", "json", "--out", plan],
        ["explain", "serial", "mps", *PAIR],
        ["validate", *PAIR, "--dry-run"],
        ["profiles"],
        ["layouts"],
    ):
        said = advisor(*words, "--gpu", here)
        assert said.code == 0, (words, said.err)
    assert advisor("simulate", "--plan", plan).code == 0


def test_an_answer_says_what_stands_behind_it(advisor, here):
    document = json.loads(advisor("recommend", *PAIR, "--gpu", here, "--json").out)
    shared = [plan for plan in document["plans"] if "serial" not in plan["sharing"]]
    assert shared
    assert {plan["estimated_from"] for plan in shared} == {"h200-141gb"}
    assert not any(plan["confirmed_on_hardware"] for plan in shared)
    never = f"estimated from h200-141gb, never measured on an {here}"
    first = advisor("recommend", *PAIR, "--gpu", here).out.partition("\n\n")[0]
    assert never in " ".join(first.lower().split())
    for command in ("predict", "simulate"):
        said = advisor(command, *PAIR, "--sharing", "mps", "--gpu", here).out
        assert never in " ".join(said.split())


def test_that_no_run_was_made_there_is_no_reason_to_run_jobs_one_after_another(advisor, here):
    document = json.loads(advisor("recommend", *PAIR, "--gpu", here, "--json").out)
    first, serial = document["plans"][0], document["serial"]
    if first["sharing"] == "serial":
        shared = [plan for plan in document["plans"] if plan["estimated_from"]]
        assert all(serial["makespan_s"] <= plan["makespan_s"] for plan in shared)


def test_fitting_without_a_run_says_that_answers_are_there_and_what_would_teach(advisor, here):
    said = advisor("fit", "--gpu", here)
    assert said.code == 2
    assert f"no run on an {here} to learn from yet" in said.err
    assert "answers for" in said.err
    assert "`advisor validate JOB...`" in said.err


@pytest.mark.usefixtures("few_lessons", "on_the_gpu")
def test_the_first_runs_that_validating_keeps_teach_the_next_fit(advisor, here, tmp_path):
    validated = advisor("validate", *PAIR, "--top", 2, "--gpu", here)
    assert validated.code in (0, 5), validated.err
    said = advisor("fit", "--gpu", here)
    assert said.code == 0, said.err
    assert f"on {here}." in said.out
    assert "45 runs of 3 profiles on h200-141gb" in said.out
    document = json.loads((own(tmp_path) / "models" / MODEL_FILE).read_text())
    assert sum(document["data"][here]["runs"].values()) in (1, 2)
    assert advisor("recommend", *PAIR, "--gpu", here).code == 0


@pytest.mark.usefixtures("few_lessons")
def test_what_was_measured_on_a_cpu_or_nobody_knows_where_is_passed_over(advisor, tmp_path):
    profiles = [read_profile(RECORDED / f"{name}.json") for name in PAIR]
    for key in ("cpu", "gpu-of-a-friend"):
        folder = own(tmp_path) / "profiles" / key
        for each in profiles:
            write_whole(folder / f"{each.name}.json", profile_text(replace(each, gpu=key)))
        append_run(folder / "runs" / "x.jsonl", replace(synthetic.run(profiles), gpu=key))
    said = advisor("fit", "--gpu", "h200-141gb")
    assert said.code == 0, said.err
    document = json.loads((own(tmp_path) / "models" / MODEL_FILE).read_text())
    assert document["data"].keys() == {"h200-141gb"}


def test_where_no_gpu_is_named_the_jobs_say_which(advisor, here, tmp_path, monkeypatch):
    said = advisor("predict", *PAIR, "--sharing", "serial", "--json")
    assert json.loads(said.out)["gpu"] == here
    assert f"no --gpu given: this is about {here}, on which the jobs were profiled" in said.err
    path = own(tmp_path) / "profiles" / here / f"{PAIR[0]}.json"
    assert json.loads(advisor("predict", path, "--sharing", "serial", "--json").out)["gpu"] == here
    monkeypatch.setattr("advisor.measure.process.this_machine.gpu_at_hand", lambda: "a30-24gb")
    said = advisor("predict", *PAIR, "--sharing", "serial")
    assert said.err == "no --gpu given: this is about a30-24gb, the GPU at hand\n"


def test_where_nothing_says_which_gpu_it_is_the_default(advisor):
    said = advisor("predict", PAIR[1], "--sharing", "serial", "--json")
    assert json.loads(said.out)["gpu"] == DEFAULT_GPU
    assert said.err == ""
