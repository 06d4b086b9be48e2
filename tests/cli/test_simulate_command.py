import json
from itertools import pairwise

import pytest

RESNET, BERT, SMALL = (
    "resnet50-imagenet64-bs128",
    "bert-base-finetune-bs16",
    "resnet26-cifar10-bs128",
)


@pytest.fixture
def arrivals(tmp_path):
    """A CSV of six jobs that come over time."""
    lines = [f"{30 * at},{(RESNET, BERT, SMALL)[at % 3]},{1 + at}" for at in range(6)]
    (tmp_path / "arrivals.csv").write_text("\n".join(["arrival_s,job,epochs", *lines]) + "\n")
    return tmp_path / "arrivals.csv"


def test_jobs_are_drawn_over_time_in_eighty_columns_without_colours(advisor):
    said = advisor("simulate", RESNET, f"{BERT}:2", "--sharing", "naive", "--price", 2)
    assert said.code == 0
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 80
    assert "3 jobs under naive on 1 h200-141gb, first-come" in said.out
    assert "1 resnet50-imag…et64-bs128|" in said.out, "the batch stays where a name is cut"
    assert "EUR" in said.out
    assert "GPU busy" in said.out


def test_what_is_simulated_is_what_is_predicted(advisor):
    words = [RESNET, BERT, "--sharing", "mps=60,60", "--json"]
    simulated, predicted = (
        json.loads(advisor(verb, *words).out) for verb in ("simulate", "predict")
    )
    for key in ("makespan_s", "makespan_interval_s", "energy_j"):
        assert simulated[key] == pytest.approx(predicted[key])


def test_a_trace_of_arrivals_is_one_document_on_stdout(advisor, arrivals):
    said = advisor(
        "simulate", "--trace-in", arrivals, "--gpus", 2, "--policy", "best-fit", "--json"
    )
    document = json.loads(said.out)
    assert said.err == ""
    assert (document["schema"], document["gpus"], document["policy"]) == (1, 2, "best-fit")
    assert [job["arrival_s"] for job in document["jobs"]] == [0, 30, 60, 90, 120, 150]
    assert all(job["start_s"] >= job["arrival_s"] for job in document["jobs"])
    busy_s = sum(each["end_s"] - each["start_s"] for each in document["over_time"])
    assert busy_s / 3600 == pytest.approx(document["occupied_gpu_hours"])
    assert document["cost_eur"] is None


def test_of_a_trace_no_more_jobs_share_a_gpu_than_was_said(advisor, arrivals):
    words = ["simulate", "--trace-in", arrivals, "--json", "--at-once"]
    for most in (1, 2):
        document = json.loads(advisor(*words, most).out)
        assert max(len(each["jobs"]) for each in document["over_time"]) == most


def test_a_long_trace_is_counted_instead_of_drawn_job_by_job(advisor, tmp_path):
    lines = [f"{at},{SMALL}" for at in range(40)]
    (tmp_path / "many.csv").write_text("\n".join(["arrival_s,job", *lines]))
    said = advisor("simulate", "--trace-in", tmp_path / "many.csv", "--gpus", 2)
    assert "40 jobs under mps on 2 h200-141gb" in said.out
    assert "jobs that wait" in said.out
    assert "on GPU 1" in said.out
    assert max(map(len, said.out.splitlines())) <= 80


def test_perfetto_finds_jobs_their_epochs_and_counters_in_the_trace(advisor, arrivals, tmp_path):
    advisor("simulate", "--trace-in", arrivals, "--at-once", 1, "--trace", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    jobs = [each for each in events if each.get("cat") == "job"]
    epochs = [each for each in events if each.get("cat") == "training"]
    assert (len(jobs), len(epochs)) == (6, 1 + 2 + 3 + 4 + 5 + 6)
    for each in jobs:
        end = each["ts"] + each["dur"]
        inside = [part for part in epochs if each["ts"] <= part["ts"] + part["dur"] / 2 < end]
        assert sum(part["dur"] for part in inside) == pytest.approx(each["dur"])
    assert {each["name"] for each in events if each["ph"] == "C"} >= {"GPU busy, %", "power, W"}
    assert sum(each["ph"] == "b" for each in events) == sum(each["ph"] == "e" for each in events)
    assert all(each.get("dur", 0) >= 0 for each in events)


def test_perfetto_shows_the_first_kernels_of_each_job_one_after_another(advisor, tmp_path):
    words = ["resnet26-cifar10-bs128:2", BERT, "--sharing", "mps=43,57,86", "--kernels"]
    advisor("simulate", *words, "--trace", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    assert {each["tid"] for each in kernels} == {0, 1, 2}
    for job in range(3):
        own = [each for each in kernels if each["tid"] == job]
        for before, after in pairwise(own):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([BERT, "--kernels"], 2, "--kernels says nothing alone: it needs --trace FILE"),
        ([BERT, "--sharing", "mig=7g.141gb", "--kernels", "--trace", "t.json"], 2, "not under mig"),
        ([BERT, "--trace-in", "a.csv"], 2, "one of these"),
        (["--trace-in", "none.csv"], 2, "none.csv: No such file or directory"),
        ([BERT, "--gpus", "0"], 2, "--gpus"),
        ([BERT, "--at-once", "0"], 2, "--at-once"),
        ([BERT, "--price", "-1"], 2, "a price is at least 0 EUR"),
        ([BERT, "--price", "nan"], 2, "a price is at least 0 EUR"),
        ([BERT, "--policy", "luck"], 2, "'luck' is not one of"),
        ([BERT, "--sharing", "mpss"], 2, "'mpss' is not a sharing"),
        (["bert-base-finetune-bs61"], 2, "Near: bert-base-finetune-bs16"),
        (["gpt2-medium-pretrain-bs16"], 3, "more memory than any place has under mps"),
        (["dlrm-29gb-bs128", "--sharing", "mig=1g.18gb"], 3, "more memory than any place"),
        ([BERT, "--sharing", "mig=4g.71gb,4g.71gb"], 3, "at most 1 of 4g.71gb"),
        ([BERT, RESNET, "--sharing", "mps[1];naive[2]", "--gpus", "2"], 2, "on one GPU"),
        ([BERT, "--sharing", "mps[1];naive[2]"], 2, "of 1 job."),
    ],
)
def test_a_wrong_word_is_refused_with_its_message_and_exit_code(advisor, words, code, said):
    answer = advisor("simulate", *words)
    assert said in answer.err
    assert (answer.code, answer.out) == (code, "")


def test_a_csv_that_cannot_be_is_refused_with_its_line(advisor, arrivals):
    arrivals.write_text(f"arrival_s,job\n0,{BERT}\nnan,{BERT}\n")
    answer = advisor("simulate", "--trace-in", arrivals)
    assert (answer.code, answer.out) == (2, "")
    assert "arrivals.csv:3" in answer.err
    arrivals.write_text("arrival_s,job\n0,berd\n")
    said = advisor("simulate", "--trace-in", arrivals).err
    assert "`. Correct the file." in said, "one full stop, whatever the message ends with"
