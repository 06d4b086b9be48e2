"""What a profiled tenant tells, and what is made of it."""

from dataclasses import asdict, replace
from time import time

import pytest

from advisor.errors import AdvisorError
from advisor.hardware.gpu_state import Activity
from advisor.measure.process.claimed_device import Device
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.trainable import trained
from advisor.measure.process.worker import TenantState
from advisor.measure.solo.mps_probe import ProbedJob, mps_probe
from advisor.measure.solo.profiling_verbs import issue, train
from advisor.measure.solo.solo_pace import SoloPace, Stopwatch, _host_side, is_steady
from advisor.measure.solo.solo_run import _report
from advisor.measure.solo.step_parts import StepParts, _recorded_parts, _traced_parts
from advisor.measure.solo.traced_step import GpuWork, Phase, TracedStep
from advisor.workload.host_side import HostSide
from advisor.workload.measured import Counters, Memory, Window
from advisor.workload.named_workloads import workload
from advisor.zoo.task import build
from tests import synthetic

H200 = Device("cuda", "GPU-0", "h200-141gb", "NVIDIA H200", "580.0")


@pytest.fixture
def state():
    """Makes a tenant's desk in this process, with a workload loaded."""
    made = []

    def make(name):
        made.append(TenantState("cpu", build(workload(name), "cpu")))
        return made[-1]

    yield make
    for each in made:
        each.trainable.close()


def answered(verb, state, **arguments):
    """What the routine `verb` answers when the zoo's step is taken through it."""
    return trained(verb(state, **arguments), lambda: state.trainable)


def test_a_pace_is_steady_when_two_stretches_in_a_row_agree():
    assert not is_steady([])
    assert not is_steady([1.0])
    assert not is_steady([1.0, 1.04])
    assert is_steady([2.0, 1.0, 1.02])
    assert not is_steady([1.0, 1.0, 1.1])


def test_the_host_path_is_told_for_each_part_of_a_step(state):
    answer = answered(issue, state("mlp-toy-bs2"), seconds=0.0)
    assert len(answer["phases_s"]) == 4
    assert all(seconds > 0 for seconds in answer["phases_s"])
    assert answer["loader_s"] is None


def test_a_loader_is_timed_on_its_own(state):
    assert answered(issue, state("cnn-cifar10-bs2-loader1"), seconds=0.0)["loader_s"] > 0


def test_training_tells_what_the_process_and_its_loader_computed(state):
    loaded = state("cnn-cifar10-bs32-loader1")
    answer = answered(train, loaded, start_at=time(), stop_at=time() + 0.3)
    assert answer["completed_at"]
    assert answer["cpu_s"] >= answer["loader_cpu_s"] >= 0
    assert answer["fetched_s"] > 0
    assert answer["read_mib"] is None or answer["read_mib"] >= 0


def test_what_the_host_does_for_a_step_is_told_by_its_parts():
    answer = {"loader_cpu_s": 2.0, "fetched_s": 0.5, "read_mib": 30.0, "cpu_s": 3.0}
    assert _host_side(answer, 10) == HostSide(loader_cpu_s=0.2, wait_s=0.05, read_mib=3.0)


def test_without_a_loader_nothing_is_said_of_one():
    answer = {"loader_cpu_s": 0, "fetched_s": 0.5, "read_mib": 0.0, "cpu_s": 3.0}
    assert _host_side(answer, 10) == HostSide(wait_s=0.05)


def test_a_tenant_without_a_workload_is_not_profiled():
    with pytest.raises(AdvisorError, match="must load a workload"):
        answered(issue, TenantState("cpu"), seconds=0.0)


class Replayed:
    """A tenant that answers what one on a GPU might have answered."""

    def __init__(self, **answers):
        self._answers = answers

    def ask(self, verb, **_arguments):
        return self._answers[verb]


def at_pace(step_s):
    """A program that takes a step in `step_s` seconds and keeps the GPU busy for half of it."""
    counters = Counters(source="nvml", gract=0.5)
    memory = Memory(allocated_mib=None, reserved_mib=None, device_mib=900.0)
    meant = Activity(counters=counters, power_w=None, energy_j=None, seconds=1.0)
    windows = (Window(1.0, 1 / step_s),)
    return SoloPace(windows, 1.0, meant, (None, None), memory, host_check_s=None, meter_s=0.0)


STEP = TracedStep(
    work=(
        GpuWork(
            kind="gemm", phase=1, launch_us=10.0, start_us=0.0, duration_us=50.0,
            blocks=80, threads=256, resident_blocks=8,
        ),
        GpuWork(
            kind="reduce", phase=3, launch_us=5.0, start_us=100.0, duration_us=30.0,
            blocks=1, threads=512, resident_blocks=4,
        ),
    ),
    phases=(Phase(0.0, 0), Phase(200.0, 1), Phase(400.0, 0), Phase(100.0, 1)),
)  # fmt: skip
ISSUED = {"phases_s": (0.0, 1e-4, 2e-4, 5e-5), "loader_s": None}


def test_host_path_gpu_path_and_trace_come_from_what_was_issued_and_traced():
    inside = _traced_parts(Replayed(issue=ISSUED, trace={"step": asdict(STEP)}), H200, Stopwatch())
    assert inside.host_s == pytest.approx(3.5e-4)
    assert inside.gpu_s == pytest.approx(8e-5)
    assert inside.trace is not None
    assert inside.trace.launch_us == (5.0, 302.5)


def test_a_host_that_waits_for_its_loader_is_as_slow_as_the_loader():
    slow = ISSUED | {"loader_s": 0.01}
    tenant = Replayed(issue=slow, trace={"step": asdict(STEP)})
    assert _traced_parts(tenant, H200, Stopwatch()).host_s == 0.01


@pytest.mark.parametrize(
    "answer", [Ended("died", "no CUPTI"), {"step": asdict(replace(STEP, work=()))}]
)
def test_without_a_trace_the_host_path_is_still_told(answer, capsys):
    watch = Stopwatch()
    for part in ("start_s", "settle_s", "windows_s"):
        watch.lap(part)
    inside = _traced_parts(Replayed(issue=ISSUED, trace=answer), H200, watch)
    assert inside.host_s == pytest.approx(3.5e-4)
    assert (inside.gpu_s, inside.trace) == (None, None)
    assert "no kernel trace" in capsys.readouterr().err
    assert watch.took(0.0).trace_s is not None, "trying took time too"


def test_a_program_without_steps_is_traced_through_a_window_as_long_as_one():
    whole = replace(STEP, work=tuple(replace(each, phase=0) for each in STEP.work),
                    phases=(Phase(200.0, 2, waits_us=(150.0,)),))  # fmt: skip
    tenant = Replayed(record={"step": asdict(whole)})
    inside = _recorded_parts(tenant, at_pace(0.001), H200, Stopwatch())
    assert inside.host_s == pytest.approx(2e-4), "the host waited for the rest"
    assert inside.gpu_s == pytest.approx(8e-5)
    assert len(inside.trace.launch_us) == len(STEP.work)


@pytest.mark.parametrize(
    ("answer", "step_s", "said"),
    [
        ({}, 0.001, "uses the GPU by torch"),
        (Ended("died", "no CUPTI"), 0.001, "no CUPTI"),
        ({"step": asdict(STEP)}, 5.0, "too long to record"),
    ],
)
def test_without_its_kernels_a_program_has_the_utilisation_that_was_seen(
    answer, step_s, said, capsys
):
    inside = _recorded_parts(Replayed(record=answer), at_pace(step_s), H200, Stopwatch())
    assert inside.gpu_s == pytest.approx(step_s / 2)
    assert (inside.host_s, inside.trace) == (None, None)
    assert said in capsys.readouterr().err


def test_where_mps_does_not_start_there_is_no_probe_and_a_line_says_why(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("PATH", "")
    task, session = workload("mlp-toy-bs32"), MpsSession(H200, tmp_path)
    job = ProbedJob(workload=task, cores=(0,), starting_cores=(0,), step_s=0.01, held_mib=None)
    assert mps_probe(job, session, Stopwatch()) is None
    assert "no MPS probe: nvidia-cuda-mps-control is not installed" in capsys.readouterr().err


def test_how_often_a_host_waits_for_the_gpu_is_said(capsys):
    known = synthetic.trace(2, 0.001, 0.001, 100)
    for waits_us, said in (((5.0, 9.0), "waits for the GPU 2 times a step"), ((), None)):
        _report(at_pace(0.002), StepParts(0.001, 0.001, replace(known, waits_us=waits_us)))
        heard = capsys.readouterr().err
        assert said in heard if said else "waits" not in heard
