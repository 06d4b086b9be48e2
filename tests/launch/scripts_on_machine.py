"""Exported scripts among the stand-ins of `SmiMachine`, whose jobs write down their device."""

import os
import subprocess
from pathlib import Path

from tests.handed import write
from tests.waiting import PATIENCE_S

DEVICE_JOB = """\
#!/bin/bash
echo "${0##*/} $CUDA_VISIBLE_DEVICES" >> seen
[ -z "${ENDLESS-}" ] || exec sleep 600
"""


def begun(machine, plan, **variables):
    """A running script of a plan, or of the plans of several GPUs."""
    Path("plan.sh").write_text(write("commands", plan))
    return running_script(machine, **variables)


def running_script(machine, *words, **variables):
    # A shell cannot trap what its caller ignores, and who runs tests in the background does.
    heeding = ["env", "--default-signal=INT,TERM", "bash", "plan.sh", *words]
    running = subprocess.Popen(
        heeding,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    machine.script = running.pid
    return running


def ended(machine, plan):
    """The exit code and stderr of a run; once the jobs of one before have ended."""
    while True:
        running = begun(machine, plan)
        _, said = running.communicate(timeout=PATIENCE_S)
        if "jobs of a killed script go on" not in said or "Not all is undone" in said:
            return running.returncode, said


def seen():
    return sorted(Path("seen").read_text().split("\n")[:-1]) if Path("seen").exists() else []


def left_on(machine, mode, folder):
    """The changes that a script in `folder` left behind, whose GPUs were in MIG mode, or not."""
    uuids = (machine.uuid, *machine.others)
    pipes = [each for uuid in uuids for each in Path("/tmp").glob(f"advisor-mps-*{uuid}*")]
    states = (folder / "state").rglob("gpus/*.sh*")
    own = {
        "instances": machine.layout(),
        "daemons": list(machine.daemons),
        "power limit": sorted(set(machine.caps_w.values()) - {500.0}),
        "MIG mode": machine.mode != [mode] * 2,
        "pipes": list(map(str, pipes)),
        "state": [each.name for each in states if each.suffix != ".lock"],
    }
    return {what: there for what, there in own.items() if there}
