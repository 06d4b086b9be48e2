"""Exported scripts, run among stand-ins for MPS and Slurm: what they start, wait for and end."""

import os
import re
import signal
import subprocess
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.launch.shell import commands
from advisor.measure.process import mps_within
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import BERT, JOBS, RESNET, handed, on_gpus, write
from tests.launch.script_node import ended, pipe_folders, put, script, seen_by, tools_without_mps
from tests.waiting import PATIENCE_S, until

IN_BOTH_FORMS = [
    ("commands", "mps"),
    ("slurm", "naive"),
    pytest.param("commands", "naive", marks=pytest.mark.exhaustive),
    pytest.param("slurm", "mps", marks=pytest.mark.exhaustive),
]
PLAN = handed("mps=43,57.5")

_BROKEN = "#!/bin/sh\necho no permission >&2\nexit 1\n"


def until_gone():
    """Wait until no daemon is left, nor a folder of its pipes."""
    folders = pipe_folders()
    until(lambda: not any(map(mps_within, folders)))
    assert not pipe_folders()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("form", ["commands", "slurm"])
def test_mps_is_on_while_jobs_run_and_off_afterwards(form):
    done = ended(form, PLAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert seen_by(RESNET) == "on device=0 limit=43"
    assert seen_by(BERT) == "on device=0 limit=57.5"
    until_gone()


@pytest.mark.usefixtures("node")
def test_jobs_without_limits_take_none_from_the_callers_environment():
    ended("commands", handed("mps"))
    assert seen_by(RESNET) == "on device=0 limit="


@pytest.mark.usefixtures("node")
def test_a_job_that_fails_fails_the_script_but_not_its_mates():
    done = ended("commands", PLAN, FAILS=f"{RESNET.name}.sh")
    assert done.returncode == 3
    assert seen_by(BERT) == "on device=0 limit=57.5"
    until_gone()


@pytest.mark.usefixtures("node")
def test_a_job_that_fails_fails_the_job_of_slurm():
    ended("slurm", PLAN, FAILS=f"{RESNET.name}.sh")
    assert Path("submitted").read_text() == "3\n"
    until_gone()


@pytest.mark.usefixtures("node")
def test_a_job_that_fails_among_jobs_one_by_one_is_not_forgotten():
    done = ended("commands", handed("serial"), FAILS=f"{RESNET.name}.sh")
    assert done.returncode == 3
    assert seen_by(BERT)


@pytest.mark.parametrize("form", ["commands", "slurm"])
@pytest.mark.parametrize("broken", [True, False])
def test_no_job_runs_where_mps_does_not_start(node, form, broken, monkeypatch):
    (node / "nvidia-cuda-mps-control").unlink()
    if broken:
        put(node / "nvidia-cuda-mps-control", _BROKEN)
    else:
        monkeypatch.setenv("PATH", f"{node}:{tools_without_mps(node.parent / 'tools')}")
    done = ended(form, PLAN)
    assert done.returncode == 1 if form == "commands" else Path("submitted").read_text() == "1\n"
    assert "MPS does not start" in done.stderr
    assert not seen_by(RESNET)


def test_where_the_daemon_starts_and_keeps_silent_no_job_runs_either(node):
    put(node / "nvidia-cuda-mps-control", '#!/bin/sh\n[ "$1" = -d ]\n')
    put(node / "sleep", "#!/bin/sh\n")
    assert ended("commands", PLAN).returncode == 1
    assert not seen_by(RESNET)


def interrupted(words, send, how):
    """The status of a script whose jobs never end, when it got a signal; all of them are gone."""
    # A shell cannot trap what its caller ignores, and who runs tests in the background does.
    heeding = ["env", f"--default-signal={how}"]
    running = subprocess.Popen(
        [*heeding, *words], env=os.environ | {"ENDLESS": "yes"}, start_new_session=True
    )
    files = [Path(f"{job.name}.sh.pid") for job in (RESNET, BERT)]
    try:
        until(lambda: all(file.exists() and file.read_text() for file in files))
        send(running.pid, how)
        status = running.wait(PATIENCE_S)
    finally:
        running.kill()
        running.wait()
    for file in files:
        until(lambda file=file: not alive(int(file.read_text())))
    return status


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(("how", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_script_leaves_neither_jobs_nor_a_daemon(how, status):
    assert interrupted(script("commands", PLAN), os.kill, how) == status
    until_gone()


@pytest.mark.usefixtures("node")
def test_commands_on_a_terminal_leave_nothing_behind_either():
    put(Path("plan.sh"), "\n".join(commands([PLAN])))
    assert interrupted(["bash", "plan.sh"], os.killpg, signal.SIGINT) == 130
    until_gone()


@pytest.mark.usefixtures("node")
def test_commands_for_several_gpus_end_with_all_of_their_jobs():
    plans = on_gpus(("mps", [RESNET]), ("naive", [BERT]))
    put(Path("plan.sh"), "\n".join(commands(plans)))
    assert interrupted(["bash", "plan.sh"], os.killpg, signal.SIGINT) == 130
    until_gone()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def logging_jobs(last, fail=None):
    """Five jobs that note start and end; job 4 runs until `last` starts, job 1 until two have."""
    jobs = []
    for number in range(1, 6):
        until_met = {1: '[ "$(grep -c start log)" -ge 2 ]', 4: f'grep -q "start {last}" log'}
        text = (
            'echo "start $ADVISOR_JOB" >> log; '
            f"until {until_met.get(number, 'true')}; do sleep 0.05; done; "
            f'echo "end $ADVISOR_JOB" >> log; exit {5 if number == fail else 0}'
        )
        own = Script(command=("bash", "-c", text), folder=str(Path.cwd()))
        workload = replace(RESNET.profile.workload, script=own)
        jobs.append(Job(replace(RESNET.profile, workload=workload)))
    return jobs


def noted():
    """The order of starts that the jobs noted, and how many ran after each line."""
    lines = [line.split() for line in Path("log").read_text().splitlines()]
    starts = [int(number) for word, number in lines if word == "start"]
    running, at_once = 0, []
    for word, _ in lines:
        running += 1 if word == "start" else -1
        at_once.append(running)
    return starts, at_once


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(("form", "sharing"), IN_BOTH_FORMS)
def test_jobs_of_a_queue_start_in_order_when_others_end(form, sharing):
    done = ended(form, handed(f"{sharing}/2[4,1,2,3,5]", logging_jobs(last=5)))
    assert (done.returncode, done.stderr) == (0, "")
    starts, at_once = noted()
    assert sorted(starts[:2]) == [1, 4], "these start together"
    assert starts[2:] == [2, 3, 5]
    assert (max(at_once), at_once[-1]) == (2, 0)
    until_gone()


@pytest.mark.usefixtures("node")
def test_a_job_of_a_queue_that_fails_fails_the_script_but_not_the_jobs_after_it():
    done = ended("commands", handed("naive/2", logging_jobs(last=5, fail=2)))
    assert done.returncode == 5
    assert sorted(noted()[0]) == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("node")
def test_a_group_after_a_queue_starts_when_all_of_the_queue_have_ended():
    ended("commands", handed("naive/2[4,1,3];naive[2,5]", logging_jobs(last=3)))
    starts, at_once = noted()
    assert (sorted(starts[:2]), starts[2], sorted(starts[3:])) == ([1, 4], 3, [2, 5])
    assert at_once[5] == 0


@pytest.mark.usefixtures("node")
def test_the_mps_script_starts_serves_and_stops():
    assert ended("mps", PLAN, "start").returncode == 0
    again = ended("mps", PLAN, "start")
    assert again.returncode == 1
    assert "MPS runs already" in again.stderr
    done = ended("mps", PLAN, "run", "1", f"./{RESNET.name}.sh", FAILS=f"{RESNET.name}.sh")
    assert done.returncode == 3
    assert seen_by(RESNET) == "on device=0 limit=43"
    assert ended("mps", PLAN, "stop").returncode == 0
    until_gone()


@pytest.mark.usefixtures("node")
def test_the_mps_script_runs_no_job_without_mps():
    done = ended("mps", PLAN, "run", "1", f"./{RESNET.name}.sh")
    assert done.returncode == 1
    assert "MPS is off: bash ./plan.sh start" in done.stderr
    assert not seen_by(RESNET)


def test_the_mps_script_starts_all_daemons_or_none(node):
    real = (node / "nvidia-cuda-mps-control").read_text()
    refuses = '[ "$1 $CUDA_VISIBLE_DEVICES" != "-d MIG-b" ] || exit 1\n'
    put(node / "nvidia-cuda-mps-control", real.replace("\n", "\n" + refuses, 1))
    plan = handed("mig=4g.71gb[1]/mps+3g.71gb[2,3]/mps", JOBS)
    done = ended("mps", plan, "start", MIG_1="MIG-a", MIG_2="MIG-b")
    assert done.returncode == 1
    until_gone()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(("form", "sharing"), IN_BOTH_FORMS)
def test_no_name_of_a_job_is_read_as_a_command(form, sharing):
    # No profile can have such a name today; quoting does not lean on that.
    workload = copy(RESNET.profile.workload)
    object.__setattr__(workload, "name", "a'; touch harm; echo 'b")
    hostile = Job(replace(RESNET.profile, workload=workload))
    ended(form, handed(sharing, [hostile, BERT]))
    assert seen_by(BERT)
    assert not Path("harm").exists()


def test_slurm_gives_jobs_under_mps_one_gpu_and_all_their_cores():
    text = write("slurm", PLAN)
    assert "mps:" not in text
    assert re.findall(r"--gres=(\S+) --cpus-per-task=(\S+)", text) == [("gpu:1", "4")]


def test_the_script_of_two_jobs_under_mps_is_short_and_begins_with_the_jobs():
    lines = write("commands", PLAN).splitlines()
    assert len(lines) <= 92
    assert lines.index("}") < 10
    assert max(n for n, line in enumerate(lines) if ".sh" in line and " job " in line) < 10


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    "word",
    [*(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("EOF", "END")), "END_"],
)
def test_no_word_of_a_job_ends_its_script_early_for_slurm(word):
    command = ("sh", "-c", 'touch ran; [ "$1" = "$0" ]', f"\n{word}\n", f"\n{word}\n")
    script_of_job = Script(command=command, folder=str(Path.cwd()))
    workload = replace(RESNET.profile.workload, script=script_of_job)
    done = ended("slurm", handed("mps", [Job(replace(RESNET.profile, workload=workload)), BERT]))
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("submitted").read_text() == "0\n"
    assert Path("ran").exists()


@pytest.mark.usefixtures("node")
def test_the_folder_of_an_mps_daemon_names_its_gpu():
    put(Path(f"{RESNET.name}.sh"), '#!/bin/sh\necho "$CUDA_MPS_PIPE_DIRECTORY" > folder\n')
    for form, gpu in (("commands", "1"), ("slurm", "2")):
        ended(form, PLAN, GPU="1")
        assert f"GPU-{gpu}-{os.environ['MACHINE']}" in Path("folder").read_text()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("sharing", ["naive", "mps"])
def test_a_job_that_overwrites_its_environment_is_ended_with_the_others(sharing):
    # As setproctitle does: nothing of it has its mark then.
    hides = "#!/bin/bash\nexec env -i /bin/sh -c 'echo $$ > $0.pid; sleep 600 & wait' $0\n"
    put(Path(f"{RESNET.name}.sh"), hides)
    plan = script("commands", handed(sharing))
    assert interrupted(plan, os.kill, signal.SIGTERM) == 143
