"""Programs whose steps nobody finds, and what a thread in them answers meanwhile."""

import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

import pytest

from advisor.measure.process.tenant_handle import Ended
from advisor.measure.process.tenants import tenants_on
from advisor.measure.process.worker import TenantSetup
from advisor.workload.spec import Script, Workload
from tests.measure.process.odd_verbs import odd_verbs
from tests.waiting import PATIENCE_S

PRINTS = "import time\nwhile True: time.sleep(0.01); print('rate 400 examples/s')"
CORES = tuple(sorted(os.sched_getaffinity(0)))


@contextmanager
def running(tmp_path, *command):
    """A program that prints its rate, and runs."""
    script = Script(command=command, folder=str(tmp_path), throughput="rate ([0-9]+)")
    asked = Workload(name="it", source="script", model="it", family="it", batch=4, script=script)
    with (
        TemporaryDirectory() as folder,
        tenants_on([TenantSetup("cpu", CORES, {}, script)], Path(folder), odd_verbs) as (tenant,),
    ):
        assert not isinstance(tenant.ask("load", PATIENCE_S, workload=asked), Ended)
        yield tenant


def test_a_program_that_imports_torch_is_asked_while_it_goes_on(tmp_path):
    with running(tmp_path, "python", "-c", f"import torch\n{PRINTS}") as tenant:
        assert tenant.ask("echo", PATIENCE_S, word="there") == {"word": "there", "device": "cpu"}
        answer = tenant.ask("run", PATIENCE_S, start_at=time(), stop_at=time() + 0.2)
        assert len(answer["completed_at"]) >= 3


def test_of_several_processes_the_first_that_has_something_to_say_answers(tmp_path):
    (tmp_path / "child.py").write_text("import torch, time\ntime.sleep(600)")
    starts = "import subprocess, sys, torch\nsubprocess.Popen([sys.executable, 'child.py'])\n"
    with running(tmp_path, "python", "-c", starts + PRINTS) as tenant:
        assert tenant.ask("echo", PATIENCE_S, word="one")["word"] == "one"


@pytest.mark.parametrize("command", [("python", "-c", PRINTS), ("sh", "-c", "exec yes rate 400")])
def test_a_program_without_torch_has_nothing_to_say(tmp_path, command):
    with running(tmp_path, *command) as tenant:
        assert tenant.ask("echo", PATIENCE_S, word="there") == {}


def test_a_program_that_dies_of_a_request_is_said_to_have_died(tmp_path):
    with running(tmp_path, "python", "-c", f"import torch\n{PRINTS}") as tenant:
        ended = tenant.ask("kill", PATIENCE_S)
        assert isinstance(ended, Ended)
        assert "was killed by SIGKILL" in ended.detail


def test_figures_of_a_progress_bar_are_found_where_it_writes_over_them(tmp_path):
    bar = "import time\nwhile True: time.sleep(0.01); print('\\rrate 400 of', end='', flush=True)"
    with running(tmp_path, "python", "-c", bar) as tenant:
        answer = tenant.ask("run", PATIENCE_S, start_at=time(), stop_at=time() + 0.2)
        assert len(answer["completed_at"]) >= 3


def test_a_program_that_prints_no_more_has_no_pace(tmp_path):
    prints = "import time\nfor _ in range(9): time.sleep(0.01); print('rate 400')\ntime.sleep(600)"
    with running(tmp_path, "python", "-c", prints) as tenant:
        ended = tenant.ask("run", timeout_s=0.1, start_at=time(), stop_at=time() + 0.3)
        assert isinstance(ended, Ended)
        assert "python printed no figure of its pace for" in ended.detail
