import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import optuna
import pytest

from advisor.apply.study import SharedProcesses, StudySpec, processes_of, run_study
from advisor.apply.study_worker import named_function
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware.mps import mps_processes
from advisor.launch.launch_plan import launch_plan
from advisor.measure.process.run_locks import sweep
from advisor.plan.copies_search import copies_that_pay
from advisor.plan.trials import trials_that_pay
from advisor.sharing import Mps, Naive, parse_sharing
from advisor.workload.job import Job
from tests import synthetic
from tests.hardware.conftest import install  # noqa: F401 - a fixture
from tests.hardware.nvml import FakeGpu, FakeLibrary
from tests.measure.process import mps_stand_in
from tests.plan.stand_in import H200, StandIn
from tests.waiting import PATIENCE_S, until

OBJECTIVES = Path(__file__).with_name("study_objectives.py")
TWO = SharedProcesses(processes=2, sharing=Naive())


def run(function, trials, spec, how=TWO, device="cpu"):
    return run_study(f"{OBJECTIVES}:{function}", trials, how, spec, device=device)


@pytest.fixture
def meeting(tmp_path, monkeypatch):
    """Both processes run a trial, however late one of them begins."""
    (folder := tmp_path / "meeting").mkdir()
    monkeypatch.setenv("MEET", str(folder))


@pytest.fixture
def spec(tmp_path):
    return StudySpec(storage=str(tmp_path / "study.log"), name="rates")


@pytest.mark.usefixtures("meeting")
def test_every_trial_runs_once_and_the_processes_share_them(spec):
    ran = run("told", 6, spec)
    assert (ran.ended, ran.failed, ran.mps_clients) == (6, 0, 0)
    assert [each.number for each in ran.study.trials] == list(range(6))
    assert len({each.user_attrs["pid"] for each in ran.study.trials}) == 2


def test_a_study_in_a_database_goes_on_where_it_was(tmp_path):
    spec = StudySpec(
        storage=f"sqlite:///{tmp_path}/study.db", name="rates", directions=("maximize",),
        sampler=f"{OBJECTIVES}:sampler",
    )  # fmt: skip
    spec.opened().add_trial(optuna.create_trial(value=3.0))
    ran = run("told", 2, spec, SharedProcesses(processes=1, sharing=Naive()))
    assert (ran.ended, len(ran.study.trials)) == (2, 3)
    assert ran.study.direction.name == "MAXIMIZE"


def test_a_trial_that_fails_or_dies_takes_no_other_with_it(spec):
    ran = run("bad_days", 7, spec)
    assert (ran.ended, ran.failed) == (4, 3)
    states = {each.number: each.state.name for each in ran.study.trials}
    assert [number for number, state in states.items() if state == "FAIL"] == [1, 2, 4]
    pids = [each.user_attrs["pid"] for each in ran.study.trials]
    for number in (1, 2, 4):  # whose processes met an error, and ran nothing more
        assert pids[number] not in pids[number + 1 :]


def test_an_objective_that_cannot_succeed_is_not_tried_for_ever(spec):
    with pytest.raises(AdvisorError, match=r"3 trials failed and none ended well"):
        run("always_fails", 500, spec)
    study = optuna.load_study(study_name=spec.name, storage=spec.opened()._storage)
    assert len(study.trials) < 10
    assert {each.state.name for each in study.trials} == {"FAIL"}


@pytest.mark.parametrize("function", ["nothing_of_that_name", "SUITE"])
def test_an_objective_that_is_none_is_refused(spec, function):
    with pytest.raises(InvalidInput, match="its process cannot begin"):
        run(function, 2, spec)


@pytest.mark.parametrize("name", ["objective", ":f", "train.py:", "no_such_module_x:f", "a b:c d"])
def test_a_function_is_named_by_its_file_or_module(name):
    with pytest.raises(InvalidInput):
        named_function(name)


def test_a_place_that_holds_no_study_is_refused(tmp_path):
    for storage in (str(tmp_path / "no" / "such" / "folder.log"), "nonsense://here"):
        with pytest.raises(InvalidInput, match="study 'rates' in"):
            run("told", 1, StudySpec(storage=storage, name="rates"))


@pytest.mark.parametrize("trials", [0, -1, 10**6])
def test_a_run_of_no_trials_is_refused(spec, trials):
    with pytest.raises(InvalidInput, match="a run has 1 to"):
        run("told", trials, spec)


def test_processes_that_cannot_be_are_refused():
    for wrong in (
        {"processes": 0, "sharing": Naive()},
        {"processes": 2, "sharing": Naive(), "cores_each": 0},
        {"processes": 3, "sharing": Mps((50.0, 50.0))},
    ):
        with pytest.raises(InvalidInput):
            SharedProcesses(**wrong)


def test_a_cpu_has_no_mps(spec):
    how = SharedProcesses(processes=2, sharing=Mps())
    with pytest.raises(InvalidInput, match="a CPU has no MPS"):
        run("told", 1, spec, how)


def test_processes_start_as_the_plan_of_the_copies_would():
    job = Job(synthetic.profile("resnet26-cifar10-bs128", host_s=0.007, gpu_s=0.002))
    advised = trials_that_pay(copies_that_pay(job, H200, StandIn()), StandIn(), 100)
    how = processes_of(advised)
    plan = launch_plan([job] * how.processes, H200, advised.row.prediction)
    assert how.processes == advised.at_once == len(plan.starts) > 1
    assert str(how.sharing) == str(plan.sharing)
    assert {how.cores_each} == {start.core_count or 1 for start in plan.starts}
    assert {how.memory_cap_mib} == {start.memory_cap_mib for start in plan.starts}


@pytest.mark.usefixtures("meeting")
def test_under_mps_each_process_has_its_limit_and_cap_and_the_daemon_goes(
    spec,
    install,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    uuid = f"GPU-{uuid4()}"
    install(FakeLibrary(FakeGpu(uuid=uuid)))
    mps_stand_in.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    how = SharedProcesses(
        processes=2, sharing=parse_sharing("mps=40,60"), memory_cap_mib=900, cores_each=1
    )
    ran = run("told", 2, spec, how, device=uuid)
    assert ran.mps_clients == 2
    seen = [each.user_attrs["mps"] for each in ran.study.trials]
    assert {each["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for each in seen} == {"40", "60"}
    assert {each["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for each in seen} == {"0=900M"}
    assert {each["CUDA_VISIBLE_DEVICES"] for each in seen} == {uuid}
    assert not [each for each in mps_processes() if uuid in each.gpus]


_RUN = """
import sys
import pynvml
from advisor.apply.study import SharedProcesses, StudySpec, run_study
from advisor.sharing import parse_sharing
from tests.hardware.nvml import FakeGpu, FakeLibrary
objective, storage, device, sharing = sys.argv[1:]
pynvml.nvmlLib = FakeLibrary(FakeGpu(uuid=device))
how = SharedProcesses(processes=2, sharing=parse_sharing(sharing))
run_study(objective + ":endless", 9, how, StudySpec(storage=storage, name="rates"), device=device)
"""


def alive(pid):
    """Whether a process of this number runs; one that has ended and was not asked for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def endless(tmp_path, spec):
    """Starts a program that runs an endless study; it, and the pids of its four processes."""
    (told := tmp_path / "told").mkdir()
    started = []

    def start(device, sharing):
        words = [sys.executable, "-c", _RUN, str(OBJECTIVES), spec.storage, device, sharing]
        program = subprocess.Popen(
            words, env=os.environ | {"TOLD": str(told)}, stderr=subprocess.DEVNULL
        )
        started.append(program)
        until(lambda: len(list(told.iterdir())) == 4)
        return program, [int(path.name) for path in told.iterdir()]

    yield start
    for program in started:
        program.kill()
        program.wait()
    sweep()  # as the next run would


def test_a_program_that_a_trial_started_ends_with_the_study(spec):
    ran = run("starts_a_program", 1, spec, SharedProcesses(processes=1, sharing=Naive()))
    assert not alive(ran.study.trials[0].user_attrs["started"])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_program_leaves_no_process(endless, spec, how):
    program, pids = endless("cpu", "naive")
    assert all(map(alive, pids))
    program.send_signal(how)
    program.wait(PATIENCE_S)
    until(lambda: not any(map(alive, pids)))
    if how == signal.SIGINT:
        assert {each.state.name for each in spec.opened().trials} == {"FAIL"}


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive), signal.SIGKILL]
)
def test_no_mps_daemon_outlives_the_program(endless, tmp_path, monkeypatch, how):
    mps_stand_in.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    uuid = f"GPU-{uuid4()}"
    program, pids = endless(uuid, "mps=50,50")
    assert [each for each in mps_processes() if uuid in each.gpus]
    program.send_signal(how)
    program.wait(PATIENCE_S)
    until(lambda: not [each for each in mps_processes() if uuid in each.gpus])
    until(lambda: not any(map(alive, pids)))
