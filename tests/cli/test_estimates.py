"""Answers for GPUs on which nobody measured the jobs: translated in every command, and labelled."""

import json
from dataclasses import replace

import pytest

from advisor.english import with_article
from advisor.hardware.catalogue import gpu
from advisor.prediction.gpu_transfer import on_gpu
from advisor.workload.writing import append_run, profile_text
from tests import synthetic

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"
THERE = "l40s-48gb"
COMMANDS = {
    "recommend": ["recommend", "{}"],
    "several GPUs": ["recommend", "{}:2", "--gpus", "2", "--time-limit", "1"],
    "copies": ["recommend", "{}:auto"],
    "joining": ["recommend", "{}", "--running", "{}", "--hurt", "3"],
    "predict": ["predict", "{}", "{}", "--sharing", "naive"],
    "explain": ["explain", "naive", "mps", "{}:2"],
    "simulate": ["simulate", "{}:2"],
    "trials": ["trials", "{}", "--steps", "100"],
    "batch": ["batch", "{}"],
}


@pytest.fixture
def file(tmp_path):
    """A profile of another GPU that is in no folder of profiles."""
    path = tmp_path / f"{RESNET}.json"
    path.write_text(profile_text(synthetic.profile(RESNET, host_s=0.04, gpu_s=0.05)))
    return path


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_profile_of_another_gpu_is_translated_by_name_and_by_file(advisor, file, words):
    if words[0] == "batch":  # whose GPU must offer MIG
        words = [*words, "--gpu", "a100-40gb"]
    for job in (RESNET, file):
        asked = [word.format(job) for word in words]
        asked += [] if "--gpu" in asked else ["--gpu", THERE]
        document = json.loads(advisor(*asked, "--json").out)
        assert document["estimated_from"] == "h200-141gb"
        assert document["estimated_profiles"] == {RESNET: "h200-141gb"}
        assert "estimated from h200-141gb" in " ".join(advisor(*asked).out.lower().split())


@pytest.mark.parametrize("job", ["name", "file"])
def test_exports_are_translated_and_labelled(advisor, file, job):
    words = ("export", RESNET if job == "name" else file, "--gpu", THERE, "--format")
    said = advisor(*words, "json")
    assert json.loads(said.out)["plans"][0]["estimated_from"] == "h200-141gb"
    assert "Estimated from h200-141gb" in said.err
    assert "Estimated from h200-141gb" in advisor(*words, "commands").err


def test_validation_is_translated_and_labelled(advisor, file, tmp_path):
    words = ("validate", file, "--gpu", THERE, "--dry-run")
    assert "Estimated from h200-141gb" in advisor(*words).err
    runs = tmp_path / "runs.jsonl"
    there = replace(synthetic.run([synthetic.profile(RESNET)] * 2, "naive", 2.0), gpu=THERE)
    append_run(runs, there)
    words = ("validate", "--from", runs, "--gpu", THERE, "--out", tmp_path)
    document = json.loads(advisor(*words, "--json").out)
    assert document["estimated_profiles"] == {RESNET: "h200-141gb"}
    assert document["estimated_from"] == "h200-141gb"
    assert "Estimated from a profile of h200-141gb" in advisor(*words).out


@pytest.mark.parametrize("gpu", ["a100-40gb", "l4-24gb", "b200-180gb"])
def test_a_job_that_was_measured_elsewhere_is_answered_for_and_the_first_line_says_so(advisor, gpu):
    said = " ".join(advisor("predict", RESNET, BERT, "--gpu", gpu).out.split())
    assert said.startswith(f"2 jobs under mps on {gpu}, estimated from h200-141gb, never measured ")
    assert f"to measure on {with_article(gpu)}: `advisor profile {RESNET} {BERT}`" in said


def test_an_estimate_has_a_wider_interval_than_what_was_measured(advisor, file):
    estimate = on_gpu(synthetic.profile(RESNET, host_s=0.04, gpu_s=0.05), gpu("a100-40gb"))
    measured = file.with_stem("measured")
    measured.write_text(profile_text(replace(estimate, estimated_from=None)))

    def width(path):
        words = ("--gpu", "a100-40gb", "--sharing", "serial", "--json")
        step = json.loads(advisor("predict", path, *words).out)["jobs"][0]["step_s"]
        return step["p95"] / step["p05"]

    assert width(file) > 1.2 * width(measured)


@pytest.mark.parametrize(
    "words",
    [
        [RESNET, "--gpu", "voodoo-2"],
        ["resnet50-imagenet64-bs129", "--gpu", "a100-40gb"],
        ["nowhere/such.json", "--gpu", "a100-40gb"],
    ],
)
def test_what_cannot_be_translated_is_refused(advisor, words):
    answer = advisor("predict", *words)
    assert (answer.code, answer.out) == (2, "")


def test_power_that_was_not_measured_has_a_wide_interval_within_the_limit_of_the_gpu(advisor):
    words = ("predict", RESNET, "--sharing", "serial", "--json")
    here = json.loads(advisor(*words).out)["power_w"]
    there = json.loads(advisor(*words, "--gpu", "l4-24gb").out)["power_w"]
    assert there["p50"] / there["p05"] > 1.2 * here["p50"] / here["p05"]
    assert there["p95"] <= 72
