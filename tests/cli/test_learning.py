import json

import pytest

from tests import synthetic
from tests.cli.conftest import GPU, PROFILES

PAIR = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16"]


def test_fit_writes_a_model_that_recommend_then_uses(advisor, tmp_path):
    said = advisor("fit", "--out", tmp_path / "models")
    assert said.code == 0
    assert "fitted to 45 runs of 3 profiles" in said.out
    assert advisor("recommend", *PAIR, "--models", tmp_path / "models").code == 0


@pytest.mark.usefixtures("few_lessons")
def test_fit_writes_to_the_users_own_folder_by_default(advisor, tmp_path):
    advisor("fit")
    assert (tmp_path / "nobody" / "advisor" / "models" / f"{GPU}.json").is_file()


def test_evaluate_prints_a_scoreboard(advisor):
    document = json.loads(advisor("evaluate", "--json").out)
    assert document["schema"] == 1
    assert advisor("evaluate").code == 0


def test_predictions_that_were_exported_score_as_they_did(advisor, tmp_path):
    said = advisor("evaluate", "--export", tmp_path / "ours.jsonl", "--json")
    again = advisor("evaluate", "--predictions", tmp_path / "ours.jsonl", "--json")
    first, second = json.loads(said.out), json.loads(again.out)
    for before, after in zip(first["rows"], second["rows"], strict=True):
        assert before["mape"] == after["mape"]
        assert before["coverage90"] == after["coverage90"]


def test_predictions_with_a_run_missing_are_refused(advisor, tmp_path):
    (tmp_path / "theirs.jsonl").write_text("")
    said = advisor("evaluate", "--predictions", tmp_path / "theirs.jsonl")
    assert said.code == 2
    assert "scored runs are missing" in said.err


def test_a_dry_run_prints_every_process_and_starts_none(advisor):
    said = advisor("validate", *PAIR, "--top", 1, "--dry-run")
    assert said.code == 0
    assert "cores: " in said.out


def test_runs_from_another_machine_are_compared_and_those_outside_exit_with_5(advisor, tmp_path):
    from advisor.workload.writing import append_run

    run = synthetic.run([PROFILES[name] for name in PAIR], "mps", slowdown=90, run_id="far")
    append_run(tmp_path / "runs.jsonl", run)
    said = advisor("validate", "--from", tmp_path / "runs.jsonl", "--out", tmp_path / "kept")
    assert said.code == 5
    assert "2 outside what was predicted" in said.err
    assert "outside" in said.out
