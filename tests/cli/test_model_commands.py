import json
import subprocess
import sys
from io import StringIO

import pytest

from advisor.cli.output import progress
from advisor.workload.files import MODEL_FILE
from tests import synthetic
from tests.cli.conftest import PROFILES
from tests.waiting import PATIENCE_S

PAIR = ["resnet50-imagenet64-bs128", "bert-base-finetune-bs16"]


def test_fit_writes_a_model_that_recommend_then_uses(advisor, tmp_path):
    said = advisor("fit", "--out", tmp_path / "models")
    assert said.code == 0
    assert "fitted to 45 runs of 3 profiles" in said.out
    assert advisor("recommend", *PAIR, "--models", tmp_path / "models").code == 0


@pytest.mark.usefixtures("few_lessons")
def test_fit_writes_to_the_users_own_folder_by_default(advisor, tmp_path):
    advisor("fit")
    assert (tmp_path / "nobody" / "advisor" / "models" / MODEL_FILE).is_file()


def test_evaluate_prints_a_scoreboard(advisor):
    document = json.loads(advisor("evaluate", "--json").out)
    assert document["schema"] == 1
    assert advisor("evaluate").code == 0


def test_predictions_that_were_exported_score_as_they_did(advisor, tmp_path):
    said = advisor("evaluate", "--export", tmp_path / "ours.jsonl", "--json")
    again = advisor("evaluate", "--predictions", tmp_path / "ours.jsonl", "--json")
    first, second = json.loads(said.out), json.loads(again.out)
    raw = [row for row in first["rows"] if row["view"] == "raw"]  # nobody exports another view
    for before, after in zip(raw, second["rows"], strict=True):
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


def test_evaluating_tells_on_stderr_how_many_families_are_done(advisor):
    said = advisor("evaluate", "--json")
    told = [line for line in said.err.splitlines() if "families" in line]
    assert told[0].startswith("0/3 ")
    assert told[-1].startswith("3/3 ")
    assert len(told) == 4
    assert json.loads(said.out)["schema"] == 1


@pytest.mark.usefixtures("few_lessons")
def test_fitting_tells_on_stderr_what_it_does(advisor):
    said = advisor("fit")
    told = ["0/2 fitting to 45 runs", "1/2 fitting the surrogate model", "2/2 fitted"]
    assert said.err.splitlines() == told
    assert said.out.count("\n") == 2


def test_somebody_at_a_terminal_sees_a_bar_that_goes_away(monkeypatch):
    class Terminal(StringIO):
        def isatty(self):
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with progress() as advance:
        advance(1, 4, "families")
    assert "families" in shown.getvalue()
    assert "1/4" in shown.getvalue()
    assert shown.getvalue().endswith("\x1b[2K")  # the line is cleared


def test_processes_that_share_out_work_end_with_an_interrupt():
    """A terminal interrupts all of them at once, and one is enough to say so."""
    code = (
        "import os, signal\nfrom time import sleep\n"
        "from advisor.prediction.parallel import in_processes\n"
        "with in_processes(sleep, [600, 600], 2) as found:\n"
        "    os.killpg(0, signal.SIGINT)\n    next(found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        start_new_session=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stderr.count("Traceback") == 1  # of the process that was asked, and not handled
    assert "Process SpawnProcess" not in done.stderr


def test_fit_without_a_run_of_ones_own_leaves_the_model_as_it_is_at_once(
    advisor, tmp_path, monkeypatch
):
    monkeypatch.delenv("ADVISOR_PROFILES")
    monkeypatch.delattr("advisor.cli.model_commands.MeasuredOptions.read")
    said = advisor("fit")
    assert (said.code, said.out) == (2, "")
    assert "there is nothing of yours to learn from, so the model stays as it is" in said.err
    assert not (tmp_path / "nobody").exists()
