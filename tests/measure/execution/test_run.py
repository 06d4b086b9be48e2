"""Plans that run: each job with what it is to have, in order; what ends frees what it held."""

import json
import os
import signal
from dataclasses import replace

import pytest

from advisor.measure.process.progress_file import progress_in
from advisor.workload.named_workloads import workload
from advisor.workload.stored_runs import read_runs
from tests.measure.execution.runs import FOREVER, STEPS, document, script
from tests.waiting import PATIENCE_S, until

TEN = STEPS + "for number in range(1, 11): step(number)\n"


def ten_and_meet(own, other):
    """Ten steps, and an end once another script has done them too: the files say so."""
    return f"{TEN}Path('{own}').touch()\nwhile not Path('{other}').exists(): time.sleep(0.01)\n"


def until_there_is(file):
    """Steps until somebody makes `file`."""
    return f"{STEPS}number = 0\nwhile not Path('{file}').exists(): step(number := number + 1)\n"


def running(execution, jobs=1):
    """Wait until that many jobs have counted a step; their progress files."""

    def found():
        runs = execution.runs()
        files = [runs[-1].progress(number) for number in range(1, jobs + 1)] if runs else []
        return [file for file in files if (said := progress_in(file)) and said.steps > 0]

    until(lambda: len(found()) == jobs)
    return found()


def test_jobs_run_in_the_order_of_the_plan_and_what_they_did_is_said(execution):
    def plan(at):
        first, third = f"{at}/first-done", f"{at}/third-done"
        codes = {"a": ten_and_meet(first, third), "b": TEN, "c": ten_and_meet(third, first)}
        scripts = (script(at, name, code) for name, code in codes.items())
        return document("naive[1,3];serial[2]", *scripts)

    run = execution(plan)
    assert run.begin().wait(PATIENCE_S) == 0
    state = run.state()
    assert (state.over, run.fates()) == (True, ["done"] * 3)
    assert [job.steps for job in state.jobs] == [10] * 3
    first, second, third = state.jobs
    assert second.began_s >= max(first.ended_s, third.ended_s)
    assert third.began_s < first.ended_s
    run.assert_nothing_is_left()


def test_without_apply_it_says_what_it_would_start_and_starts_nothing(execution):
    run = execution(lambda at: document(
        "naive", script(at, "a", TEN, WANDB_API_KEY="hush", SEED="3")))  # fmt: skip
    code, said, _ = run.does("run", run.plan, "--device", "cpu")
    assert code == 0
    assert "a.py" in said
    assert "SEED=3" in said
    assert "WANDB_API_KEY=***" in said
    assert "hush" not in said
    assert run.runs() == []


def test_a_job_has_its_own_cores_and_environment_and_no_mps_settings_of_the_caller(execution):
    code = "import json, os\nprint(json.dumps([sorted(os.sched_getaffinity(0)), dict(os.environ)]))"
    run = execution(lambda at: document("naive", script(at, "shows", code, SEED="3")))
    environment = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "ADVISOR_PROGRESS": "/dev/null"}
    assert run.begin(**environment).wait(PATIENCE_S) == 0
    folder = run.runs()[-1]
    cores, seen = json.loads(folder.log(1, "shows").read_text())
    assert len(cores) == 1
    assert seen["SEED"] == "3"
    assert seen["ADVISOR_PROGRESS"] == str(folder.progress(1))
    assert not [name for name in seen if name.startswith("CUDA_MPS")]


def test_the_environment_of_the_caller_is_written_nowhere(execution):
    run = execution(lambda at: document("naive", script(at, "a", TEN, PASSWORD="own-word")))
    assert run.begin(SECRET_OF_MINE="other-word").wait(PATIENCE_S) == 0
    written = b"".join(
        path.read_bytes()
        for path in run.runs()[-1].path.iterdir()
        if path.is_file() and path.name != "plan.json"
    )
    assert b"other-word" not in written
    assert b"own-word" not in written


def test_a_workload_of_the_zoo_counts_its_steps(execution):
    run = execution(lambda _: document("naive", workload("mlp-toy-bs32"), examples=10**9))
    assert run.begin("--steps", "30").wait(PATIENCE_S) == 0
    assert [job.steps for job in run.state().jobs] == [30]
    found = progress_in(run.runs()[-1].progress(1))
    assert dict(found.versions)["torch"]
    assert found.reserved_mib > 0


@pytest.mark.exhaustive
def test_what_was_measured_becomes_a_record_to_learn_from(execution):
    run = execution(lambda _: document("naive", workload("mlp-toy-bs32"), examples=10**9))
    out = run.folder / "runs.jsonl"
    assert run.begin("--deadline", "25", "--out", out).wait(PATIENCE_S) == 0
    (record,) = read_runs(out)
    (tenant,) = record.tenants
    assert (record.gpu, record.purpose, record.sharing) == ("cpu", "validation", "naive")
    assert tenant.workload == workload("mlp-toy-bs32")
    assert tenant.step_s > 0
    assert tenant.memory.reserved_mib > 0
    assert record.provenance.torch != "unknown"
    assert run.fates() == ["stopped"]


def test_watching_goes_on_after_the_watcher_was_killed(execution):
    run = execution(lambda at: document(
        "naive[1];naive[2]",
        script(at, "a", until_there_is(f"{at}/go-on")),
        script(at, "b", TEN)))  # fmt: skip
    watcher = run.begin()
    running(run)
    watcher.kill()
    watcher.wait()
    status = json.loads(run.does("status", "--json")[1])["runs"][0]
    assert (status["over"], status["watched"]) == (False, False)
    assert [job["phase"] for job in status["jobs"]] == ["running", "waiting"]
    (run.folder / "go-on").touch()
    assert run.does("run", "--resume")[0] == 0
    assert run.fates() == ["done", "done"]
    run.assert_nothing_is_left()


def test_a_run_that_is_watched_is_watched_by_one(execution):
    run = execution(lambda at: document("naive", script(at, "a", FOREVER)))
    run.begin()
    running(run)
    code, _, said = run.does("run", "--resume")
    assert code == 4
    assert "is watched by another process" in said
    assert run.does("stop")[0] == 0
    assert run.fates() == ["stopped"]
    run.assert_nothing_is_left()


def test_one_job_is_stopped_and_the_others_go_on(execution):
    run = execution(lambda at: document(
        "naive", script(at, "a", FOREVER), script(at, "b", STEPS + "for n in range(1, 99): step(n)")
    ))  # fmt: skip
    watcher = run.begin()
    running(run, 2)
    assert run.does("stop", "--job", "1")[0] == 0
    assert watcher.wait(PATIENCE_S) == 0
    assert run.fates() == ["stopped", "done"]
    run.assert_nothing_is_left()


def test_an_interrupt_ends_the_jobs_and_a_lost_terminal_only_the_watching(execution):
    run = execution(lambda at: document("naive", script(at, "a", FOREVER)))
    watcher = run.begin()
    running(run)
    watcher.send_signal(signal.SIGHUP)
    assert watcher.wait(PATIENCE_S) == 129
    assert run.state().jobs[0].phase == "running"
    os.kill(run.state().jobs[0].keeper, 0)
    again = run.begin("--resume")
    until(lambda: run.runs()[-1].is_watched)
    again.send_signal(signal.SIGINT)
    assert again.wait(PATIENCE_S) == 130
    assert run.fates() == ["stopped"]
    run.assert_nothing_is_left()


def test_the_steps_of_a_script_that_knows_nothing_of_it_are_counted(execution):
    code = (
        "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model"
        ".parameters())\nfor _ in range(25):\n    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
    )
    run = execution(lambda at: document("naive", script(at, "plain", code)))
    assert run.begin().wait(PATIENCE_S) == 0
    assert [job.steps for job in run.state().jobs] == [25]
    found = progress_in(run.runs()[-1].progress(1))
    assert dict(found.versions)["torch"]


def test_steps_of_a_program_that_prints_its_pace_alone_are_told_by_that(execution):
    code = "import time\nfor _ in range(30): time.sleep(0.01); print('rate 400 examples/s')"

    def plan(at):
        own = script(at, "prints", code)
        paced = replace(own.script, throughput="rate ([0-9]+)")
        return document("naive", replace(own, batch=4, script=paced))

    run = execution(plan)
    assert run.begin().wait(PATIENCE_S) == 0
    (job,) = run.state().jobs
    assert job.steps >= 29, "each takes 10 ms at least, of which the first tells the start"
    said = progress_in(run.runs()[-1].progress(1))
    assert said.steps == job.steps


def test_a_plan_under_a_power_cap_is_refused_rather_than_run_without_it(execution):
    run = execution(lambda at: document("naive", script(at, "a", TEN)))
    text = run.plan.read_text().replace('"power_cap_w": null', '"power_cap_w": 400.0')
    run.plan.write_text(text)
    code, _, said = run.does("run", run.plan, "--device", "cpu", "--apply")
    assert code == 2
    assert "power cap of 400 W" in said
    assert run.runs() == []
