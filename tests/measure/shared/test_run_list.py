import json
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from advisor.measure.shared.run_list import main
from advisor.workload.stored_runs import read_runs
from tests.measure.shared.real_command import Command
from tests.refusals import refused
from tests.waiting import PATIENCE_S

ABSENT = ("pydantic", "typer", "rich", "pandas", "sklearn", "numba", "streamlit", "ortools")
HIDE = f"""
import sys
class Hiding:
    def __init__(self, finder):
        self._finder = finder
    def find_spec(self, name, *rest):
        return None if name.split(".")[0] in {ABSENT} else self._finder.find_spec(name, *rest)
    def __getattr__(self, name):
        return getattr(self._finder, name)
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""
SHORT = ("--settle", "0.1", "--window", "0.1")
LONG = ("--settle", "0.1", "--window", "60")


def mix(plan_id, sharing="naive", **other):
    plan = {"id": plan_id, "sharing": sharing, "purpose": "drawn", "repeats": None}
    return plan | {"workloads": ["mlp-toy-bs32", "mlp-toy-bs64"]} | other


@pytest.fixture
def command():
    """Makes the command; whatever a failed test leaves is ended."""
    made = []
    with TemporaryDirectory(dir="/tmp") as folder:

        def make(*plans, **other):
            made.append(Command(folder, *plans, **other))
            return made[-1]

        yield make
        for each in made:
            each.clear()


def test_a_mix_of_two_runs_where_only_torch_and_timm_are_installed(command, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    shared = command(mix("pair"), mix("each", "serial", purpose="solo"))
    code, said = shared.finish(*SHORT, PYTHONPATH=str(tmp_path))
    assert code == 0, said
    pair, first, second = read_runs(shared.out)
    assert (pair.id, first.id, second.id) == ("pair", "each.1", "each.2")
    assert pair.ok
    assert [len(tenant.windows) for tenant in pair.tenants] == [3, 3]
    assert all(tenant.memory.allocated_mib > 0 for tenant in pair.tenants)
    assert all(len(tenant.cores) == 1 for tenant in pair.tenants)
    assert (pair.mps_clients, pair.power_w, pair.counters) == (0, None, None)
    assert [tenant.workload.name for tenant in first.tenants] == ["mlp-toy-bs32"]
    assert pair.provenance.command.startswith("python -m advisor.collocation plans.json --out")
    assert "1/3 pair naive x2" in said
    shared.assert_nothing_is_left()

    again_code, again = shared.finish(*SHORT)
    assert again_code == 2
    assert "--resume" in again
    assert shared.finish("--resume", *SHORT)[0] == 0
    assert len(read_runs(shared.out)) == 3


def test_a_run_that_would_pass_the_deadline_is_not_begun(command):
    late = command(mix("a"))
    code, said = late.finish("--deadline", "1")
    assert code == 0
    assert "1 run left at the deadline" in said
    assert late.runs() == []


def test_a_tenant_killed_in_the_middle_is_an_outcome_and_the_other_is_recorded(command):
    shared = command(mix("pair"))
    process = shared.start("--settle", "2", "--window", "0.3")
    victim = shared.wait_for_tenants(2)[0]
    os.kill(victim, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 0
    (run,) = read_runs(shared.out)
    outcomes = sorted((tenant.outcome, tenant.detail) for tenant in run.tenants)
    assert outcomes == [("died", "killed by SIGKILL"), ("ok", None)]
    assert not run.ok
    shared.assert_nothing_is_left()


@pytest.mark.parametrize("how", [
    signal.SIGINT,
    pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive),
    pytest.param(signal.SIGKILL, marks=pytest.mark.exhaustive),
])  # fmt: skip
def test_however_the_command_is_ended_nothing_of_it_stays(command, how):
    shared = command(mix("pair"))
    process = shared.start(*LONG)
    shared.wait_for_tenants(2)
    process.send_signal(how)
    code = process.wait(PATIENCE_S)
    assert code == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    shared.assert_nothing_is_left()


@pytest.mark.exhaustive
def test_a_supervisor_that_is_killed_takes_all_with_it_and_is_swept_up_after(command):
    shared = command(mix("pair"))
    process = shared.start(*LONG)
    shared.wait_for_tenants(2)
    (supervisor,) = [
        pid
        for pid in shared.processes()
        if b"-m\0advisor.measure.process\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(supervisor, signal.SIGKILL)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1
    assert "killed by SIGKILL" in said
    shared.assert_nothing_is_left()


def refused_here(shared, words, capsys):
    """Of what `shared` would run; nothing is started."""
    return refused(main, [shared.plans, "--out", shared.out, "--device", "cpu", *words], capsys)


def test_plans_for_a_gpu_are_not_run_on_a_cpu(command):
    code, said = command(mix("a"), gpu="h200-141gb").finish()
    assert code == 2
    assert "error: " in said
    assert "this device is cpu" in said


def test_a_cpu_is_not_shared_by_mps(command, capsys):
    code, said = refused_here(command(mix("a", "mps")), (), capsys)
    assert code == 2
    assert "plans[0]: a CPU is not shared by MPS" in said


@pytest.mark.parametrize("words", [("--windows", "0"), ("--window", "nan"), ("--cores", "x")])
def test_numbers_that_cannot_be_meant_are_wrong_use(command, words, capsys):
    assert refused_here(command(mix("a")), words, capsys)[0] == 2


def test_runs_are_not_added_to_a_file_of_something_else(command, capsys):
    wrong = command(mix("a"))
    wrong.out.write_text(json.dumps({"id": "x"}) + "\nno json\n")
    code, said = refused_here(wrong, ("--resume",), capsys)
    assert code == 2
    assert "runs.jsonl:2" in said
