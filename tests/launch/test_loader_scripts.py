"""Exported scripts whose jobs share a data loader: it starts before them, and leaves nothing."""

import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.plan.one_loader import sharing_loader
from advisor.workload.job import Job
from tests import synthetic
from tests.handed import handed, write
from tests.launch.script_node import ended, pipe_folders, put, script
from tests.waiting import PATIENCE_S, until

NAMES = "resnet50-imagenet64-bs128-loader2", "mobilenetv3_large_100-imagenet64-bs128-loader2"
JOBS = sharing_loader([Job(synthetic.profile(name)) for name in NAMES])

# The loader and each job say what they were given; both may last for ever, and the loader may fail.
ROLE = """\
#!/usr/bin/env bash
role=job-$ADVISOR_JOB
[ -z "$ADVISOR_LOADER_JOBS" ] || role=loader
mode=$(stat -c %a "$ADVISOR_LOADER" 2> /dev/null || :)
pipes=${CUDA_MPS_PIPE_DIRECTORY##*/}
echo "$ADVISOR_LOADER_JOBS $mode $CUDA_VISIBLE_DEVICES $pipes" > "$role.seen"
echo $$ > "$role.pid"
[ -z "$ENDLESS" ] || { sleep 600 & wait; }
[ "$role" != "$FAILS" ] || exit 3
"""


@pytest.fixture
def roles(node):
    for name in NAMES:
        put(node / f"{name}.sh", ROLE)
    return node


def seen(role):
    return Path(f"{role}.seen").read_text().split()


def loader_folders():
    return list(Path("/tmp").glob(f"advisor-loader-*{os.environ['MACHINE']}*"))


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("form", ["commands", "slurm"])
@pytest.mark.parametrize("sharing", ["mps", "naive"])
def test_one_loader_starts_for_both_jobs_and_sees_the_gpu_and_the_mps_of_the_jobs(form, sharing):
    done = ended(form, handed(sharing, JOBS))
    assert done.returncode == 0, done.stderr
    until(lambda: Path("loader.seen").exists())
    jobs, mode, *where = seen("loader")
    assert (jobs, mode) == ("2", "700")
    for job in ("job-1", "job-2"):
        assert seen(job) == ["700", *where]
    assert not loader_folders()
    assert not pipe_folders()


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize(
    ("fails", "sign", "code"), [("loader", "ended", 0), ("job-2", "gone-2", 3)]
)
def test_those_of_a_loader_can_see_that_it_has_failed_or_a_job_has(fails, sign, code):
    wait = f'until [ -e "$ADVISOR_LOADER/{sign}" ]; do /usr/bin/sleep 0.05; done\n'
    for name in NAMES:
        put(Path(f"{name}.sh"), ROLE + wait + 'echo > "$role.saw"\n')
    assert ended("commands", handed("naive", JOBS), FAILS=fails).returncode == code
    assert Path("job-1.saw").exists()


@pytest.mark.usefixtures("roles")
def test_jobs_one_after_another_have_loaders_of_their_own():
    assert "use_loader" not in write("commands", handed("serial", JOBS))
    assert ended("commands", handed("serial", JOBS)).returncode == 0
    assert not Path("loader.seen").exists()


@pytest.mark.usefixtures("roles")
def test_each_group_has_a_loader_of_its_own():
    others = sharing_loader([Job(synthetic.profile(NAMES[0]))] * 2)
    text = write("commands", handed("naive[1,2];mps[3,4]", [*JOBS, *others]))
    assert text.count("use_loader 2 ") == 2


@pytest.mark.usefixtures("roles")
def test_a_job_that_has_a_loader_of_its_own_runs_beside_those_that_share_one():
    own = Job(synthetic.profile("gpt2-small-pretrain-bs8"))
    text = write("commands", handed("mps", [*JOBS, own]))
    lines = [line for line in text.splitlines() if " job " in line and ".sh" in line]
    assert ['ADVISOR_LOADER="$loader"' in line for line in lines] == [True, True, False]


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_an_interrupted_script_leaves_neither_the_loader_nor_its_folder(how):
    heeding = ["env", f"--default-signal={how.name[3:]}"]
    running = subprocess.Popen(
        [*heeding, *script("commands", handed("naive", JOBS))],
        env=os.environ | {"ENDLESS": "yes"},
        start_new_session=True,
    )
    files = [Path(f"{role}.pid") for role in ("loader", "job-1", "job-2")]
    try:
        until(lambda: all(file.exists() and file.read_text() for file in files))
        os.killpg(running.pid, how)
        assert running.wait(PATIENCE_S) == 128 + how
    finally:
        running.kill()
        running.wait()
    for file in files:
        pid = int(file.read_text())
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    assert not loader_folders()


def test_radt_and_the_script_for_mps_alone_do_not_start_a_loader():
    for form in ("radt", "mps"):
        with pytest.raises(InvalidInput, match="data loader"):
            write(form, handed("mps", JOBS))


def test_a_loader_and_its_jobs_keep_fewer_cores_than_as_many_loaders():
    own = [replace(job, profile=synthetic.profile(job.name)) for job in JOBS]
    both = [write("slurm", handed("naive", jobs)) for jobs in (own, JOBS)]
    assert ["--cpus-per-task=6" in both[0], "--cpus-per-task=5" in both[1]] == [True, True]
