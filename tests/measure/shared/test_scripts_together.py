"""Scripts of users in a shared run: each is its own tenant."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedRun
from advisor.workload.spec import Script, Workload
from advisor.workload.stored_runs import read_runs
from tests.measure.process import scripts
from tests.measure.shared.real_command import Started

SCRIPTS = scripts.write(Path(mkdtemp()))


def scripted(name, *command, **how):
    script = Script(command=command, folder=str(SCRIPTS), environment={"COUNT": os.devnull}, **how)
    return Workload(name=name, source="script", model=name, family=name, batch=4, script=script)


def test_two_scripts_and_a_program_share_a_device_and_each_is_measured(tmp_path):
    printer = "import time\nwhile True: time.sleep(0.01); print('rate 400 examples/s')"
    workloads = [
        scripted("first", "python", "scaled.py"),
        scripted("second", "python", "two_networks.py"),
        scripted("third", "python", "-c", printer, throughput="rate ([0-9]+)"),
    ]
    plan = {
        "id": "scripts", "sharing": "naive", "purpose": "validation",
        "workloads": [asdict(each) for each in workloads],
    }  # fmt: skip
    plans = tmp_path / "plans.json"
    plans.write_text(json.dumps({"schema": 1, "gpu": "cpu", "plans": [plan]}))
    words = [plans, "--device", "cpu", "--out", tmp_path / "runs.jsonl", "--windows", 2]
    with TemporaryDirectory() as folder:
        command = Started(folder, "-m", "advisor.collocation")
        words += ["--settle", "0.2", "--window", "0.3"]
        code, said = command.finish(*map(str, words))
        assert code == 0, said
        assert not command.processes()
    (run,) = read_runs(tmp_path / "runs.jsonl")
    assert run.ok
    assert [tenant.workload.script.command[:2] for tenant in run.tenants] == [
        each.script.command[:2] for each in workloads
    ]
    assert all(window.steps > 0 for tenant in run.tenants for window in tenant.windows)
    third = run.tenants[2]
    assert [round(window.step_s, 6) for window in third.windows] == [0.01, 0.01]
    assert third.host_check_s is None


def test_a_completion_needs_steps_that_are_counted():
    workload = scripted("it", "sleep", "1", throughput="([0-9]+)")
    with pytest.raises(InvalidInput, match="`advisor run` runs it"):
        PlannedRun(
            id="a", sharing="naive", purpose="completion", workloads=(workload,), steps=(3,)
        )  # fmt: skip
