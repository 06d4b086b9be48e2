"""Exported scripts, submitted to a real Slurm of one node: what runs where, and what is left."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.handed import BERT, JOBS, RESNET, handed, on_gpus, scripted, write
from tests.launch.golden_exports import BIG
from tests.launch.script_node import ended, pipe_folders, put, seen_by
from tests.launch.slurm_node import MISSING, slurm_node
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}")

LIMITS = handed("mps=43,57.5")


@pytest.fixture(scope="module")
def slurm():
    with slurm_node(write("slurm", LIMITS)) as variables:
        yield variables


@pytest.fixture
def submit(node, monkeypatch):
    """A function that submits a plan to a node, and returns the IDs of its jobs in Slurm."""
    (node / "sbatch").unlink()

    def run(plan, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        done = ended("slurm", plan)
        assert (done.returncode, done.stderr) == (0, "")
        return re.findall(r"\d+", done.stdout)

    return run


@pytest.fixture
def submits(submit, slurm):
    return partial(submit, variables=slurm)


def shown(number):
    said = subprocess.run(
        ["scontrol", "show", "job", number], capture_output=True, text=True, check=True
    )
    return dict(word.split("=", 1) for word in said.stdout.split() if "=" in word)


def end_of(number):
    """The state and exit code of a job of Slurm, once it has ended."""
    until(lambda: shown(number)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
    return shown(number)["JobState"], shown(number)["ExitCode"]


def left():
    state = Path(os.environ["XDG_STATE_HOME"])
    return [*pipe_folders(), *state.rglob("*.sh")]


def test_each_job_of_a_mig_plan_gets_the_instance_of_its_type(submit):
    plan = handed("mig=3g.71gb,4g.71gb@0")
    with slurm_node(write("slurm", plan)) as variables:
        numbers = submit(plan, variables)
        assert [end_of(number) for number in numbers] == [("COMPLETED", "0:0")] * 2
    assert seen_by(RESNET) == "off device=0 limit="
    assert seen_by(BERT) == "off device=1 limit="


def test_groups_run_in_turn_in_one_allocation_and_a_python_job_has_its_folder_words_and_log(
    submits, monkeypatch
):
    text = "import json, os, sys; print(json.dumps([os.getcwd(), sys.argv[1:]])); sys.exit(4)"
    job = scripted(sys.executable, "-c", text, "a 'b' \"c\" $d", "END", folder="/tmp")
    monkeypatch.setenv("FAILS", f"{RESNET.name}.sh")
    (in_turn,) = submits(handed("mps=43,57[2,1];naive[3]", JOBS))
    alone = [*submits(handed("serial", [job])), *submits(handed("mps", [job, scripted("true")]))]
    assert end_of(in_turn) == ("FAILED", "3:0"), "the next group ran, too"
    ran = sorted(JOBS, key=lambda job: Path(f"{job.name}.sh.seen").stat().st_mtime_ns)
    assert ran[-1] is JOBS[2]
    assert seen_by(BERT).endswith(" limit=43")
    for number in alone:
        assert end_of(number) == ("FAILED", "4:0")
        (log,) = Path().glob(f"*-{number}.log")
        assert json.loads(log.read_text()) == ["/tmp", ["a 'b' \"c\" $d", "END"]]
    assert not left()


@pytest.mark.parametrize("ignores", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_scancel_leaves_neither_jobs_nor_a_daemon(submits, monkeypatch, ignores):
    monkeypatch.setenv("ENDLESS", "yes")
    if ignores:
        monkeypatch.setenv("ADVISOR_GRACE_S", "1")
        put(Path(f"{RESNET.name}.sh"), "#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 1; done\n")
    (number,) = submits(LIMITS)
    until(Path(f"{BERT.name}.sh.pid").exists)
    subprocess.run(["scancel", number], check=True)
    assert end_of(number)[0] == "CANCELLED"
    until(lambda: not left())
    child = int(Path(f"{BERT.name}.sh.pid").read_text())
    until(lambda: not Path(f"/proc/{child}").exists())


RECORDER = """\
#!/bin/bash
note() { echo "$ADVISOR_JOB $1 $EPOCHREALTIME ${SLURM_JOB_GPUS-$CUDA_VISIBLE_DEVICES}" >> events; }
note begun
sleep 0.2
note ended
"""


def check_ran_as_planned(plans):
    """Check that each job ran once, each group after the one before, and no more at once."""
    times = defaultdict(dict)
    for line in Path("events").read_text().splitlines():
        number, what, time, _ = line.split()
        assert what not in times[int(number)], f"{number} ran twice"
        times[int(number)][what] = float(time)
    assert times.keys() == {start.number for plan in plans for start in plan.starts}
    for plan in plans:
        free = 0.0
        for stage in plan.stages:
            runs = [times[start.number] for start in stage.starts]
            assert free <= min(run["begun"] for run in runs)
            free = max(run["ended"] for run in runs)
            for run in runs:
                at = run["begun"]
                assert sum(o["begun"] <= at < o["ended"] for o in runs) <= stage.at_once


def gpus_of_jobs():
    """The indices of the GPUs that each job had."""
    lines = [line.split() for line in Path("events").read_text().splitlines()]
    return {int(number): [int(each) for each in gpus.split(",")] for number, _, _, gpus in lines}


def test_jobs_of_two_models_and_of_several_gpus_run_once_where_and_when_planned(node, submit):
    kinds = ("h200-141gb", "a100-40gb")
    on_h200 = ("mps[1,2];serial[3]", (*JOBS[:2], BIG)), ("serial", (JOBS[1], BIG, JOBS[0]))
    on_a100 = ("mps/2[3,1,2]", JOBS), ("naive[2];mps[1,3]", JOBS)
    numbers = [[1, 2, 4], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    planned = on_gpus(*on_h200, *on_a100, numbers=numbers, models=kinds, host_gpus=2)
    plans = [replace(plan, models=kinds) for plan in planned]
    for job in JOBS:
        put(node / f"{job.name}.sh", RECORDER)
    # So many that job 4 would not have to wait for two GPUs.
    with slurm_node(write("slurm", plans), (5, 2)) as variables:
        numbers = submit(plans, variables)
        assert {end_of(number) for number in numbers} == {("COMPLETED", "0:0")}
    check_ran_as_planned(plans)
    had = gpus_of_jobs()
    assert len(had[4]) == 2
    assert all({*had[number]} <= {0, 1, 2, 3, 4} for number in range(1, 6))
    assert all({*had[number]} <= {5, 6} for number in range(6, 12))
