import re
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.launch.commands import commands_text_of_all, fleet_launch_plans, why_not_started
from advisor.launch.exports import WHOLE
from advisor.launch.slurm import slurm_text_of_all
from advisor.plan.cluster import FleetTerms
from advisor.plan.rules import Conditions
from advisor.report.fleet import fleet_advice
from advisor.sharing import Instance
from advisor.workload.job import Job
from tests import synthetic
from tests.plan.fleet_twins import drawn, made, on_pools, planned
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
        assert sorted(re.findall(r" (?:job |ADVISOR_JOB=)\d+ \./(\S+)\.sh", script)) == planned
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
    assert fleet_advice(found).request.epochs == tuple(job.epochs for job in JOBS)


@given(jobs=drawn(most=5), wide=st.lists(st.booleans(), min_size=5, max_size=5))
def test_each_job_is_in_the_plan_of_every_gpu_that_it_takes_on_one_host(jobs, wide):
    jobs = [
        replace(job, gpus=2 if two else 1)
        for job, two in zip(made(jobs, "makespan"), wide, strict=False)
    ]
    fleet, _ = on_pools((1, 1, 2), (4, 2, 1), jobs=jobs)
    plans = fleet_launch_plans(fleet)
    assert [plan.number for plan in plans] == [on.number for on in fleet.on]
    places = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [(plan.host, plan.device) for plan in plans] == [places[plan.number] for plan in plans]
    for number, job in enumerate(jobs, start=1):
        own = [plan for plan in plans if number in [start.number for start in plan.starts]]
        assert [len(own), len({plan.host for plan in own})] == [job.gpus, 1]


@pytest.mark.parametrize(
    ("counts", "gpus"), [([(1, 1, 1), (1, 1, 2)], 1), ([(2, 1, 1)], 1), ([(2, 2, 1)], 2)]
)
def test_no_shell_script_starts_jobs_on_several_models_hosts_or_gpus_at_once(counts, gpus):
    fleet, _ = on_pools(*counts, jobs=[replace(job, gpus=gpus) for job in JOBS * 2])
    with pytest.raises(InvalidInput, match="--format slurm"):
        commands_text_of_all(fleet_launch_plans(fleet))


def test_if_slurm_refuses_a_job_those_submitted_before_are_cancelled(found, tmp_path):
    (tmp_path / "sbatch").write_text(
        '#!/bin/sh\ncat > /dev/null\n[ ! -e first ] || exit 1\ntouch first; echo "7;cluster"\n'
    )
    (tmp_path / "scancel").write_text('#!/bin/sh\necho "$@" > cancelled\n')
    for name in ("sbatch", "scancel"):
        (tmp_path / name).chmod(0o755)
    text = re.sub(r"^: .*CORES.*$", "", slurm_text_of_all(fleet_launch_plans(found)), flags=re.M)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, (tmp_path / "cancelled").read_text()) == (1, "7\n")


@pytest.mark.parametrize(("profile", "form"), [(None, "slurm"), ("1g.18gb", "json")])
def test_a_plan_that_no_shell_script_starts_names_a_format_that_expresses_it(profile, form):
    fleet, _ = on_pools((2, 1, 1), jobs=JOBS * 2)
    first, *others = fleet_launch_plans(fleet)
    part = first.stages[0].partitions[0]
    if profile:
        part = replace(part, instance=Instance(profile, 0), profile=profile)
    first = replace(first, stages=(replace(first.stages[0], partitions=(part,)),))
    assert why_not_started([first, *others]).endswith(f"--format {form}`.")
    assert WHOLE[form]([first, *others])
