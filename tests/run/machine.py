"""Plans of small scripts, and a machine for them: nvidia-smi and MPS as stand-ins."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from advisor.launch.launch_plan import launch_plan
from advisor.measure.device import Device
from advisor.measure.process import processes_of
from advisor.run import start as runner
from advisor.run import watch as watching
from advisor.workload.job import Job
from advisor.workload.spec import Script
from tests.handed import H200, RESNET, predicted
from tests.launch.smi_stand_in import SmiMachine
from tests.waiting import until

FOREVER = "touch up-$ADVISOR_JOB; exec sleep 600"
QUICK = "touch up-$ADVISOR_JOB; echo it ran"


def job(code, name="job", **more):
    """A job of a bash program; `more` are fields of its `Script`."""
    command = ("bash", "-c", code) if isinstance(code, str) else tuple(code)
    script = Script(command=command, folder=os.getcwd(), **more)  # noqa: PTH109
    own = replace(
        RESNET.profile.workload, name=name, script=script, examples_per_epoch=6400, batch=1
    )
    return Job(replace(RESNET.profile, workload=own, cores=(0,)))


def prepared(sharing, *jobs, cap_w=None):
    """The plan of those jobs, or of bash programs, as `plan_file.prepare` makes it."""
    every = [each if isinstance(each, Job) else job(each) for each in jobs]
    return launch_plan(every, H200, predicted(sharing, every, cap_w=cap_w))


class Watcher:
    """Keeps what a watcher says and shows."""

    def __init__(self, **terms):
        self.terms = terms
        self.said, self.shown = [], []

    def watch(self, *folders):
        say = self.said.append
        watchers = [watching.Watcher(each, say, **self.terms) for each in folders]
        return watching.watch(watchers, say=say, show=self.shown.extend)

    @property
    def states(self):
        return [each.state for each in self.shown[-1].jobs]


def started(plan, device="cpu", **terms):
    return runner.start(plan, device, runner.StartTerms(**{"grace_s": 3, **terms}))


def up(*numbers):
    """Wait until these jobs run."""
    until(lambda: all(Path(f"up-{number}").exists() for number in numbers))


def command(*words, **settings):
    """The `advisor` command in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "advisor", *map(str, words)], **settings)


def living(folder):
    """Processes of the run, its script too."""
    return processes_of("ADVISOR_RUN", str(folder))


def kill_script(folder):
    os.kill(runner.events_in(folder).script, 9)
    until(lambda: not runner.script_lives(folder))


def put_on_path(monkeypatch, folder):
    """A GPU of its own UUID, which `start` and the scripts see; its machine and server."""
    uuid = f"GPU-{uuid4()}"
    machine = SmiMachine(uuid=uuid)
    (folder / "sudo").write_text('#!/bin/bash\nexec "$@"\n')
    (folder / "sudo").chmod(0o755)
    server = machine.install(folder)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    found = Device("cuda", uuid, H200.key, "NVIDIA H200", "580")
    for module in (runner, watching):
        monkeypatch.setattr(module, "find_device", lambda *_, **__: found)
    monkeypatch.setattr(runner, "refuse_busy", lambda _: None)
    monkeypatch.setattr(watching, "Meter", lambda _: None)
    return machine, server


def nothing_left():
    return not list(runner.left_states())
