"""The drill of ``benchmarks/fault_drill.py`` with stand-ins for a GPU and MPS."""

import os
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.measure.execution import gpu_stand_in
from tests.measure.process import mps_stand_in

QUICK = ("tenant killed", "MPS server killed", "two advisors on one GPU")
LONGER = (
    "out of memory", "hanging", "forking", "ignoring SIGTERM", "terminate_client first",
    "advisor killed", "advisor killed, then watched again", "disk full", "read-only folder",
    "clock stepping",
)  # fmt: skip


@pytest.fixture
def drill(monkeypatch, tmp_path):
    mps_stand_in.install(tmp_path)
    benchmarks = Path(__file__).parents[3] / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(gpu_stand_in.UUID, f"GPU-{uuid4()}")
    monkeypatch.setenv("DRILL_STAND_IN", gpu_stand_in.__name__)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(benchmarks.parent), *sys.path]))
    import fault_drill

    return fault_drill


def kept(drill, fault):
    found = drill.tried(fault, "0", "mps", gpu_stand_in.__name__)
    assert found.kept, found


@pytest.mark.parametrize("fault", QUICK)
def test_what_is_promised_of_a_fault_is_kept(drill, fault):
    kept(drill, fault)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", LONGER)
def test_what_is_promised_of_any_fault_is_kept(drill, fault):
    kept(drill, fault)


def test_every_fault_is_drilled_here(drill):
    assert {*QUICK, *LONGER} == set(drill.FAULTS)
