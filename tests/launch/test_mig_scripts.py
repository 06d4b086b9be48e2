"""Exported scripts of plans on MIG, and of several GPUs, run by bash among stand-ins."""

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

from tests.handed import JOBS, handed, on_gpus, write
from tests.launch.scripts_on_machine import begun, ended, left_on, seen
from tests.waiting import PATIENCE_S

DIVIDED = handed("mig=4g.71gb/ci=2c[1]+2c[2]/mps+3g.71gb[3]", JOBS)
OTHERS_INSTANCE = (15, 6)  # next to ours


def devices():
    return {line.split()[0]: line.split()[1] for line in seen()}


def test_each_job_sees_its_own_device_and_nothing_is_left(machine):
    machine.put(*OTHERS_INSTANCE)
    before = machine.layout()
    assert ended(machine, handed("mig=4g.71gb@0/ci=2c[1]+2c[2]/mps+2g.35gb@4[3]", JOBS)) == (0, "")
    assert len(set(devices().values())) == 3
    assert machine.layout() == before
    assert machine.daemons == {}


def test_instances_that_the_caller_names_are_used_as_they_are_without_root(machine):
    machine.put(5, 0)
    machine.put(9, 4)
    Path("sudo").write_text("#!/bin/bash\nexit 1\n")
    plan = handed("mig=4g.71gb[1]+3g.71gb[2];mig=4g.71gb[3]", JOBS)
    named = {"MIG_1": "MIG-1-0", "MIG_2": "MIG-2-0", "MIG_3": "MIG-1-0"}
    running = begun(machine, plan, **named)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert machine.changes == []
    assert sorted(devices().values()) == ["MIG-1-0", "MIG-1-0", "MIG-2-0"]


def test_jobs_in_line_have_their_instance_one_after_another(machine):
    plan = handed("mig=4g.71gb[3,1]/serial+3g.71gb[2,4]/serial", (*JOBS, JOBS[0]))
    assert ended(machine, plan) == (0, "")
    assert len(seen()) == 4
    assert len(set(devices().values())) == 2
    assert machine.layout() == []
    plan = handed("mig=4g.71gb[3,1]/serial+3g.71gb[2,4]/serial", (*JOBS, JOBS[0]))
    running = begun(machine, plan, ENDLESS="1")
    while len(seen()) < 6:
        assert running.poll() is None
    running.terminate()
    running.communicate(timeout=PATIENCE_S)
    assert len(seen()) == 6, "no job starts after the script was asked to end"
    assert left_on(machine, "Enabled", Path.cwd()) == {}


def test_each_group_has_instances_of_its_own_and_mig_mode_is_as_before(machine):
    plan = handed("mig=4g.71gb[1]+3g.71gb[2];mig=7g.141gb[3];serial[4]", (*JOBS, JOBS[0]))
    assert ended(machine, plan) == (0, "")
    assert len(seen()) == 4
    assert machine.layout() == []
    assert machine.mode == ["Enabled", "Enabled"]


def test_mig_mode_must_be_on_and_stay_on_and_is_not_switched(machine):
    for mode in (("Disabled", "Disabled"), ("Enabled", "Disabled"), ("[N/A]", "[N/A]")):
        machine.mode = list(mode)
        code, said = ended(machine, DIVIDED)
        assert code == 1
        assert f"{', '.join(mode)}. It must be Enabled" in said
        assert "sudo nvidia-smi -i 0 -mig 1" in said
    assert not seen()
    assert not [call for call in machine.calls if "-mig" in call.split()]


def test_a_second_run_meanwhile_is_refused_and_harms_nothing(machine):
    first = begun(machine, DIVIDED, ENDLESS="yes")
    try:
        while len(seen()) < 3:
            assert first.poll() is None
        layout = machine.layout()
        second = begun(machine, DIVIDED)
        assert "another script runs" in second.communicate(timeout=PATIENCE_S)[1]
        assert second.returncode == 1
        assert machine.layout() == layout
    finally:
        os.killpg(first.pid, signal.SIGINT)
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130
    assert not machine.quit_too_early
    assert machine.layout() == []
    assert machine.daemons == {}


SEVERAL = on_gpus(
    ("mps=43,57", JOBS[:2], 350.0),
    ("mig=4g.71gb[1]+3g.71gb[2,3]/mps", JOBS),
    None,
    ("naive", JOBS[:1]),
    numbers=[(2, 5), (1, 4, 6), None, (3,)],
)


def on_several(machine):
    """What bash says of plans for three GPUs of a host, of which the second is in MIG mode."""
    machine.index = 1
    text = write("commands", SEVERAL)
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)


def test_on_several_gpus_each_job_sees_its_own_and_all_are_waited_for(machine):
    done = on_several(machine)
    assert (done.returncode, done.stderr) == (0, "")
    # CUDA counts GPUs without the one in MIG mode: only a client of MPS names its GPU by number.
    saw = Counter(line.split()[1] for line in seen())
    assert sorted(saw.values()) == [1, 1, 2, 2]
    assert (saw["0"], saw[machine.others[3]]) == (2, 1)
    caps = [call.split()[1:] for call in machine.calls if "--power-limit" in call]
    assert caps == [[machine.others[0], f"--power-limit={w}"] for w in ("350.00", "500.00")]
    assert (machine.layout(), machine.daemons) == ([], {})
    Path("seen").unlink()
    machine.mode = ["Disabled", "Disabled"]
    done = on_several(machine)
    assert (done.returncode, "GPU 1: MIG mode" in done.stderr) == (1, True), "it stops alone"
    assert len(seen()) == 3
    assert machine.daemons == {}
