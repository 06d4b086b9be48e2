"""Plans of several GPUs: what each GPU runs, and which files express that."""

import re
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.launch.launch_plan import launch_plans
from advisor.launch.shell import why_not_started
from advisor.report.plans import advice
from tests.handed import JOBS, on_gpus, write
from tests.plan.fleet_twins import drawn, made, on_pools

BIG = replace(JOBS[2], gpus=2)
MIG = ("mig=3g.71gb,4g.71gb", JOBS[:2])
SERIAL = ("serial", JOBS)


@given(jobs=drawn(most=4), wide=st.lists(st.booleans(), min_size=4, max_size=4))
def test_each_job_is_in_the_plan_of_every_gpu_that_it_takes_on_one_host(jobs, wide):
    jobs = [
        replace(job, gpus=2 if two else 1)
        for job, two in zip(made(jobs, "makespan"), wide, strict=False)
    ]
    fleet, _ = on_pools((1, 1, 2), (4, 2, 1), jobs=jobs)
    assert advice(fleet).epochs == tuple(job.epochs for job in jobs)
    plans = launch_plans(fleet.hosts, fleet.best)
    assert [plan.number for plan in plans] == [on.number for on in fleet.best.gpus]
    places = [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert [(plan.host, plan.device) for plan in plans] == [places[plan.number] for plan in plans]
    partitions = [part.number for plan in plans for part in plan.partitions]
    assert partitions == list(range(1, len(partitions) + 1))
    for plan, on in zip(plans, fleet.best.gpus, strict=True):
        assert sorted(start.number for start in plan.starts) == sorted(on.job_numbers)
    for number, job in enumerate(jobs, start=1):
        own = [plan for plan in plans if number in [start.number for start in plan.starts]]
        assert [len(own), len({plan.host for plan in own})] == [job.gpus, 1]


@pytest.mark.parametrize(
    ("plans", "form"),
    [
        (on_gpus(SERIAL, SERIAL, host_gpus=1), "slurm"),
        (on_gpus(SERIAL, SERIAL, host_gpus=1, models=("h200-141gb", "a100-40gb")), "slurm"),
        (on_gpus(("serial", [BIG]), ("serial", [BIG]), numbers=[[1], [1]]), "slurm"),
        (on_gpus(SERIAL, MIG, host_gpus=1), "json"),
    ],
)
def test_a_plan_that_no_shell_script_starts_names_a_format_that_expresses_it(plans, form):
    assert why_not_started(plans).endswith(f"--format {form}`.")
    with pytest.raises(InvalidInput, match=f"--format {form}"):
        write("commands", plans)
    assert write(form, plans)


def test_one_gpu_of_several_that_is_cut_up_is_refused_by_slurm_and_not_by_the_shell():
    plans = on_gpus(SERIAL, MIG)
    with pytest.raises(InvalidInput, match=r"GPU 1, .*Slurm makes no MIG instances"):
        write("slurm", plans)
    jobs = re.findall(r"job (\d) \./", write("commands", plans))
    assert sorted(jobs) == ["1", "2", "3", "4", "5"]


def test_slurm_is_given_a_job_for_each_gpu_or_none(tmp_path):
    sbatch = "#!/bin/sh\n[ ! -e first ] || exit 1\ntouch first\necho '7;cluster'\n"
    for name, text in (("sbatch", sbatch), ("scancel", "#!/bin/sh\necho $@ > ended\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    text = write("slurm", on_gpus(("mps=43,57", JOBS[:2]), ("serial", JOBS)))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=path, check=False)
    assert (done.returncode, (tmp_path / "ended").read_text()) == (1, "7\n")
