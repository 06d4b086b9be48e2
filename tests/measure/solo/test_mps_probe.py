"""A script as the client of MPS that a profile describes, on the CPU: real processes, no daemon."""

import os
from types import SimpleNamespace

import pytest

from advisor.measure.process.claimed_device import Device
from advisor.measure.process.mps_session import MpsSession
from advisor.measure.solo import mps_probe as probing
from advisor.measure.solo.mps_probe import LIMITS_PCT, ProbedJob, mps_probe
from advisor.measure.solo.solo_pace import Stopwatch
from advisor.workload.spec import Script, Workload

CORES = tuple(sorted(os.sched_getaffinity(0)))

# Each process says when it starts and when it ends; `CLAIM` is what no two can have at once.
TRAINS = """
import atexit, os, torch
from pathlib import Path
def note(what):
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(what + "\\n")
claim = os.environ.get("CLAIM")
if claim:
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        raise SystemExit("address already in use")
    atexit.register(os.remove, claim)
note("starts")
atexit.register(note, "ends")
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.sum().backward()
    optimizer.step()
"""


class NoDaemon(MpsSession):
    """The session of a CPU, whose contexts have as many SMs as their limit leaves an H200."""

    def __init__(self, folder):
        super().__init__(Device("cpu", None, "h200-141gb", "NVIDIA H200", None), folder)

    def switch_to(self, sharing):
        pass

    def proved_clients(self, sharing, pids):
        assert sharing.under_mps
        assert len(set(pids)) == len(pids)
        return len(pids)

    def close(self):
        pass


@pytest.fixture
def probed(tmp_path, monkeypatch):
    """Probes a script that holds so much memory; the probe, and who started and ended when."""
    monkeypatch.setattr(probing, "LimitedRun", lambda pct, _, windows: run_of(pct, windows))
    monkeypatch.setattr(probing, "_TIMING", probing.Timing(0.0, 0.02, 3, 0.01, 0.1))

    def probed(held_mib, **environment):
        notes = tmp_path / "notes"
        environment |= {"NOTES": str(notes)}
        script = Script(
            command=("python", "-c", TRAINS), folder=str(tmp_path), environment=environment
        )
        task = Workload(name="it", source="script", model="it", family="it", batch=1,
                        script=script)  # fmt: skip
        job = ProbedJob(workload=task, cores=CORES[:1], starting_cores=CORES, step_s=0.001,
                        held_mib=held_mib)  # fmt: skip
        found = mps_probe(job, NoDaemon(tmp_path), Stopwatch())
        return found, notes.read_text().split()

    return probed


def run_of(limit_pct, windows):
    return SimpleNamespace(limit_pct=limit_pct, sms=0, step_s=0.001, windows=windows)


def test_a_script_is_started_for_all_limits_at_once(probed):
    found, notes = probed(held_mib=1000.0)
    assert found.unlimited.limit_pct == 100
    assert tuple(run.limit_pct for run in found.limited) == LIMITS_PCT
    assert notes[:4] == ["starts"] * 4
    assert {*notes[4:]} == {"ends"}, "on a busy machine one may be ended by force, and say nothing"


@pytest.fixture
def one_limit(monkeypatch):
    """Fewer processes, where each waits for the one before it."""
    monkeypatch.setattr(probing, "LIMITS_PCT", LIMITS_PCT[-1:])
    return LIMITS_PCT[-1:]


@pytest.mark.parametrize("held_mib", [80_000.0, None])
def test_one_that_would_not_fit_so_often_is_started_for_each_limit_in_turn(
    held_mib, one_limit, probed
):
    found, notes = probed(held_mib)
    assert tuple(run.limit_pct for run in found.limited) == one_limit
    assert notes == ["starts", "ends"] * 2


def test_one_that_cannot_run_twice_is_started_for_each_limit_in_turn(
    one_limit, probed, tmp_path, capsys
):
    found, notes = probed(1000.0, CLAIM=str(tmp_path / "claimed"))
    assert tuple(run.limit_pct for run in found.limited) == one_limit
    assert notes[-4:] == ["starts", "ends"] * 2
    said = capsys.readouterr().err
    assert "address already in use; under MPS, its processes are started one after another" in said
