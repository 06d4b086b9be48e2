"""A published trace of four A100s, if its files are on this machine."""

import pytest

from advisor.api import Advisor
from advisor.workload.store import NO_CALIBRATION
from research import a100_server
from research.files import ROOT

DATA = ROOT.parent / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="others' measurements are not on this machine")
def test_one_task_a_gpu_takes_as_long_as_a_plain_loop_says(monkeypatch):
    monkeypatch.setattr(a100_server, "WAYS", a100_server.WAYS[:1])
    tasks = a100_server.tasks(DATA)
    free_s, started_s, ends_s = [0.0] * a100_server.GPUS, 0.0, []
    for task in tasks:
        free_s.sort()
        started_s = max(task.arrival_s, started_s, free_s[task.gpus - 1])
        free_s[: task.gpus] = [started_s + task.duration_s] * task.gpus
        ends_s.append(started_s + task.duration_s)
    advisor = Advisor(a100_server.GPU, calibration=NO_CALIBRATION)
    ((_, simulation),) = a100_server.simulations(
        advisor, tasks, lambda task: a100_server.bare(task.name, task.batch, task.memory_mib)
    )
    assert [job.end_s.p50 for job in simulation.jobs] == pytest.approx(ends_s)
    assert simulation.makespan_s.p50 / 3600 == pytest.approx(12.21, abs=0.01)
    assert simulation.mean_completion_s / 3600 == pytest.approx(3.87, abs=0.01)


def test_a_task_on_a_slow_host_keeps_its_work_on_the_gpu():
    advisor = Advisor(a100_server.GPU, calibration=NO_CALIBRATION)
    fast = a100_server.similar(advisor, "resnet18-cifar100-bs32", 32, 788.0)
    slow = a100_server.paced(fast, 3 * fast.step_s)
    assert slow.step_s == pytest.approx(3 * fast.step_s)
    assert slow.gpu_s == pytest.approx(fast.gpu_s)
    assert a100_server.paced(fast, fast.step_s / 2) is fast
