"""Plans as Python files, run by the local executor of submitit, and on a real Slurm."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.launch.commands import fleet_launch_plans
from advisor.launch.exports import EXPORTS
from advisor.launch.slurm import slurm_text_of_all
from advisor.launch.submitit import submitit_text
from advisor.workload.job import Job
from tests.handed import BERT, RESNET, VIT, handed
from tests.launch.golden_exports import SEVERAL
from tests.launch.planned_runs import check_ran_as_planned, gpus_of_jobs, put_recorders
from tests.launch.script_node import put
from tests.launch.slurm_node import MISSING, slurm_node
from tests.plan.fleet_twins import on_pools
from tests.waiting import PATIENCE_S, until

pytest.importorskip("submitit", reason="submitit is not installed")


def submitted(text, *words):
    Path("plan.py").write_text(text)
    return subprocess.run(
        [sys.executable, "plan.py", *words], capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.usefixtures("node")
def test_on_one_host_each_job_runs_once_on_its_gpus_in_the_order_of_the_plan():
    put_recorders([RESNET.name, BERT.name, VIT.name])
    done = submitted(submitit_text(SEVERAL), "local")
    assert (done.returncode, done.stderr) == (0, "")
    check_ran_as_planned(SEVERAL)
    gpus = gpus_of_jobs()
    assert (gpus[3], gpus[4], gpus[5]) == ([1], [0, 1], [1])


@pytest.mark.exhaustive
@pytest.mark.usefixtures("node")
def test_a_job_that_fails_is_named_by_its_allocation_and_the_next_runs():
    put_recorders([RESNET.name, VIT.name])
    put(Path(f"{BERT.name}.sh"), "#!/bin/sh\nexit 3\n")
    done = submitted(submitit_text(SEVERAL), "local")
    assert (done.returncode, done.stderr) == (1, "Failed: gpu_0, gpu_1. See submitit/.\n")
    assert {4, 5} <= gpus_of_jobs().keys()


@pytest.mark.exhaustive
@pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}")
def test_slurm_runs_what_submitit_submits(node, monkeypatch):
    put_recorders([RESNET.name, BERT.name, VIT.name])
    (node / "sbatch").unlink()
    with slurm_node(slurm_text_of_all(SEVERAL), (5,)) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        done = submitted(submitit_text(SEVERAL))
        assert (done.returncode, done.stderr) == (0, "")
        until(lambda: not subprocess.check_output(["squeue", "-h"]))
    check_ran_as_planned(SEVERAL)


@pytest.mark.usefixtures("node")
def test_what_is_not_known_is_asked_for_before_anything_is_submitted():
    unknown = Job(replace(RESNET.profile, cores=()))
    done = submitted(EXPORTS["submitit"](handed("mps", [unknown, BERT])), "local")
    assert (done.returncode, done.stderr) == (1, "Set cpus of gpu_0.\n")


@pytest.mark.usefixtures("node")
def test_a_plan_for_several_hosts_does_not_run_on_this_one():
    fleet, _ = on_pools((2, 1, 1), jobs=[RESNET, BERT, VIT])
    done = submitted(submitit_text(fleet_launch_plans(fleet)), "local")
    assert (done.returncode, "several hosts" in done.stderr) == (1, True)


def test_submitit_makes_no_mig_instances():
    with pytest.raises(InvalidInput, match="--no-root"):
        EXPORTS["submitit"](handed("mig=3g.71gb,4g.71gb"))
