"""A plan on MIG instances, run: real processes on a stand-in of the driver."""

import os
import signal
from pathlib import Path
from uuid import uuid4

import pynvml
import pytest

from advisor.apply.mig_provider import MigProvider
from advisor.apply.restore import restore
from advisor.errors import AdvisorError, InvalidInput
from advisor.hardware import mig_switch
from advisor.hardware.catalogue import gpu
from advisor.launch.launch_plan import NOT_RUN
from advisor.measure.execution import recorded_run
from advisor.measure.execution.execution_plan import execution_plan
from advisor.measure.execution.recorded_run import recorded_runs
from advisor.measure.execution.run_folder import run_folders
from advisor.measure.execution.watching import RunPlace, Watch, start
from advisor.measure.process.claimed_device import device_at_hand
from advisor.measure.process.journal_files import journal_files
from advisor.measure.process.provenance import Origin
from tests.hardware.conftest import install
from tests.hardware.mig_machine import MigMachine
from tests.measure.execution.runs import STEPS, document, script, text_of
from tests.waiting import until

__all__ = ["install"]

A100 = gpu("a100-40gb")
SEES = "import os, sys; open(sys.argv[0] + '.saw', 'a').write(os.environ['CUDA_VISIBLE_DEVICES'])"

SLEEPS = "import time; time.sleep(600)"


@pytest.fixture(autouse=True)
def machine(install, tmp_path, monkeypatch):
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(mig_switch, "_PAUSE_S", 0)
    monkeypatch.setattr(mig_switch, "_TRIES", 3)
    return install(MigMachine(gpu=f"GPU-{uuid4()}"))


def run(sharing, folder, codes, heard):
    """Run scripts of these `codes` under `sharing`; the monitor of it."""
    jobs = [script(folder, f"job{n}", code) for n, code in enumerate(codes, start=1)]
    planned = document(sharing, *jobs, gpu="a100-40gb")
    plan = execution_plan(planned)
    device = device_at_hand("0", on_mig=True)
    provider = MigProvider(plan, A100, device.uuid, "advisor run", replacing=True, say=heard.append)
    watch = Watch(say=heard.append, show=lambda _view: None, look_s=0.01)
    place = RunPlace(device=device, command="advisor run", provider=provider)
    return start(plan, text_of(planned), place, watch)


def test_each_job_sees_its_own_instance_and_the_layout_is_as_before(machine, tmp_path):
    heard = []
    monitor = run("mig=7g.40gb@0/ci=3c[1]+4c[2]", tmp_path, [SEES] * 2, heard)
    assert [job.fate for job in monitor.running.state.jobs] == ["done"] * 2
    saw = [Path(tmp_path / f"job{n}.py.saw").read_text() for n in (1, 2)]
    assert len(set(saw)) == 2
    assert all(each.startswith("MIG-") for each in saw)
    assert machine.layout() == ()
    assert NOT_RUN in heard
    assert any("as before" in each for each in heard)
    assert journal_files() == []


def test_what_jobs_did_on_their_instances_becomes_a_record_of_that_sharing(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded_run, "SETTLE_S", 0.0)
    monkeypatch.setattr(recorded_run, "_SHORTEST_S", 0.1)
    code = STEPS + "for number in range(1, 60): step(number); time.sleep(0.01)\n"
    layout = "mig=7g.40gb@0/ci=3c[1]+4c[2]"
    monitor = run(layout, tmp_path, [code] * 2, [])
    origin = Origin(monitor.running.site.device, "advisor run", 2)
    (record,) = recorded_runs(monitor, origin)
    assert (record.sharing, record.gpu, record.mps_clients) == (layout, "a100-40gb", 0)
    assert all(tenant.step_s > 0.01 for tenant in record.tenants)


def test_each_group_has_instances_of_its_own(machine, tmp_path):
    run("mig=4g.20gb@0[1]+3g.20gb@4[2];mig=7g.40gb@0[3]", tmp_path, [SEES] * 3, [])
    assert (tmp_path / "job3.py.saw").exists()
    assert machine.calls.count("nvmlDeviceCreateGpuInstanceWithPlacement") == 3
    assert machine.layout() == ()


def test_a_driver_that_fails_ends_the_run_with_nothing_left(machine, tmp_path):
    refused = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    machine.fault = lambda _number, name: refused if "CreateCompute" in name else None
    with pytest.raises(AdvisorError, match="Somebody else makes instances too"):
        run("mig=4g.20gb@0[1]+3g.20gb@4[2]", tmp_path, [SEES] * 2, [])
    assert machine.layout() == ()
    assert journal_files() == []
    assert all(folder.state().over for folder in run_folders())


def test_instances_that_cannot_be_put_back_are_restored_later(machine, tmp_path):
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    machine.fault = lambda _number, name: lost if "Destroy" in name else None
    with pytest.raises(AdvisorError, match="fallen off its bus"):
        run("mig=4g.20gb@0[1]+3g.20gb@4[2]", tmp_path, [SEES] * 2, [])
    machine.fault = lambda _number, _name: None
    assert len(machine.layout()) == 2
    assert all(each.why_not is None for each in restore())
    assert machine.layout() == ()
    assert list(restore()) == []


def test_a_run_whose_watcher_is_killed_is_restored_jobs_first(install, machine, tmp_path):
    state, uuid = tmp_path / "state", machine.gpus[0].uuid
    pid = os.fork()
    if pid == 0:
        try:
            install(MigMachine(gpu=uuid, state=state))
            run("mig=4g.20gb@0[1]+3g.20gb@4[2]", tmp_path, [SEES, f"{SEES}; {SLEEPS}"], [])
        finally:
            os._exit(1)
    until((tmp_path / "job2.py.saw").exists)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    machine = install(MigMachine(gpu=uuid, state=state))
    assert len(machine.layout()) == 2
    found = list(restore())
    assert [each.why_not for each in found] == [None, None]
    assert found[0].said.startswith("run ")
    assert "as before" in found[1].said
    assert machine.layout() == ()
    assert all(folder.state().over for folder in run_folders())
    assert list(restore()) == []


def test_groups_on_mig_and_off_it_are_refused_before_anything_starts(machine, tmp_path):
    with pytest.raises(InvalidInput, match="Run each group as a plan of its own"):
        run("mig=7g.40gb@0[1];naive[2]", tmp_path, [SEES] * 2, [])
    assert machine.layout() == ()
    assert not list(tmp_path.glob("*.saw"))
