"""Exported scripts, run among stand-ins for MPS and Slurm: what they start, wait for and end."""

import os
import re
import signal
import subprocess
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from advisor.errors import NothingFits
from advisor.hardware.gpus import catalogue
from advisor.hardware.mig import layouts, profile_of
from advisor.launch.launch_plan import launch_plan
from advisor.launch.shell import commands
from advisor.measure.process import mps_within
from advisor.sharing import Mig
from advisor.workload.job import Job
from tests.handed import BERT, JOBS, RESNET, handed, on_gpus, predicted, scripted, write
from tests.launch.script_node import (
    JOB,
    ended,
    pipe_folders,
    put,
    script,
    seen_by,
    tools_without_mps,
)
from tests.waiting import PATIENCE_S, until

IN_BOTH_FORMS = [
    ("commands", "mps"),
    ("slurm", "naive"),
    pytest.param("commands", "naive", marks=pytest.mark.exhaustive),
    pytest.param("slurm", "mps", marks=pytest.mark.exhaustive),
]
PLAN = handed("mps=43,57.5")


def until_gone():
    """Wait until no daemon is left, nor a folder of its pipes."""
    folders = pipe_folders()
    until(lambda: not any(map(mps_within, folders)))
    assert not pipe_folders()


@pytest.mark.usefixtures("node")
def test_a_job_that_fails_fails_the_script_but_not_the_other_jobs():
    for plan, seen in (
        (PLAN, "on device=0 limit=57.5"),
        (handed("serial"), "off device=0 limit="),
    ):
        assert ended("commands", plan, FAILS=f"{RESNET.name}.sh").returncode == 3
        assert seen_by(BERT) == seen
    until_gone()


DAEMONS = {
    "fails": "#!/bin/sh\necho no permission >&2\nexit 1\n",
    "is absent": None,
    "keeps silent": '#!/bin/sh\n[ "$1" = -d ]\n',
}


@pytest.mark.parametrize(
    ("form", "daemon"), [*(("commands", each) for each in DAEMONS), ("slurm", "fails")]
)
def test_no_job_runs_where_mps_does_not_start(node, form, daemon, monkeypatch):
    put(node / "sleep", "#!/bin/sh\n")
    (node / "nvidia-cuda-mps-control").unlink()
    if text := DAEMONS[daemon]:
        put(node / "nvidia-cuda-mps-control", text)
    else:
        monkeypatch.setenv("PATH", f"{node}:{tools_without_mps(node.parent / 'tools')}")
    done = ended(form, PLAN)
    assert done.returncode == 1 if form == "commands" else Path("submitted").read_text() == "1\n"
    assert "MPS does not start" in done.stderr
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
def test_an_interrupted_script_for_several_gpus_leaves_neither_jobs_nor_a_daemon():
    plan = on_gpus(("mps", [RESNET]), ("naive", [BERT]))
    assert interrupted(script("commands", plan), os.killpg, signal.SIGINT) == 130
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
        jobs.append(scripted("bash", "-c", text))
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
def test_jobs_of_a_queue_start_in_order_when_others_end_and_the_next_group_after_all_of_them(
    form, sharing
):
    done = ended(form, handed(f"{sharing}/2[4,1,2,3,5]", logging_jobs(last=5)))
    assert (done.returncode, done.stderr) == (0, "")
    starts, at_once = noted()
    assert sorted(starts[:2]) == [1, 4], "these start together"
    assert starts[2:] == [2, 3, 5]
    assert (max(at_once), at_once[-1]) == (2, 0)
    Path("log").unlink()
    ended(form, handed(f"{sharing}/2[4,1,3];naive[2,5]", logging_jobs(last=3)))
    starts, at_once = noted()
    assert (sorted(starts[:2]), starts[2], sorted(starts[3:])) == ([1, 4], 3, [2, 5])
    assert at_once[5] == 0, "the next group waits for all of the queue"
    until_gone()


@pytest.mark.usefixtures("node")
def test_no_name_of_a_job_is_read_as_a_command():
    # No profile can have such a name today; quoting does not lean on that.
    workload = copy(RESNET.profile.workload)
    object.__setattr__(workload, "name", "a'; touch harm; echo 'b")
    hostile = Job(replace(RESNET.profile, workload=workload))
    for form in ("commands", "slurm"):
        ended(form, handed("naive", [hostile, BERT]))
        assert seen_by(BERT)
    assert not Path("harm").exists()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    "word",
    [*(pytest.param(each, marks=pytest.mark.exhaustive) for each in ("EOF", "END")), "END_"],
)
def test_no_word_of_a_job_ends_its_script_early_for_slurm(word):
    command = ("sh", "-c", 'touch ran; [ "$1" = "$0" ]', f"\n{word}\n", f"\n{word}\n")
    done = ended("slurm", handed("mps", [scripted(*command), BERT]))
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("submitted").read_text() == "0\n"
    assert Path("ran").exists()


@pytest.mark.usefixtures("node")
def test_a_job_that_overwrites_its_environment_is_ended_with_the_others():
    # As setproctitle does: nothing of it has its mark then.
    hides = "#!/bin/bash\nexec env -i /bin/sh -c 'echo $$ > $0.pid; sleep 600 & wait' $0\n"
    put(Path(f"{RESNET.name}.sh"), hides)
    plan = script("commands", handed("mps"))
    assert interrupted(plan, os.kill, signal.SIGTERM) == 143


@pytest.mark.usefixtures("node")
def test_each_job_has_its_number_and_its_memory_cap_in_the_order_of_the_plan():
    put(
        Path(f"{RESNET.name}.sh"),
        '#!/bin/sh\necho "$ADVISOR_JOB $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" >> log\n',
    )
    ended("commands", handed("serial", [RESNET] * 3))
    assert Path("log").read_text() == "1 \n2 \n3 \n"
    Path("log").unlink()
    plan = handed("mps", [RESNET] * 2, held_mib=90_000, least_mib=60_000)
    ended("commands", plan)
    cap = plan.starts[0].memory_cap_mib
    assert sorted(Path("log").read_text().splitlines()) == [f"1 0={cap}M", f"2 0={cap}M"]


@pytest.mark.usefixtures("node")
def test_the_mps_script_refuses_other_words_and_runs_no_job_without_mps():
    for words in ("", "begin", "run", "run 1", "run 7 true"):
        assert ended("mps", PLAN, *words.split()).returncode == 2
    done = ended("mps", PLAN, "run", "1", f"./{RESNET.name}.sh")
    assert (done.returncode, "MPS is off: bash ./plan.sh start" in done.stderr) == (1, True)
    assert not seen_by(RESNET)
    assert not pipe_folders()


def test_every_layout_of_every_kind_of_gpu_is_made_at_the_places_it_was_planned_for():
    models = catalogue().values()
    kinds = {tuple((each.profile_id, each.starts) for each in gpu.mig): gpu for gpu in models}
    for gpu in kinds.values():
        for layout in layouts(gpu):
            jobs = [RESNET] * len(layout)
            mix = predicted(str(Mig(layout)), jobs)
            text = write("commands", launch_plan(jobs, gpu, mix))
            made = re.search(r"mig_make -C (.+)", text)[1].split()
            planned = [f"{profile_of(gpu, i.profile).profile_id}:{i.start}" for i in layout]
            assert sorted(made) == sorted(planned)
    with pytest.raises(NothingFits, match="cannot hold"):
        handed("mig=7g.141gb/ci=4c[1]+4c[2]")


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("gpu", "mode_of_3", "device"),
    [
        ("11", "Disabled", "11"),
        ("GPU-11-", "[N/A]", "11"),
        ("GPU-11-", "Enabled", "GPU-11-"),  # CUDA counts GPUs without one in MIG mode
        ("40", "Disabled", None),
        ("GPU-x", "Disabled", None),
    ],
)
def test_a_job_sees_the_gpu_that_the_caller_names_or_does_not_start(gpu, mode_of_3, device):
    done = ended("commands", handed("naive"), GPU=gpu, MODE_OF_3=mode_of_3)
    if device is None:
        assert (done.returncode, seen_by(RESNET)) == (1, None)
    else:
        seen = seen_by(RESNET).replace(os.environ["MACHINE"], "")
        assert seen == f"off device={device} limit="


@pytest.mark.usefixtures("node")
def test_clients_of_mps_call_their_gpu_as_their_daemon_does():
    note = '\necho "$CUDA_MPS_PIPE_DIRECTORY" > folder\n'
    put(Path(f"{RESNET.name}.sh"), JOB + note)
    for form, gpu, device in (("commands", "MIG-0a", "MIG-0a"), ("slurm", "2", "0")):
        ended(form, handed("mps"), GPU=gpu)
        assert seen_by(RESNET) == f"on device={device} limit="
        assert Path("folder").read_text().startswith(f"/tmp/advisor-mps-{os.getuid()}-")
        assert f"-{gpu}-" in Path("folder").read_text()
    until_gone()


def test_a_plan_for_another_device_is_for_that_gpu_unless_the_caller_names_one():
    assert "GPU=${GPU:-1}" in "\n".join(commands(on_gpus(None, ("naive", JOBS[:2]))))


@pytest.mark.usefixtures("node")
def test_a_job_of_a_job_file_is_started_by_exactly_its_words_in_its_folder():
    Path("its folder").mkdir()
    note = 'echo "ran $PWD $SEED $1" >> "$LOG"'
    variables = {"SEED": "1 2", "LOG": str(Path("log").resolve())}
    words = ("sh", "-c", note, "sh", "a 'b' $(no)")
    job = scripted(*words, folder="its folder", environment=variables)
    ended("commands", plan := handed("naive", [job]))
    assert Path("log").read_text() == f"ran {Path('its folder').resolve()} 1 2 a 'b' $(no)\n"
    assert "Put your own command" not in write("commands", plan)


@pytest.mark.usefixtures("node")
def test_a_secret_of_a_job_file_comes_from_whoever_runs_the_script():
    variables = {"HF_TOKEN": "hf_abc", "SEED": "1"}
    job = scripted("sh", "-c", 'echo "ran $HF_TOKEN $SEED" > ran', environment=variables)
    plan = handed("mps", [job, BERT])
    for form in ("commands", "slurm"):
        assert "hf_abc" not in write(form, plan)
        done = ended(form, plan)
        assert done.returncode != 0
        assert "HF_TOKEN: set HF_TOKEN" in done.stderr
        assert not seen_by(BERT)
    ended("commands", plan, HF_TOKEN="its own")
    assert Path("ran").read_text() == "ran its own 1\n"


@pytest.fixture
def callers_mps(sockets):
    """The caller's own MPS, to which its environment leads, with settings for all its clients."""
    (folder := sockets / "own").mkdir()
    settings = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder),
        "CUDA_MPS_LOG_DIRECTORY": str(folder),
        "CUDA_MPS_CLIENT_PRIORITY": "1",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10",
    }
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | settings, check=True)
    asked = "echo get_server_list | nvidia-cuda-mps-control"
    answers = partial(subprocess.run, ["bash", "-c", asked], env=os.environ | settings)
    until(lambda: answers(check=False, capture_output=True).returncode == 0)
    return settings


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("form", "sharing", "device"),
    [
        ("commands", "naive[2,1];mps[3]", 0),
        ("commands", "mps[3,1];serial[2]", 0),
        ("slurm", "naive", 2),
    ],
)
def test_jobs_without_mps_are_no_clients_of_the_callers_own(form, sharing, device, callers_mps):
    plan = handed(sharing, JOBS)
    done = ended(form, plan, FAILS=f"{RESNET.name}.sh" if form == "slurm" else "", **callers_mps)
    assert (done.returncode, done.stderr) == (0, "")
    for part in plan.partitions:
        on = "on" if part.under_mps else "off"
        for start in part.starts:
            assert seen_by(start.job) == f"{on} device={device} limit="
            names = Path(f"{start.job.name}.sh.named").read_text()
            assert names == "CUDA_MPS_PIPE_DIRECTORY\n"
    if form == "slurm":  # the job of Slurm that has the failed one fails
        assert "3" in Path("submitted").read_text().split()
    assert not pipe_folders()


@pytest.mark.usefixtures("node")
def test_on_a_gpu_in_mig_mode_nothing_planned_for_all_of_it_starts():
    for form in ("commands", "mps"):
        done = ended(form, handed("mps"), "start", GPU="3", MODE_OF_3="Enabled")
        assert done.returncode == 1
        assert "GPU 3 is in MIG mode" in done.stderr
        assert "sudo nvidia-smi -i 3 -mig 0" in done.stderr
        assert not seen_by(RESNET)


def test_jobs_start_where_the_driver_has_no_tool(node, monkeypatch):
    (node / "nvidia-smi").unlink()
    monkeypatch.setenv("PATH", f"{node}:{tools_without_mps(node.parent / 'tools')}")
    done = ended("commands", handed("mps=43,57.5"), GPU="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert "limit=57.5" in seen_by(BERT)
