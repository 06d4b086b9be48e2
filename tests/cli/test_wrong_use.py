"""Wrong input: what is said, where, and the exit code."""

import json
import subprocess
import sys

import pytest

from advisor.workload.writing import profile_text
from tests import synthetic
from tests.waiting import PATIENCE_S

RESNET, BERT = "resnet50-imagenet64-bs128", "bert-base-finetune-bs16"


def changed(**changes):
    return json.dumps(json.loads(profile_text(synthetic.profile())) | changes)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it has no [[job]] table. `advisor init jobs` writes a file to start from."),
        ("# nothing", "it has no [[job]] table"),
        (f'[[jobs]]\nprofile = "{BERT}"', "it has no [[job]] table, but one called jobs. "),
        ('{"job": []}', "it is JSON, and TOML is wanted"),
        (f'[[job]]\nprofil = "{BERT}"', "job 1: profil is no known field; did you mean profile?"),
    ],
)
def test_what_is_no_file_of_jobs_is_told_what_one_is(advisor, tmp_path, content, said):
    file = tmp_path / "jobs.toml"
    file.write_text(content)
    found = advisor("recommend", "--jobs", file)
    assert found.code == 2
    assert said in found.err
    assert len(found.err.splitlines()) == 1


def test_a_file_of_runs_without_any_is_refused(advisor, tmp_path):
    (tmp_path / "runs.jsonl").touch()
    said = advisor("validate", "--from", tmp_path / "runs.jsonl")
    assert said.code == 2
    assert "it holds no runs" in said.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["recommend", BERT, "--gpu", "h2000"], 2, "no GPU is called 'h2000'. Near: h200-141gb"),
        (["recommend", "bert-base-finetune-bs61"], 2, "Near: bert-base-finetune-bs16"),
        (
            ["recommend", "bert-base-finetune-bs61", "--gpu", "a100-80gb"],
            2,
            "Near: bert-base-finetune-bs16",
        ),
        (["recommend", f"{BERT}:0"], 2, "with 0 copies there is no job"),
        (["recommend", f"{BERT}:-2"], 2, "there cannot be -2 copies"),
        (["recommend", f"{BERT}:1000000"], 2, "1,000,000 copies are more than the 48 that are"),
        (["recommend", f"{BERT}:x"], 2, "COPIES is a whole number from 1 to 48"),
        (["recommend", BERT, "--jobs", "jobs.toml"], 2, "not both"),
        (["recommend", "--jobs", "none.toml"], 2, "none.toml: No such file or directory"),
        (["recommend", "jobs.toml"], 2, "a file of jobs is no JOB. Say --jobs jobs.toml"),
        (["recommend", "."], 2, ".: a folder is no JOB"),
        (["recommend", ""], 2, "an empty word is no JOB"),
        (["explain", "naive", BERT], 2, f"advisor explain naive mps {BERT}"),
        (["recommend", "./none.json"], 2, "none.json: No such file or directory"),
        (
            ["recommend", "--objective", "beauty"],
            2,
            "error: Invalid value for '--objective': 'beauty'",
        ),
        (["recommend", "--top", "0"], 2, "--top"),
        (["recommend", "--top", "few"], 2, "it takes a whole number alone, without a unit"),
        (["recommend", "--memory-margin", "10%"], 2, "without % or a unit; of a share, 0.1 is 10"),
        (["recomend"], 2, "Did you mean 'recommend'? See `advisor -h`."),
        (["recommend", BERT, "--commands", "99"], 2, "there is no plan 99"),
        (["recommend", "--profiles", "nowhere"], 2, "nowhere: no such folder of profiles"),
        (["recommend", "--models", "nowhere"], 2, "nowhere: no such folder of models"),
        (["recommend", "gpt2-medium-pretrain-bs16"], 3, "MiB are missing"),
        (["predict", BERT, "--sharing", "mps=200"], 2, "per cent in (0, 100]"),
        (["predict", BERT, "--sharing", "mpss"], 2, "'mpss' is not a sharing"),
        (["predict", BERT, "--sharing", "mps=50,50"], 2, "2 limits for 1 job"),
        (["predict", BERT, "--sharing", "mig=9g.71gb"], 2, "Near: 4g.71gb, 3g.71gb"),
        (["predict", BERT, "--sharing", "mig=3g.20gb"], 2, "is called '3g.20gb'. Near: 3g"),
        (["predict", f"{BERT}:2", "--sharing", "mig=4g.71gb,4g.71gb"], 3, "at most 1 of 4g.71gb"),
        (["predict", BERT, "--sharing", "mig=4g.71gb[1]/mps=50,50"], 2, "2 limits for 1 job"),
        (["predict", BERT, "--sharing", "mig=4g.71gb[1]+3g.71gb[2]"], 2, "job 1, 2 of 1 job"),
        (["predict", BERT, "--sharing", "naive[1]"], 2, "is not a sharing"),
        (["predict", BERT, "--sharing", "naive[1];mps[1]"], 2, "job 1 is named twice"),
        (["predict", BERT, "--sharing", "mig=4g.71gb@1[1]"], 2, "starts at 0, not 1"),
        (["predict", BERT, "--sharing", "7g.141gb/ci=5c[1]"], 2, "cannot be cut into 5c"),
        (["predict", f"{BERT}:2", "--sharing", "7g.141gb/ci=4c[1]+4c[2]"], 3, "cannot hold"),
        (["predict", BERT, "--power-cap", "800"], 2, "Use 234 W to 700 W"),
        (
            ["predict", BERT, "--power-cap", "auto"],
            2,
            "got 'auto', which is for `advisor recommend` alone",
        ),
        (
            ["export", BERT, "--power-cap", "low"],
            2,
            "error: --power-cap takes watts, e.g. 400; got 'low'",
        ),
        (["recommend", BERT, "--power-cap", "0"], 2, "cannot be set on h200-141gb"),
        (["recommend", BERT, "--power-cap", "low"], 2, "--power-cap"),
        (["recommend", BERT, "--memory-margin", "1.5"], 2, "a memory margin is a share"),
        (["fly"], 2, "error: No such command 'fly'. See `advisor -h`."),
        (["recommend", "--fast"], 2, "error: No such option: --fast"),
        (
            ["recommend", "train.py", "--lr", "0.1"],
            2,
            "Those of train.py itself are for `advisor profile -- python train.py ...`.",
        ),
        (["explain"], 2, "error: Missing argument 'PLAN'. See `advisor explain -h`."),
        (["validate", BERT, "--from", "runs.jsonl"], 2, "--from and JOBS do not go together"),
        (["validate", "--from", "none.jsonl"], 2, "none.jsonl: No such file or directory"),
        (["fit", "--gpu", "a30-24gb"], 2, "no run on an a30-24gb to learn from yet"),
        (["evaluate", "--gpu", "a30-24gb"], 2, "no run to score"),
    ],
)
def test_a_wrong_word_is_refused_with_its_message_and_exit_code(advisor, words, code, said):
    answer = advisor(*words)
    assert said in answer.err
    assert (answer.code, answer.out) == (code, "")
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "p.json: not valid JSON: EOF while parsing a value at line 1 column 0. Measure it"),
        ("[]", "p.json: it is no profile, which is a JSON object, {...}. Measure it again"),
        ('{"a": 1}', "p.json: it is no profile: it lacks workload, gpu, windows and "),
        (changed()[:-30], "p.json: not valid JSON: EOF"),
        (changed(step_ms=3), "step_ms is no known field"),
        (changed(gpu_s=-1), "gpu_s must be finite and at least 0"),
        (changed(gpu_s=0.125).replace("0.125", "NaN"), "gpu_s"),
        (changed(gpu="cpu"), "measured on a CPU, which says nothing of a GPU"),
    ],
    ids=[
        "empty", "no object", "another object", "truncated", "unknown key", "negative", "NaN",
        "CPU",
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_true_is_refused(advisor, tmp_path, text, said):
    (tmp_path / "p.json").write_text(text)
    answer = advisor("recommend", tmp_path / "p.json", "--gpu", "h200-141gb")
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.startswith("error: ")


def test_a_folder_without_a_model_says_how_to_make_one(advisor, tmp_path):
    answer = advisor("recommend", BERT, "--models", tmp_path)
    assert answer.code == 2
    assert "`advisor fit --out " in answer.err


def test_debug_shows_where_it_came_from_wherever_it_stands(advisor):
    for words in (["--debug", "recommend", "none"], ["recommend", "none", "--debug"]):
        answer = advisor(*words)
        assert answer.code == 2
        assert "Traceback" in answer.err
        assert "error: no profile is called 'none'" in answer.err


def started(*words, **how):
    command = [sys.executable, "-c", "from advisor.cli import main; main()", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def test_a_reader_that_leaves_early_is_no_error():
    process = started("workloads")
    process.stdout.close()
    process.wait(timeout=PATIENCE_S)
    assert process.stderr.read() == b""
    process.stderr.close()


def test_an_interrupt_ends_quietly_with_130(advisor, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("advisor.arguments.parse_jobs", interrupted)
    answer = advisor("recommend", BERT)
    assert (answer.code, answer.out, answer.err) == (130, "", "")


@pytest.mark.parametrize("words", [[], ["--gpu", "a100-40gb"]])
def test_a_script_that_is_not_here_is_told_so_and_how_to_do_without_a_gpu(words, advisor):
    said = advisor("recommend", *words, "runs/nosuch.py")
    assert (said.code, said.out) == (2, "")
    assert "runs/nosuch.py: it was not measured yet, and there is no such file here." in said.err
    assert "`advisor profile -- python runs/nosuch.py`" in said.err
    assert "`advisor profile --from-numbers --help`" in said.err


def test_a_script_that_was_measured_elsewhere_is_translated_by_its_path(advisor):
    said = advisor("predict", f"{BERT}.py", "--gpu", "a100-40gb", "--json")
    assert json.loads(said.out)["estimated_profiles"] == {BERT: "h200-141gb"}


def test_without_a_gpu_to_calibrate_it_is_said_that_advice_does_without(advisor, monkeypatch):
    monkeypatch.setattr("advisor.calibration.main", lambda _words: 4)
    said = advisor("calibrate")
    assert said.code == 4
    assert "Advice needs no calibration: without one its ranges allow for" in said.err
