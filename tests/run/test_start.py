"""Plans that run by their exported script: watched, ended, killed, and undone."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.documents import answer_document
from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.measure import process as scratch_folders
from advisor.measure.script import read_progress
from advisor.run import start as runner
from advisor.run import watch
from advisor.run.doctor import leftover_findings
from advisor.run.start import StartTerms, rehearse, start, stop, undo_left
from advisor.run.watch import ListedRuns, find_run, listed_runs
from advisor.workload.catalogue import workload
from advisor.workload.job import Job
from tests.handed import RESNET
from tests.lean import LEAN, LEAN_PATH
from tests.run.machine import (
    FOREVER,
    QUICK,
    Watcher,
    command,
    job,
    kill_script,
    living,
    nothing_left,
    prepared,
    put_on_path,
    started,
    up,
)
from tests.test_schemas import problems
from tests.waiting import PATIENCE_S, until


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Folders of this test alone, in which it is; scripts and watchers look often."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(scratch_folders, "temporary_base", lambda: tmp_path)
    monkeypatch.setattr(watch, "LOOK_S", 0.02)
    put("sleep", '[ "$1" = 600 ] && exec /usr/bin/sleep 600\nexec /usr/bin/sleep 0.02', tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name, text, folder):
    """Put a program of the shell into `folder`."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    found, server = put_on_path(monkeypatch, tmp_path)
    yield found
    server.shutdown()
    server.server_close()


def test_jobs_run_in_the_order_of_the_plan_with_logs_and_one_that_fails_fails_the_command():
    codes = [
        f"setsid sleep 600 & {QUICK}; [ ! -e up-2 ]",
        f"[ -e up-1 ] && [ -e up-3 ] && {QUICK}",
        f"{QUICK}; echo no such data; exit 3",
    ]
    folder, watcher = started(prepared("naive[1,3];serial[2]", *codes)), Watcher()
    assert watcher.watch(folder) == AdvisorError.exit_code
    assert watcher.states == ["done", "done", "failed"]
    assert (folder / "job-2.log").read_text() == "it ran\n"
    assert "no such data" in watcher.said[-1]
    assert "job-3.log" in watcher.said[-1]
    (listed,) = [each for each in listed_runs() if each.name == folder.name]
    assert [job.state for job in listed.jobs] == ["done", "done", "failed"]
    assert problems("runs", answer_document(ListedRuns((listed,)))) == []
    assert (living(folder), nothing_left()) == ([], True)


def test_the_next_job_of_a_queue_starts_when_one_ends_also_when_that_one_is_stopped():
    waits = "touch up-$ADVISOR_JOB; until [ -e go ]; do sleep 0.1; done"
    folder = started(prepared("naive/2[4,1,2,3]", waits, QUICK, waits, FOREVER))
    up(1, 4)
    assert runner.events_in(folder).running == {1, 4}
    with pytest.raises(InvalidInput):
        stop(folder, 9, print)
    stop(folder, 4, print)
    up(2, 3)
    assert runner.events_in(folder).running >= {1, 3}
    Path("go").touch()
    watcher = Watcher()
    assert watcher.watch(folder) == 0
    assert watcher.states == ["done", "done", "done", "stopped"]


def test_a_run_is_found_by_its_name_and_stopped_with_all_that_a_deaf_job_started():
    with pytest.raises(InvalidInput, match="run --list"):
        find_run(None)
    code = f"trap '' TERM; setsid setsid sleep 600 & {FOREVER.replace('exec ', '')}; sleep 600"
    folder = started(prepared("naive[1];naive[2]", code, QUICK), grace_s=0)
    up(1)
    assert find_run(None) == find_run(folder.name[:-2]) == find_run(str(folder)) == folder
    stop(folder, None, print)
    assert (living(folder), nothing_left()) == ([], True)
    assert not Path("up-2").exists()
    assert "stopped" in "\n".join(map(str, listed_runs()))
    with pytest.raises(InvalidInput):
        find_run(None)


def test_mps_lets_go_of_a_job_that_is_killed_before_it_could_take_the_others_with_it(machine):
    machine.mode = ["Disabled"] * 2
    deaf = "trap '' TERM; touch up-$ADVISOR_JOB; while :; do sleep 600; done"
    folder = started(prepared("mps", deaf, FOREVER), "0", grace_s=0)
    up(1, 2)
    with pytest.raises(GpuUnavailable):  # a second run on the GPU
        started(prepared("mps", QUICK), "0")
    stop(folder, 1, print)
    assert any(call.startswith("terminate_client 77 ") for call in machine.calls)
    until(lambda: runner.events_in(folder).running == {2})
    stop(folder, None, print)
    assert unchanged(machine)


def test_watchers_that_die_harm_nothing_and_ctrl_c_at_another_ends_the_run():
    folder = started(prepared("naive", "until [ -e go ]; do sleep 0.1; done", FOREVER))
    watchers = {}
    for how in (signal.SIGHUP, signal.SIGINT):
        with Path(f"shown-{how}").open("wb") as shown:
            watchers[how] = command("run", folder.name, stdout=shown)
    up(2)
    for how, watcher in watchers.items():
        until(lambda how=how: folder.name in Path(f"shown-{how}").read_text())
        if how == signal.SIGINT:
            Path("go").touch()
            until(lambda: 1 in runner.events_in(folder).ended)
            assert runner.script_lives(folder)
        watcher.send_signal(how)
        assert watcher.wait(PATIENCE_S) == (130 if how == signal.SIGINT else -how)
    assert (living(folder), nothing_left()) == ([], True)
    again = Watcher()
    assert again.watch(folder) == 0
    assert again.states == ["done", "stopped"]


def test_where_the_plan_of_one_gpu_does_not_start_those_of_the_others_are_ended():
    plans = [replace(prepared("naive", FOREVER), device=at) for at in (0, 1)]
    said = []
    terms = StartTerms(grace_s=1)
    with (
        pytest.raises(GpuUnavailable),
        runner.started(plans, ("cpu", "GPU-none"), terms, said.append),
    ):
        raise AssertionError
    (listed,) = listed_runs()
    assert (listed.state, living(find_run(listed.name))) == ("over", [])


CUT = "mig=4g.71gb[1]+3g.71gb[2]/mps"


def unchanged(machine):
    assert not machine.quit_too_early
    return (machine.layout(), machine.daemons, machine.cap_w) == ([], {}, 500.0)


def test_what_a_killed_script_left_is_found_and_undone(machine):
    folder, watcher = started(prepared(CUT, FOREVER, FOREVER, cap_w=350.0), "0"), Watcher()
    up(1, 2)
    assert not unchanged(machine)
    kill_script(folder)
    assert watcher.watch(folder) == AdvisorError.exit_code
    assert f"advisor stop {folder.name}" in watcher.said[-1]
    (finding,) = leftover_findings()
    assert (finding.severity, "advisor doctor --undo" in finding.remedy) == ("spoils", True)
    with pytest.raises(GpuUnavailable, match="doctor --undo"):
        started(prepared("naive", QUICK), "0")
    list(undo_left())
    assert unchanged(machine)
    until(lambda: not living(folder))
    assert nothing_left()


def test_the_next_start_undoes_what_a_killed_script_left_once_its_jobs_ended(machine):
    code = f"{QUICK}; until [ -e go ]; do sleep 0.1; done"
    folder = started(prepared(CUT, code, code, cap_w=350.0), "0")
    up(1, 2)
    kill_script(folder)
    Path("go").touch()
    until(lambda: len(runner.events_in(folder).ended) == 2)
    assert not unchanged(machine)
    again, watcher = started(prepared(CUT, QUICK, QUICK, cap_w=350.0), "0"), Watcher()
    assert watcher.watch(again) == 0
    assert unchanged(machine)
    Path("up-1").unlink()
    last = started(prepared(CUT, FOREVER, FOREVER, cap_w=350.0), "0")
    up(1)
    stop(folder, None, print)
    assert "over" in str(next(listed_runs()))
    assert runner.script_lives(last), "a later run on the GPU is left alone"
    stop(last, None, print)
    assert unchanged(machine)


def test_no_job_starts_where_mps_does_not_answer(machine, home):
    machine.mode = ["Disabled"] * 2
    put("nvidia-cuda-mps-control", '[ "$1" = -d ]', home)
    put("sleep", "", home)
    folder = started(prepared("mps", QUICK), "0")
    with pytest.raises(GpuUnavailable, match="MPS"):
        Watcher().watch(folder)
    assert not Path("up-1").exists()
    assert nothing_left()


def test_instances_of_others_stay_unless_they_are_to_be_replaced(machine):
    machine.put(9, 0)
    machine.put(19, 6)
    before, plan = machine.layout(), prepared("mig=4g.71gb@0[1]", QUICK)
    with pytest.raises(GpuUnavailable):
        Watcher().watch(started(plan, "0"))
    assert machine.layout() == before
    assert Watcher().watch(started(plan, "0", replace_instances=True)) == 0
    assert machine.layout() == before
    Path("up-1").unlink()
    folder = started(prepared("mig=4g.71gb@0[1]", FOREVER), "0", replace_instances=True)
    up(1)
    kill_script(folder)
    assert machine.layout() != before
    stop(folder, None, print)
    assert machine.layout() == before
    machine.mode = ["Disabled", "Disabled"]
    with pytest.raises(GpuUnavailable):
        Watcher().watch(started(prepared("mig=4g.71gb[1]", QUICK), "0"))
    assert machine.mode == ["Disabled", "Disabled"], "MIG mode is never switched"


def test_secrets_and_the_callers_variables_are_written_nowhere(monkeypatch):
    monkeypatch.setenv("MINE", "other-word")
    code = '[ "$API_TOKEN $MINE $SEED" = "own-word other-word 3" ]'
    secret = job(code, environment={"API_TOKEN": "own-word", "SEED": "3"})
    folder = started(prepared("naive", secret))
    assert Watcher().watch(folder) == 0
    for file in folder.iterdir():
        if file.is_file() and file.name != "plan.json":
            assert b"own-word" not in file.read_bytes().replace(code.encode(), b"")
            assert b"other-word" not in file.read_bytes().replace(code.encode(), b"")
    option = job(["true", "--token", "third-word"])
    assert "third-word" not in rehearse(prepared("naive", option), "cpu", StartTerms())


@pytest.mark.parametrize("held", [False, True])
def test_jobs_float_over_all_cores_or_those_of_the_run_without_mps_settings(held, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    code = "import os; print(os.sched_getaffinity(0), [n for n in os.environ if 'MPS_A' in n])"
    allowed = os.sched_getaffinity(0)
    cores = {min(allowed)} if held else allowed
    plan = prepared("naive", *[job([sys.executable, "-c", code])] * 2)
    folder = started(plan, cores=",".join(map(str, cores)) if held else None)
    assert Watcher().watch(folder) == 0
    logs = [(folder / f"job-{number}.log").read_text() for number in (1, 2)]
    assert logs == [f"{cores} []\n"] * 2


STEPS = """
import torch
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
for _ in range(25):
    optimizer.step()
"""
HOOKED = "import own, sys; print([type(each).__module__ for each in sys.meta_path])"


def test_steps_are_counted_of_the_zoo_and_of_scripts_with_a_python_path_of_their_own(
    home, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    (home / "own.py").write_text("")
    (home / "sitecustomize.py").write_text(LEAN.read_text())
    zoo = Job(replace(RESNET.profile, workload=workload("mlp-toy-bs32")))
    own = job([sys.executable, "-c", HOOKED], environment={"PYTHONPATH": str(home)})
    (home / "replaced.sh").write_text(f"export PYTHONPATH=.\npython -c 'import own{STEPS}'")
    replaced = job(["bash", str(home / "replaced.sh")])
    folder, watcher = started(prepared("naive", zoo, replaced, own), steps=30), Watcher()
    assert watcher.watch(folder) == 0
    jobs = watcher.shown[-1].jobs
    assert [each.done for each in jobs] == [30, 25, None]
    assert jobs[0].steps == 30
    assert dict(read_progress(folder / "job-2.progress").versions)["torch"]
    assert "sitecustomize" in (folder / "job-3.log").read_text()


@pytest.mark.exhaustive
def test_a_job_without_a_step_for_longer_than_the_patience_is_ended():
    code = (
        "import time; from advisor.measure.inside.program import StepCounter; "
        "StepCounter().stepped_explicitly(); time.sleep(600)"
    )
    folder, watcher = (
        started(prepared("naive", job([sys.executable, "-c", code]))),
        Watcher(patience_s=1),
    )
    assert watcher.watch(folder) == 0
    assert watcher.states == ["stopped"]


def test_without_a_state_folder_or_on_cores_of_others_nothing_starts(monkeypatch):
    terms = StartTerms(cores="4095")
    for call in (start, rehearse):
        with pytest.raises(InvalidInput, match="--cores"):
            call(prepared("naive", QUICK), "cpu", terms)
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(AdvisorError, match="XDG_STATE_HOME"):
        started(prepared("naive", QUICK))
    assert not Path("up-1").exists()
