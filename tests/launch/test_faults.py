"""Exported scripts that fail, are interrupted or killed at any call they make: nothing is left."""

import signal
from pathlib import Path

import pytest

from tests.handed import JOBS, handed
from tests.launch.scripts_on_machine import begun, ended, seen
from tests.waiting import PATIENCE_S

# Plan, and MIG mode before it.
PLANS = {
    "mps": (handed("mps=43,57.5"), "Disabled"),
    "power cap": (handed("naive", cap_w=350.0), "Disabled"),
    "mps under a power cap": (handed("mps[1,2];serial[3]", JOBS, cap_w=350.0), "Disabled"),
    "compute instances": (
        handed("mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3]", JOBS), "Enabled"
    ),
    "MIG mode on": (handed("naive[1];mig=4g.71gb[2]+3g.71gb[3]", JOBS), "Disabled"),
    "MIG mode off": (handed("mig=4g.71gb[2]+3g.71gb[3];mps[1]", JOBS), "Enabled"),
}  # fmt: skip
HOWS = ("fails", "worked", "lies", "int")
# Each plan with each fault takes minutes; without MIG, every call takes seconds.
QUICK = {("compute instances", "fails"), ("MIG mode on", "lies")}
EVERY_CALL = ("mps", "power cap")
WHICH = [
    pytest.param(
        name, how, id=f"{name}-{how}",
        marks=[] if name in EVERY_CALL or (name, how) in QUICK else [pytest.mark.exhaustive],
    )
    for name in PLANS for how in HOWS
]  # fmt: skip
KILLED = [
    pytest.param(name, marks=[pytest.mark.exhaustive] if "compute" in name or "of" in name else [])
    for name in PLANS
]


def left(machine, mode):
    """The changes that a script left behind."""
    own = {
        "instances": machine.layout(), "daemons": machine.daemons,
        "power limit": machine.cap_w != 500.0, "MIG mode": machine.mode != [mode] * 2,
        "pipes": list(Path("/tmp").glob(f"advisor-mps-*{machine.uuid}*")),
        "state": list(Path("state").rglob("*.sh")),
    }  # fmt: skip
    return {what: there for what, there in own.items() if there}


def calls_of(machine, name):
    """The numbers of calls of a run without a fault: of all, or of those that change something."""
    plan, mode = PLANS[name]
    machine.mode = [mode] * 2
    assert ended(machine, plan) == (0, "")
    assert left(machine, mode) == {}
    return list(range(len(machine.calls)) if name in EVERY_CALL else machine.changes)


@pytest.mark.parametrize(("name", "how"), WHICH)
def test_whatever_call_fails_lies_or_is_interrupted_nothing_is_left(machine, name, how):
    plan, mode = PLANS[name]
    for at in calls_of(machine, name):
        machine.calls.clear()
        machine.fault = (at, how)
        Path("seen").unlink(missing_ok=True)
        code, said = ended(machine, plan)
        assert left(machine, mode) == {}, (at, said)
        if len(seen()) < len(plan.starts):
            assert code != 0, (at, said)
        if how == "int" and len(seen()) < len(plan.starts):
            # Two calls find the GPU before the traps: there the signal itself ends the shell.
            assert code in ((-signal.SIGINT, 130) if at < 2 else (130,)), (at, said)


@pytest.mark.parametrize("name", KILLED)
def test_what_a_script_left_that_was_killed_at_any_change_is_undone_by_the_next(machine, name):
    plan, mode = PLANS[name]
    dirty = 0
    for at in calls_of(machine, name):
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


@pytest.mark.parametrize(
    ("name", "call", "what"),
    [("power cap", "--power-limit=500.00", "power limit"), ("mps", "quit", "daemons"),
     ("MIG mode on", "-mig 0", "MIG mode"), ("MIG mode off", "-mig 1", "MIG mode")],
)  # fmt: skip
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
