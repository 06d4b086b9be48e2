import re
import subprocess
from dataclasses import replace

import pytest

from advisor.errors import InvalidInput
from advisor.launch.commands import commands_text_of_all, fleet_launch_plans
from advisor.launch.slurm import slurm_text_of_all
from advisor.plan.cluster import FleetTerms
from advisor.plan.rules import Conditions
from advisor.report.fleet import fleet_document
from advisor.sharing import Instance
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.fleet_twins import planned
from tests.plan.stand_in import H200, StandIn

JOBS = [
    Job(synthetic.profile(f"cnn-cifar10-bs{size}", host_s=0.01, gpu_s=0.002), epochs=size)
    for size in range(1, 8)
]


@pytest.fixture(scope="module")
def found():
    terms = FleetTerms(gpus=3, conditions=Conditions(root=False))
    return planned(JOBS, terms, StandIn(), H200)


@pytest.fixture
def submitted(found, tmp_path):
    """What Slurm is given by the script: its words, and the script of each job."""
    text = slurm_text_of_all(fleet_launch_plans(found))
    (tmp_path / "sbatch").write_text('#!/bin/sh\nn=$(ls | wc -l)\n(echo "$@"; cat) > job$n\n')
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "jobs").mkdir()
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = ["bash", "-c", re.sub(r"^: .*CORES.*$", "", text, flags=re.M)]
    subprocess.run(script, cwd=tmp_path / "jobs", env=environment, check=True)
    return [file.read_text().split("\n", 1) for file in sorted((tmp_path / "jobs").iterdir())]


def test_slurm_is_given_a_job_for_each_gpu_that_runs_all_planned_there(found, submitted):
    assert len(submitted) == len(found.on) > 1
    for on, (words, script) in zip(found.on, submitted, strict=True):
        assert "--gres=gpu:1" in words
        planned = sorted(JOBS[number - 1].name for number in on.jobs)
        assert sorted(re.findall(r" job \d+ \./(\S+)\.sh", script)) == planned
        assert ("use_mps" in script) == ("mps" in str(on.sharing))
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_a_gpu_that_is_to_be_cut_up_is_refused_by_slurm_and_not_by_the_shell(found):
    plans = fleet_launch_plans(found)
    on_mig = planned(JOBS[:1], FleetTerms(), StandIn(), H200)
    (cut,) = fleet_launch_plans(on_mig)
    part = replace(cut.stages[0].partitions[0], instance=Instance("1g.18gb", 0))
    cut = replace(cut, stages=(replace(cut.stages[0], partitions=(part,)),))
    with pytest.raises(InvalidInput, match="Slurm makes no MIG instances"):
        slurm_text_of_all([*plans, cut])
    text = commands_text_of_all(plans)
    assert sorted(re.findall(r"\./(\S+)\.sh$", text, re.M)) == sorted(job.name for job in JOBS)


def test_a_recommendation_says_how_many_epochs_of_each_job_it_is_for(found):
    assert fleet_document(found)["epochs"] == [job.epochs for job in JOBS]
