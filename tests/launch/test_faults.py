"""Exported scripts that fail, are interrupted or killed at any call they make: nothing is left."""

import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.handed import JOBS, handed, on_gpus, write
from tests.launch.scripts_on_machine import begun, ended, left_on, running_script, seen
from tests.waiting import PATIENCE_S, until

# Plan, and MIG mode before it.
PLANS = {
    "naive": (handed("naive"), "Disabled"),
    "mps": (handed("mps"), "Disabled"),
    "limits": (handed("mps=43,57.5"), "Disabled"),
    "queue": (handed("mps/2[3,1,2]", JOBS), "Disabled"),
    "groups": (handed("mps[1,2];serial[3]", JOBS), "Disabled"),
    "power cap": (handed("mps[1,2];serial[3]", JOBS, cap_w=350.0), "Disabled"),
    "several GPUs": (
        on_gpus(("mps", JOBS[:2], 350.0), ("naive", JOBS[2:], 300.0)),
        "Disabled",
    ),
    "an instance": (handed("mig=7g.141gb", JOBS[:1]), "Enabled"),
    "instances": (handed("mig=4g.71gb[1]+3g.71gb[2,3]/mps", JOBS), "Enabled"),
    "compute instances": (handed("mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3]", JOBS), "Enabled"),
    "MIG mode on": (handed("naive[1];mig=4g.71gb[2]+3g.71gb[3]", JOBS), "Disabled"),
    "MIG mode off": (handed("mig=4g.71gb[2]+3g.71gb[3];mps[1]", JOBS), "Enabled"),
}
# All that these change, compute instances, a power cap and the end of MIG mode change, too.
ALSO_IN_OTHERS = ("limits", "instances", "MIG mode on", "groups", "an instance", "several GPUs")
IN_BRIEF = [name for name in PLANS if name not in ALSO_IN_OTHERS]
HOWS = ("fails", "worked", "lies", "int", "term")
STATUS = {"int": 130, "term": 143}


left = partial(left_on, folder=Path())


def faultless(machine, name):
    """The plan and the mode before it, once a run of it has made its calls."""
    plan, mode = PLANS[name]
    machine.mode = [mode] * 2
    assert ended(machine, plan) == (0, "")
    assert left(machine, mode) == {}
    return plan, mode


@pytest.mark.parametrize(
    ("name", "turn", "step"),
    [
        *((name, 0, 7 if "MIG" in name or "instances" in name else 4) for name in IN_BRIEF),
        *(
            pytest.param(name, turn, 1, marks=pytest.mark.exhaustive)
            for name in PLANS
            for turn in range(len(HOWS))
        ),
    ],
)
def test_whatever_call_fails_lies_or_is_interrupted_nothing_is_left(machine, name, turn, step):
    plan, mode = faultless(machine, name)
    all_seen = len(seen())
    for at in range(0, len(machine.calls), step):
        how = HOWS[(at + turn) % len(HOWS)]
        machine.calls.clear()
        machine.fault = (at, how)
        Path("seen").unlink(missing_ok=True)
        code, said = ended(machine, plan)
        assert left(machine, mode) == {}, (at, how, said)
        if len(seen()) < all_seen:
            assert code != 0, (at, how, said)
            if how in STATUS:
                # Calls before the traps find the GPU: there the signal itself ends the shell.
                own = (STATUS[how], -getattr(signal, f"SIG{how.upper()}"))
                assert code in own, (at, how, said)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in ALSO_IN_OTHERS else [])
        for name in PLANS
    ],
)
def test_whoever_ends_a_script_while_jobs_run_nothing_is_left(machine, name):
    plan, mode = PLANS[name]
    machine.mode = [mode] * 2
    for number in (signal.SIGINT, signal.SIGTERM):
        Path("seen").unlink(missing_ok=True)
        running = begun(machine, plan, ENDLESS="yes")
        until(seen)
        running.send_signal(number)
        _, said = running.communicate(timeout=PATIENCE_S)
        assert (running.returncode, left(machine, mode)) == (128 + number, {}), said
        assert not machine.quit_too_early


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[] if name in ("power cap", "an instance") else [pytest.mark.exhaustive]
        )
        for name in PLANS
        if name not in ("naive", "several GPUs")
    ],
)
def test_what_a_script_left_that_was_killed_at_any_change_is_undone_by_the_next(machine, name):
    plan, mode = faultless(machine, name)
    dirty = 0
    for at in machine.changes:
        machine.calls.clear()
        machine.fault = (at, "kill")
        running = begun(machine, plan)
        running.communicate(timeout=PATIENCE_S)
        assert running.returncode == -signal.SIGKILL
        dirty += bool(left(machine, mode))
        machine.fault = None
        assert ended(machine, handed("naive" if mode == "Disabled" else "mig=7g.141gb")) == (0, "")
        assert left(machine, mode) == {}, at
    assert dirty > 1


def test_what_a_killed_shell_of_one_gpu_changed_is_undone_while_the_jobs_of_others_go_on(machine):
    plan, mode = PLANS["several GPUs"]
    machine.mode = [mode] * 2
    running = begun(machine, plan, ENDLESS="yes")
    until(lambda: len(seen()) == 3)
    shells = []
    for each in psutil.Process(running.pid).children():
        with suppress(psutil.NoSuchProcess):  # what a shell runs for a moment
            shells += [each] if "plan.sh" in each.cmdline() else []
    min(shells, key=lambda each: each.pid).kill()
    until(lambda: machine.cap_w == 500.0 and not machine.daemons)
    assert set(machine.caps_w.values()) == {500.0, 300.0}
    running.terminate()
    running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, left(machine, mode)) == (143, {})


@pytest.mark.parametrize(
    ("name", "call", "what"),
    [
        ("power cap", "--power-limit=500.00", "power limit"),
        ("mps", "quit", "daemons"),
        ("MIG mode on", "-mig 0", "MIG mode"),
        ("MIG mode off", "-mig 1", "MIG mode"),
    ],
)
def test_a_script_that_cannot_undo_a_change_fails_and_the_next_run_undoes_it(
    machine, name, call, what
):
    plan, mode = PLANS[name]
    machine.mode = [mode] * 2
    machine.broken = call
    code, _ = ended(machine, plan)
    assert (code != 0, what in left(machine, mode)) == (True, True)
    code, _ = ended(machine, plan)
    assert (code != 0, what in left(machine, mode)) == (True, True), "nor can the next one"
    machine.broken = None
    machine.calls.clear()
    ended(machine, plan)
    assert left(machine, mode) == {}


def test_whatever_call_of_the_mps_script_fails_it_tells_and_the_next_stop_leaves_nothing(machine):
    plan = handed("mig=4g.71gb[1]/mps+3g.71gb[2,3]/mps", JOBS)
    Path("plan.sh").write_text(write("mps", plan))

    def run(word):
        running = running_script(machine, word, MIG_1="MIG-1-0", MIG_2="MIG-2-0")
        running.communicate(timeout=PATIENCE_S)
        return running.returncode

    assert run("start") == 0
    starts = len(machine.calls)
    assert run("stop") == 0
    for at in range(0, len(machine.calls), 2):
        machine.calls.clear()
        machine.fault = (at, HOWS[at % len(HOWS)])
        code = run("start")
        assert len(machine.daemons) == (2 if code == 0 else 0), machine.fault
        if at >= starts:
            assert code == 0
            assert (run("stop") == 0) == (left(machine, "Enabled") == {}), machine.fault
        machine.fault = None
        assert run("stop") == 0
        assert left(machine, "Enabled") == {}
