"""Host checks: by the script's own Python, in processes of their own, kept for ten minutes."""

import os
import shlex
import sys
from dataclasses import asdict, replace
from json import dumps
from platform import node
from time import time

import pytest

from advisor.hardware.machine import recent_host_check
from advisor.measure import device
from advisor.measure.device import check_host
from advisor.workload.spec import Script, python_of
from tests.lean import LEAN_PATH
from tests.measure.calibrate import recorded


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "advisor" / "host"


@pytest.fixture
def without_torch(monkeypatch):
    """The environment of the advisor has no torch."""
    monkeypatch.setattr(device, "find_spec", lambda _: None)


@pytest.fixture
def python(tmp_path):
    """A Python of another environment, which has torch."""
    path = tmp_path / "env/bin/python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\ntouch {path.parent}/used\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(
    "program",
    ["env/bin/python", pytest.param("env/bin/torchrun", marks=pytest.mark.exhaustive)],
)
def test_the_python_of_the_script_checks_the_host_by_as_many_processes_as_it_has_cores(
    program, python, tmp_path, monkeypatch
):
    script = Script(command=("env", "A=1", program, "train.py"), folder=str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", LEAN_PATH)
    assert recent_host_check() is None
    check = check_host(10**6, script, pytest.fail)
    assert check.check_s > 0
    assert check.busy == check.cores == len(os.sched_getaffinity(0))
    assert recent_host_check() == check
    assert (python.parent / "used").exists()


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("~/env/bin/python train.py", "~/env/bin/python"),
        ("nice -n 5 python3.11 -m train", "python3.11"),
        ("/env/bin/accelerate launch train.py", "/env/bin/python"),
        ("torchrun --nproc_per_node 1 train.py", "python"),
        ("./train.py --with python", None),
        ("uv run python train.py", None),
        ("docker run image python train.py", None),
        ("bash -c 'python train.py'", None),
        ("make train", None),
    ],
)
def test_a_command_names_the_python_of_its_script_or_leaves_it_to_another_program(line, python):
    assert python_of(shlex.split(line)) == python


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({}, True),
        ({"made_at": time() - 3600}, False),
        ({"host": "another"}, False),
        ({"check_s": -1.0}, False),
    ],
)
def test_a_check_counts_on_its_own_host_for_ten_minutes(changes, counts, cache):
    check = replace(recorded.host_check(), host=node(), made_at=time())
    cache.mkdir(parents=True)
    (cache / f"{node()}.json").write_text(dumps(asdict(check) | changes))
    assert (recent_host_check() == check) == counts


@pytest.mark.usefixtures("without_torch", "python")
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (None, "no job names"),
        (("bash", "run.sh"), "`bash run.sh`"),
        (("env/bin/python", "train.py"), "no such package"),
        (("/gone/bin/python", "train.py"), "/gone/bin/python"),
    ],
)
def test_a_check_that_fails_is_reported_in_a_line(command, why, tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise ImportError('no such package')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    script = None if command is None else Script(command=command, folder=str(tmp_path))
    lines = []
    assert check_host(1, script, lines.append) is None
    assert [line.count(why) for line in lines] == [1]
