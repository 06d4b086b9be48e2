"""Shell lines: run by a shell, among stand-ins that write down what they were asked to do."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from uuid import uuid4

import pytest

from advisor.errors import NothingFits
from advisor.hardware.gpus import catalogue
from advisor.hardware.mig import layouts, profile_of
from advisor.launch.launch_plan import launch_plan
from advisor.launch.shell import commands
from advisor.sharing import Mig
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import JOBS, RESNET, handed, predicted, write

_NOTE = """\
#!/usr/bin/env bash
echo "${0##*/} $*" "device=${CUDA_VISIBLE_DEVICES:-}" "pipes=${CUDA_MPS_PIPE_DIRECTORY:+set}" \\
  "limit=${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" "cap=${CUDA_MPS_PINNED_DEVICE_MEM_LIMIT:-}" >> %s
"""
# Answers from -d on until it is asked to quit.
_DAEMON = """
on=$CUDA_MPS_PIPE_DIRECTORY/on
[ "$*" != -d ] || { touch "$on"; exit; }
[ -e "$on" ] || exit 1
read -r asked
[ "$asked" != quit ] || rm "$on"
"""


# Lists four GPUs of this test alone, and keeps one power limit for all of them.
_SMI = """
case $* in
*=uuid,index,*) for at in 0 1 2 3; do echo "GPU-$at$MACHINE, $at, Disabled"; done ;;
*=power.limit*) cat limit ;;
*--power-limit=*) echo "${3#*=}" > limit ;;
esac
"""


@pytest.fixture
def shell(tmp_path):
    """Runs a script where every tool and every job only writes a line, and returns the lines."""
    log, machine = tmp_path / "log", uuid4().hex
    (tmp_path / "limit").write_text("450.00\n")
    tools = ["nvidia-smi", "nvidia-cuda-mps-control", *(f"{job.name}.sh" for job in JOBS)]
    texts = dict.fromkeys(tools, _NOTE % log)
    texts["taskset"] = "#!/bin/sh\nexit 1\n"  # no job is held to cores
    texts["nvidia-cuda-mps-control"] += _DAEMON
    texts["nvidia-smi"] += _SMI
    texts["sudo"] = '#!/usr/bin/env bash\nexec "$@"\n'
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(text, *words, **variables):
        where = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "MACHINE": machine,
        }
        log.unlink(missing_ok=True)
        ended = subprocess.run(
            ["bash", "-c", text, "plan.sh", *words],
            cwd=tmp_path,
            env=where | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = log.read_text().replace(machine, "").splitlines() if log.exists() else []
        return ended, [line for line in lines if "=uuid,index," not in line]

    yield run
    for pipes in Path("/tmp").glob(f"advisor-mps-*{machine}*"):
        rmtree(pipes)


def script(plan):
    return "\n".join(commands([plan]))


def job_lines(lines):
    return sorted(line for line in lines if ".sh " in line)


def test_each_job_runs_with_its_own_limit_and_memory_cap(shell):
    plan = handed("mps=43,57.5", held_mib=90_000, least_mib=60_000)
    cap = plan.starts[0].memory_cap_mib
    ended, lines = shell(script(plan))
    assert ended.returncode == 0
    assert job_lines(lines) == [
        f"bert-base-finetune-bs16-loader2.sh  device=0 pipes=set limit=57.5 cap=0={cap}M",
        f"resnet50-imagenet64-bs128.sh  device=0 pipes=set limit=43 cap=0={cap}M",
    ]
    assert lines[0].startswith("nvidia-cuda-mps-control -d device=GPU-0 pipes=set")
    assert lines[1].startswith("nvidia-cuda-mps-control  device=")  # asked before any job
    assert lines[-1].startswith("nvidia-cuda-mps-control  device=")


def test_serial_jobs_run_in_their_order(shell):
    _, lines = shell(script(handed("serial")))
    assert [line.split()[0] for line in lines] == [
        "resnet50-imagenet64-bs128.sh",
        "bert-base-finetune-bs16-loader2.sh",
    ]


def test_compute_instances_are_made_largest_first_without_a_default_one():
    lines = [line.strip() for line in commands([handed("mig=7g.141gb/ci=3c[1]+4c[2]")])]
    assert "mig_make '' 0:0" in lines
    assert "mig_split 0:0 4c.7g.141gb,3c.7g.141gb" in lines


def test_the_mps_script_gives_a_command_the_limits_of_a_job(shell):
    text = write("mps", handed("mps=43,57.5"))
    assert shell(text, "start")[0].returncode == 0
    _, lines = shell(text, "run", "2", "./gpt2-small-pretrain-bs8.sh", "two words")
    assert lines[1:] == [
        "gpt2-small-pretrain-bs8.sh two words device=0 pipes=set limit=57.5 cap=",
    ]


@pytest.mark.parametrize("words", [(), ("begin",), ("run",), ("run", "1"), ("run", "7", "true")])
def test_the_mps_script_refuses_other_words(shell, words):
    ended, lines = shell(write("mps", handed("mps")), *words)
    assert (ended.returncode, lines) == (2, [])
    assert ended.stderr


def test_a_power_cap_is_set_first_and_what_it_was_before_comes_back_last(shell, tmp_path):
    ended, lines = shell(script(handed("naive", cap_w=350.0)))
    assert ended.returncode == 0
    changes = [line.split(" device=")[0] for line in lines if "power-limit" in line]
    assert changes == [
        "nvidia-smi -i GPU-0 --power-limit=350.00",
        "nvidia-smi -i GPU-0 --power-limit=450.00",
    ]
    assert [line in job_lines(lines) for line in lines[-5:-3]] == [True, True]
    assert (tmp_path / "limit").read_text() == "450.00\n"


@pytest.mark.parametrize("call", ["*=power.limit*", "*--power-limit=*", "*=uuid,index,*"])
def test_no_job_runs_where_the_power_cap_cannot_be_read_or_set(shell, tmp_path, call):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(tool.read_text().replace(f"{call})", f"{call}) exit 9 ;;\nnever)"))
    ended, lines = shell(script(handed("naive", cap_w=350.0)))
    assert (ended.returncode, job_lines(lines)) == (1, [])
    assert (tmp_path / "limit").read_text() == "450.00\n"


def test_each_copy_of_a_job_is_told_its_number(shell, tmp_path):
    tool = tmp_path / f"{RESNET.name}.sh"
    tool.write_text(f'#!/bin/sh\necho "number $ADVISOR_JOB" >> {tmp_path}/log\n')
    for sharing in ("naive", "mps", "serial"):
        _, lines = shell(script(handed(sharing, [RESNET] * 3)))
        assert sorted(each for each in lines if "number" in each) == [
            "number 1",
            "number 2",
            "number 3",
        ]


def test_every_layout_of_every_gpu_is_made_at_the_places_it_was_planned_for():
    for gpu in catalogue().values():
        for layout in layouts(gpu):
            jobs = [RESNET] * len(layout)
            mix = predicted(str(Mig(layout)), jobs)
            lines = "\n".join(commands([launch_plan(jobs, gpu, mix)]))
            said = re.search(r"mig_make -C (.+)", lines)[1].split()
            planned = [f"{profile_of(gpu, i.profile).profile_id}:{i.start}" for i in layout]
            assert sorted(said) == sorted(planned)


def test_clients_of_mps_on_a_mig_device_name_it_as_their_daemon_does(shell):
    _, lines = shell(script(handed("mps")), GPU="MIG-0a")
    assert {line.split()[1] for line in job_lines(lines)} == {"device=MIG-0a"}


def test_an_mps_daemon_of_another_gpu_shows_its_clients_one_that_they_call_0(shell):
    text = "\n".join(commands([handed("mps")], "2"))
    _, lines = shell(text, GPU="1")
    assert lines[0].startswith("nvidia-cuda-mps-control -d device=GPU-2 ")
    assert {line.split()[1] for line in job_lines(lines)} == {"device=0"}


@pytest.mark.parametrize("gpu", ["3", "GPU-3"])
def test_where_no_gpu_was_named_the_variable_says_which(shell, gpu):
    _, lines = shell(script(handed("naive", cap_w=350.0)), GPU=gpu)
    assert {line.split()[2] for line in lines if line.startswith("nvidia-smi")} == {"GPU-3"}
    assert {line.split()[1] for line in job_lines(lines)} == {"device=3"}
    for form in ("commands", "mps"):
        _, lines = shell(write(form, handed("mps")), "start", GPU=gpu)
        assert "nvidia-cuda-mps-control -d device=GPU-3 " in "\n".join(lines)


@pytest.mark.parametrize("gpu", ["4", "GPU-9", ""])
def test_a_gpu_that_the_driver_does_not_list_is_refused(shell, gpu):
    ended, lines = shell("\n".join(commands([handed("naive")], gpu or "7")))
    assert (ended.returncode, lines) == (1, [])


@pytest.mark.parametrize(
    ("gpu", "mode_of_0", "device"),
    [
        ("GPU-1", "[N/A]", "1"),
        ("1", "Disabled", "1"),
        ("GPU-1", "Enabled", "GPU-1"),
        ("1", "Enabled", "GPU-1"),
    ],
)
def test_a_job_is_given_an_index_where_cuda_counts_gpus_as_the_driver_does(
    shell, tmp_path, gpu, mode_of_0, device
):
    tool = tmp_path / "nvidia-smi"
    first = f"*=uuid,index,*) echo GPU-0, 0, '{mode_of_0}'; "
    tool.write_text(tool.read_text().replace("*=uuid,index,*) ", first).replace("in 0 1", "in 1"))
    _, lines = shell(script(handed("naive")), GPU=gpu)
    assert {line.split()[1] for line in job_lines(lines)} == {f"device={device}"}


def test_an_impossible_cut_is_refused():
    with pytest.raises(NothingFits, match="cannot hold"):
        handed("mig=7g.141gb/ci=4c[1]+4c[2]")


def test_a_job_of_a_job_file_is_started_by_exactly_its_words_in_its_folder(shell, tmp_path):
    folder = tmp_path / "its folder"
    folder.mkdir()
    note = 'echo "ran $PWD $SEED $1" >> "$LOG"'
    script = Script(
        command=("sh", "-c", note, "sh", "a 'b' $(no)"),
        folder=str(folder),
        environment={"SEED": "1 2", "LOG": str(tmp_path / "log")},
    )
    text = "\n".join(commands([handed("naive", (of_script(script),))]))
    _, lines = shell(text)
    assert f"ran {folder} 1 2 a 'b' $(no)" in lines
    assert "Put your own command" not in text


def of_script(script):
    profile = replace(RESNET.profile, workload=replace(RESNET.profile.workload, script=script))
    return Job(profile)


def test_a_secret_of_a_job_file_comes_from_whoever_runs_the_script(shell, tmp_path):
    script = Script(
        command=("sh", "-c", 'echo "ran $HF_TOKEN $SEED" >> "$LOG"'),
        folder=str(tmp_path),
        environment={"HF_TOKEN": "hf_abc", "SEED": "1", "LOG": str(tmp_path / "log")},
    )
    plan = handed("mps", (of_script(script), RESNET))
    for form in ("commands", "slurm"):
        text = write(form, plan)
        assert "hf_abc" not in text
        ended, lines = shell(text)
        assert (ended.returncode != 0, lines) == (True, []), "before anything is started"
        assert "HF_TOKEN: set HF_TOKEN" in ended.stderr
    _, lines = shell(write("commands", plan), HF_TOKEN="its own")
    assert "ran its own 1" in lines
