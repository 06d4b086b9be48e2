"""``advisor translate``, and answers for GPUs on which nobody measured the jobs."""

import json

import pytest

from advisor.english import with_article
from advisor.workload.store import read_profile

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


def test_estimates_are_written_and_every_command_takes_them(advisor, tmp_path):
    said = advisor("translate", RESNET, BERT, "--to", "a100-40gb", "--out", tmp_path, "--json")
    listed = json.loads(said.out)["profiles"]
    assert [each["estimated_from"] for each in listed] == ["h200-141gb"] * 2
    path = tmp_path / f"{RESNET}.json"
    assert read_profile(path).gpu == "a100-40gb"
    answer = advisor("predict", path, path, "--gpu", "a100-40gb", "--sharing", "naive", "--json")
    document = json.loads(answer.out)
    assert document["estimated_from"] == "h200-141gb"
    assert not document["confirmed_on_hardware"]
    assert document["estimated_profiles"] == {RESNET: "h200-141gb"}


@pytest.mark.parametrize("gpu", ["a100-40gb", "l4-24gb", "b200-180gb"])
def test_a_job_that_was_measured_elsewhere_is_answered_for_and_the_first_line_says_so(advisor, gpu):
    said = " ".join(advisor("predict", RESNET, BERT, "--gpu", gpu).out.split())
    assert said.startswith(f"2 jobs under mps on {gpu}, estimated from h200-141gb, never measured ")
    assert f"to measure on {with_article(gpu)}: `advisor profile {RESNET} {BERT}`" in said


def test_an_estimate_has_a_wider_interval_than_what_was_measured(advisor, tmp_path):
    advisor("translate", RESNET, "--to", "a100-40gb", "--out", tmp_path)
    estimate = tmp_path / f"{RESNET}.json"
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(json.loads(estimate.read_text()) | {"estimated_from": None}))

    def width(path):
        words = ("--gpu", "a100-40gb", "--sharing", "serial", "--json")
        step = json.loads(advisor("predict", path, *words).out)["jobs"][0]["step_s"]
        return step["p95"] / step["p05"]

    assert width(estimate) > 1.2 * width(measured)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([RESNET, "--to", "voodoo-2"], "no GPU is called 'voodoo-2'"),
        ([RESNET, "--to", "h200-141gb"], "it was measured on h200-141gb"),
        (["resnet50-imagenet64-bs129", "--to", "a100-40gb"], "Near: resnet50-imagenet64-bs128"),
        (["nowhere/such.json", "--to", "a100-40gb"], "No such file"),
    ],
)
def test_what_cannot_be_translated_is_refused_and_nothing_is_written(
    advisor, tmp_path, words, said
):
    answer = advisor("translate", *words, "--out", tmp_path / "out")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert not (tmp_path / "out").exists()


def test_power_that_was_not_measured_has_a_wide_interval_within_the_limit_of_the_gpu(advisor):
    words = ("predict", RESNET, "--sharing", "serial", "--json")
    here = json.loads(advisor(*words).out)["power_w"]
    there = json.loads(advisor(*words, "--gpu", "l4-24gb").out)["power_w"]
    assert there["p50"] / there["p05"] > 1.2 * here["p50"] / here["p05"]
    assert there["p95"] <= 72


def test_a_comparison_says_first_what_is_estimated(advisor):
    said = advisor("explain", "naive", "mps", f"{RESNET}:2", "--gpu", "l4-24gb").out
    assert said.startswith("Estimated: ")
    assert "Estimated from h200-141gb, kernel by kernel" in " ".join(said.split())


def test_the_utilisation_that_a_user_saw_tells_of_the_host(advisor, tmp_path):
    def epoch_s(*words):
        advisor(
            "translate", "resnet26-cifar10-bs128", "--to", "a100-40gb", "--out", tmp_path, *words
        )
        path = tmp_path / "resnet26-cifar10-bs128.json"
        said = advisor("predict", path, "--gpu", "a100-40gb", "--sharing", "serial", "--json")
        document = json.loads(said.out)
        return document["jobs"][0]["step_s"]["p50"], document["gract"]

    (quick_s, _), (slow_s, gract) = epoch_s(), epoch_s("--gpu-utilization", "0.6")
    assert slow_s > 1.1 * quick_s
    assert gract == pytest.approx(0.6, abs=0.01)


def test_who_tells_a_utilisation_reads_it_again(advisor, tmp_path):
    words = ("--to", "a100-40gb", "--out", tmp_path, "--gpu-utilization", "0.6")
    assert ", then 60%" in advisor("translate", "resnet26-cifar10-bs128", *words).out


def test_a_utilisation_in_per_cent_is_refused(advisor, tmp_path):
    words = ("--to", "a100-40gb", "--out", tmp_path / "out", "--gpu-utilization", "60")
    answer = advisor("translate", RESNET, *words)
    assert (answer.code, answer.out) == (2, "")
    assert "GPU utilisation" in answer.err
    assert not (tmp_path / "out").exists()
