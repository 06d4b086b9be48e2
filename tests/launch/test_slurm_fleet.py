"""Plans for several GPUs on a real Slurm: each job runs once, where and when planned."""

import re
import subprocess
from pathlib import Path

import pytest

from advisor.api import Advisor
from advisor.launch.launch_plan import fleet_launch_plans
from advisor.launch.slurm import slurm_text
from advisor.plan.cluster import FleetTerms
from advisor.plan.rules import Conditions
from advisor.workload.job import read_jobs
from tests.launch.golden_exports import SEVERAL
from tests.launch.planned_runs import check_ran_as_planned, gpus_of_jobs, put_recorders
from tests.launch.slurm_node import MISSING, slurm_node
from tests.waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}")

FORTY = Path(__file__).with_name("forty_jobs.toml").resolve()


def runs_to_the_end(plans, node, monkeypatch, counts):
    """Submit `plans` to a node with so many GPUs of each type, and wait until all have ended."""
    text = slurm_text(plans)
    put_recorders({start.job.name for plan in plans for start in plan.starts})
    (node / "sbatch").unlink()
    with slurm_node(text, counts) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        ids = re.findall(r"\d+", done.stdout)

        def states():
            asked = ["squeue", "-h", "-t", "all", "-o", "%A %T"]
            shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            return dict(line.split() for line in shown.splitlines())

        until(lambda: set(states().values()) & {"PENDING", "RUNNING", "COMPLETING"} == set())
        assert states() == dict.fromkeys(ids, "COMPLETED")


def test_forty_jobs_on_two_kinds_of_gpus_run_as_planned(node, monkeypatch):
    advisor = Advisor("a100-40gb")
    terms = FleetTerms(gpus="a100-40gb:8,h100-sxm-80gb:4", conditions=Conditions(root=False))
    jobs = read_jobs(FORTY, advisor.find_profile, terms.total)
    fleet = advisor.recommend_fleet(jobs, terms)
    plans = fleet_launch_plans(fleet)
    runs_to_the_end(plans, node, monkeypatch, (8, 4))
    check_ran_as_planned(plans)
    had = gpus_of_jobs()
    for plan in plans:
        own = range(8) if plan.gpu.key == "a100-40gb" else range(8, 12)
        for start in plan.starts:
            assert len(had[start.number]) == start.job.gpus
            assert {*had[start.number]} <= {*own}


@pytest.mark.exhaustive
def test_a_job_of_two_gpus_waits_for_both_and_the_next_wait_for_it(node, monkeypatch):
    runs_to_the_end(SEVERAL, node, monkeypatch, (5,))  # so many that none would have to wait
    check_ran_as_planned(SEVERAL)
    assert len(gpus_of_jobs()[4]) == 2
