import pytest

from advisor.errors import InvalidInput
from advisor.measure.shared.bench import planned_processes
from advisor.measure.shared.planned_run import PlannedRun
from advisor.workload.named_workloads import workload

PAIR = (workload("mlp-toy-bs32"), workload("cnn-cifar10-bs32-loader2"))


def plan(sharing, workloads=PAIR):
    return PlannedRun(id="p", sharing=sharing, purpose="validation", workloads=workloads)


def test_under_mps_the_daemon_and_its_clients_meet_at_the_same_pipes():
    supervisor, daemon, first, second = planned_processes(plan("mps=43,57"), "GPU-0", range(16))
    assert daemon.command == ("nvidia-cuda-mps-control", "-f")
    pipes = daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]
    assert first.environment["CUDA_MPS_PIPE_DIRECTORY"] == pipes
    assert first.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "43"
    assert (first.cores, second.cores) == ((0,), (1, 2, 3))
    assert supervisor.cores == tuple(range(4, 16))
    assert PAIR[1].name in second.role


def test_without_mps_there_is_no_daemon():
    roles = [each.role for each in planned_processes(plan("naive"), "GPU-0", range(16))]
    assert not any("MPS" in role for role in roles)


def test_a_serial_plan_starts_its_tenants_one_after_the_other():
    roles = [each.role for each in planned_processes(plan("serial"), "GPU-0", range(4))]
    assert [role.split(":")[0] for role in roles] == ["p.1", "p.1", "p.2", "p.2"]


def test_too_few_cores_show_before_anything_starts():
    with pytest.raises(InvalidInput, match="4 cores would be needed"):
        planned_processes(plan("mps"), "GPU-0", range(3))
