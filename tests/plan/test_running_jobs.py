"""Which of the jobs asked about run on a GPU already, as far as memory tells."""

from dataclasses import replace

from advisor.hardware.gpu_state import GpuProcess
from advisor.hardware.mps import MpsProcess
from advisor.plan.running_jobs import recognised
from advisor.workload.job import Job
from tests import synthetic
from tests.report.test_text import LIVE

SMALL = Job(synthetic.profile("resnet26-cifar10-bs128", memory_mib=2_000))
LARGE = Job(synthetic.profile("dlrm-29gb-bs128", memory_mib=90_000))
ALIKE = Job(synthetic.profile("bert-base-finetune-bs16", memory_mib=2_010))


def seen(jobs, *held_mib, mps=()):
    processes = tuple(GpuProcess(pid, mib) for pid, mib in enumerate(held_mib))
    return recognised(replace(LIVE, processes=processes, mps=mps), jobs)


def test_a_process_is_the_job_that_holds_as_much():
    assert seen([SMALL, LARGE], 91_000) == (1,)
    assert seen([SMALL, LARGE], 2_040, 89_000) == (0, 1)


def test_copies_are_as_many_as_there_are_processes():
    assert seen([SMALL, SMALL, SMALL], 2_000, 2_000) == (0, 1)
    assert seen([SMALL], 2_000, 2_000) == (0,)


def test_what_may_be_either_of_two_jobs_or_is_not_told_is_none():
    assert seen([SMALL, ALIKE], 2_005) == ()
    assert seen([SMALL, LARGE], None, 0, 40_000) == ()


def test_an_mps_server_is_no_job_whatever_it_holds():
    assert seen([SMALL], 2_000, mps=(MpsProcess(0, "server", "ada", None),)) == ()
