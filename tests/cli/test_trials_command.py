import json

import pytest

RESNET = "resnet50-imagenet64-bs128"
BERT = "bert-base-finetune-bs16"


def test_how_many_trials_to_run_at_once_and_what_an_hour_gives(advisor):
    said = advisor("trials", RESNET, "--steps", 500)
    assert said.code == 0
    assert said.out.startswith(f"Run 3 trials of {RESNET} at once on h200-141gb, a process each")
    assert "trials of 500 steps an hour" in said.out
    assert "3 pay: 2 more would bring less than 2% more work" in said.out
    assert "MPS serves" not in said.out  # 48 clients, of which memory holds fewer


def test_fit_pay_and_client_limit_are_three_numbers(advisor):
    found = json.loads(advisor("trials", RESNET, "--steps", 500, "--json").out)
    assert found["pay"] == 3
    assert found["fit"] == 35
    assert found["mps_clients"] == 48
    assert found["sharing"].startswith("mps")
    rate = found["trials_per_hour"]
    assert rate["p05"] <= rate["p50"] <= rate["p95"]
    assert rate["p50"] == pytest.approx(3600 * found["at_once"] / (10 + found["trial_s"]["p50"]))
    trained = found["trained_per_hour"]["p50"]
    assert trained == pytest.approx(3600 * found["at_once"] / found["trial_s"]["p50"])
    assert found["study"] is None


def test_processes_that_are_kept_for_the_next_trial_do_not_start_anew(advisor):
    words = ("trials", RESNET, "--steps", 500, "--start-up", 0)
    found = json.loads(advisor(*words, "--json").out)
    assert found["trials_per_hour"] == found["trained_per_hour"]
    assert "to start" not in advisor(*words).out


def test_a_study_says_how_long_it_takes(advisor):
    words = ("trials", RESNET, "--steps", 500, "--count", 24)
    study = json.loads(advisor(*words, "--json").out)["study"]
    assert study["trials"] == 24
    assert study["wall_s"]["p50"] < study["one_by_one_s"]["p50"]
    assert "All 24 take" in advisor(*words).out


def test_a_trial_is_an_epoch_and_twice_as_many_take_twice_as_long(advisor):
    one, two = (
        json.loads(advisor("trials", RESNET, "--epochs", each, "--json").out) for each in (1, 2)
    )
    assert two["trial_s"]["p50"] == pytest.approx(2 * one["trial_s"]["p50"])


@pytest.mark.parametrize("command", ["trials", "recommend"])
def test_a_script_that_nobody_measured_is_to_be_measured_as_it_is(advisor, command):
    said = advisor(command, "runs/train.py")
    assert said.code == 2
    assert "advisor profile -- python runs/train.py" in said.err


def test_a_script_is_known_by_the_profile_of_its_name(advisor):
    said = advisor("trials", f"somewhere/{RESNET}.py", "--steps", 500)
    assert said.code == 0
    assert f"trials of {RESNET}" in said.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"{RESNET}:2"], f"JOB is one trial, and how many pay is the answer. Write {RESNET};"),
        ([f"{RESNET}@2"], "--epochs N says how long it trains"),
        ([RESNET, "--steps", 5, "--epochs", 2], "--steps and --epochs do not go together"),
        ([RESNET, "--steps", 0], "at least 1 training step"),
        ([RESNET, "--start-up", -1], "a process starts in 0 s to a day"),
        ([RESNET, "--count", 0], "a search has 1 to"),
        ([RESNET, "--epochs", -1], "epochs must be above 0"),
        ([RESNET, "--memory-margin", 2], "a memory margin is a share"),
    ],
)
def test_what_cannot_be_answered_is_refused(advisor, words, said):
    found = advisor("trials", *words)
    assert found.code == 2
    assert said in found.err
