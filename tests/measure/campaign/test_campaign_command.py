import os
import signal
from pathlib import Path

import pytest

from advisor.measure.campaign.campaign_command import run
from advisor.workload.store import read_profile
from tests.measure.campaign.plans import PLAN, written
from tests.measure.shared.test_run_list import HIDE
from tests.refusals import refused
from tests.waiting import PATIENCE_S

LONG = PLAN.replace("window_s = 0.1", "window_s = 60")
CONTROL = """
[[control]]
id = "pair"
sharing = "naive"
workloads = ["mlp-toy-bs32", "mlp-toy-bs64"]
"""
PROFILED = """
gpu = "cpu"
seed = 7
small = ["mlp-toy-bs32"]
solo_every = 0
profile = {missing = true}
timing = {settle_s = 0.1, window_s = 0.1}

[[runs]]
id = "alone"
sharing = "naive"
purpose = "solo"
workloads = ["mlp-toy-bs32"]
"""
BROKEN = """
gpu = "cpu"
seed = 7
timing = {settle_s = 0.1, window_s = 0.1}

[[runs]]
id = "no-such-model"
sharing = "naive"
purpose = "chosen"

[[runs.workloads]]
name = "none"
source = "timm"
model = "no_such_model"
family = "none"
batch = 1
resolution = 32
classes = 10
"""


def runners(command):
    """The pids of its runners."""
    return [
        pid
        for pid in command.processes()
        if b"advisor.measure.campaign.runner:serve" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_campaign_runs_where_only_torch_and_timm_are_and_does_nothing_twice(campaign, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    shared = campaign(PLAN + CONTROL)
    code, said = shared.finish(PYTHONPATH=str(tmp_path))
    assert code == 0, said
    assert "8/8 " in said
    assert "records a minute" in said
    runs = shared.runs()
    purposes = sorted(run.purpose for run in runs)
    assert purposes == ["control"] * 2 + ["drawn"] * 3 + ["repeat"] + ["solo"] * 2
    assert all(run.ok for run in runs)
    assert {len(run.tenants[0].windows) for run in runs} == {3}
    busy, idle = (next(r for r in runs if r.id.endswith(end)) for end in ("-busy", "-idle"))
    assert busy.provenance.command == idle.provenance.command
    assert idle.provenance.command.startswith("python -m advisor.campaign plan.toml")
    shared.assert_nothing_is_left()

    code, said = shared.finish()
    assert code == 0
    assert "8 runs are done already" in said
    assert len(shared.runs()) == 8


def test_a_dry_run_writes_the_list_and_counts_it(campaign):
    code, said = campaign(PLAN).finish("--dry-run")
    assert code == 0
    assert "drawn      naive        x2: 3" in said
    written_again = campaign(PLAN.replace("seed = 7", "seed = 8")).finish("--dry-run")
    assert written_again[0] == 2
    assert "the runs drawn before are different" in written_again[1]


@pytest.mark.exhaustive
def test_what_has_no_profile_is_profiled_first_and_once(campaign):
    shared = campaign(PROFILED)
    code, said = shared.finish()
    assert code == 0, said
    assert read_profile(shared.profiles / "mlp-toy-bs32.json").windows
    assert "/1 solo run within 5%" in said
    assert "profile of" not in shared.finish()[1]


@pytest.mark.exhaustive
def test_a_runner_that_is_killed_is_replaced_and_its_run_is_done_again(campaign):
    shared = campaign(PLAN.replace("settle_s = 0.1", "settle_s = 3"))
    process = shared.start()
    shared.wait_for_tenants(2)
    os.kill(runners(shared)[0], signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, said
    assert "it was killed by SIGKILL; it will be done again" in said
    assert sorted(run.id for run in shared.runs() if run.purpose == "drawn") == [
        f"plan-drawn-00{number}" for number in range(3)
    ]
    shared.assert_nothing_is_left()


def test_a_run_that_cannot_be_done_is_given_up_and_written_down(campaign):
    shared = campaign(BROKEN)
    code, said = shared.finish()
    assert code == 1
    assert "no-such-model failed" in said
    assert "no-such-model" in (shared.out / "plan-failed.log").read_text()
    assert shared.runs() == []


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive)]
)
def test_however_a_campaign_is_ended_nothing_of_it_stays(campaign, how):
    shared = campaign(LONG)
    process = shared.start()
    shared.wait_for_tenants(3)
    process.send_signal(how)
    code = process.wait(PATIENCE_S)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_an_inner_process_that_is_killed_takes_its_runners_with_it(campaign):
    shared = campaign(LONG)
    process = shared.start()
    shared.wait_for_tenants(3)
    (inner,) = [
        pid
        for pid in shared.processes()
        if b"advisor.measure.campaign.campaign_command:run"
        in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(inner, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 1
    shared.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--devices", "cpu,0"), "either GPUs or cpu"),
        (("--devices", "0,0"), "listed twice"),
        (("--devices", "0,"), "write devices as"),
        (("--deadline", "-1"), "not above 0"),
        (("--cores", "x"), "write cores as"),
    ],
)
def test_words_that_cannot_be_meant_are_wrong_use(tmp_path, words, said, capsys):
    files = ("--out", tmp_path / "out", "--profiles", tmp_path / "profiles")
    asked = [written(tmp_path, PLAN), *files, "--devices", "cpu,cpu", *words]
    code, run_summary = refused(run, asked, capsys)
    assert code == 2
    assert said in run_summary


def test_what_would_pass_the_deadline_is_not_begun_and_said_to_be_left(campaign):
    shared = campaign(PLAN)
    code, said = shared.finish("--deadline", "1")
    assert code == 0
    assert "6 left; the same command does them" in said
    assert shared.runs() == []


def test_runs_are_not_added_beside_files_of_something_else(campaign):
    shared = campaign(PLAN)
    shared.out.mkdir()
    (shared.out / "old.jsonl").write_text("no json\n")
    code, said = shared.finish()
    assert code == 2
    assert "old.jsonl:1: not JSON" in said
