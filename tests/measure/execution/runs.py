"""Runs of small scripts without a GPU, started as a user starts them."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from advisor.measure.execution.run_folder import RunFolder
from advisor.workload.plan_document import (
    DocumentedJob,
    DocumentedPlan,
    PlanDocument,
    StepRange,
)
from advisor.workload.spec import Script, Workload
from tests.measure.shared.real_command import Started
from tests.waiting import PATIENCE_S

STEPS = """
import json, os, sys, time
from pathlib import Path
progress = os.open(os.environ["ADVISOR_PROGRESS"], os.O_WRONLY)
def step(number, seconds=0.02):
    time.sleep(seconds)
    said = json.dumps({"steps": number, "at": time.monotonic()})
    os.pwrite(progress, said.encode().ljust(512), 0)
"""
"""What a script says first that counts its own steps."""

FOREVER = STEPS + "number = 0\nwhile True:\n    number += 1\n    step(number)\n"


def script(folder, name, code, **environment):
    """A script's workload; its program lies in `folder`."""
    path = Path(folder) / f"{name}.py"
    path.write_text(code)
    return Workload(
        name=name, source="script", model=name, family=name, batch=1,
        script=Script(
            command=(sys.executable, str(path)), folder=str(folder), environment=environment
        ),
    )  # fmt: skip


def document(sharing, *workloads, gpu="cpu", step_s=None, examples=1000):
    """A plan of `workloads` in their order."""
    jobs = tuple(
        DocumentedJob(
            job=each.name, examples_per_epoch=examples, epochs=1.0, validation_s=0.0,
            checkpoint_s=0.0, user=None, data_parallel=False, isolated=False, cores=None,
            mps_limit_percent=None, memory_cap_mib=None,
            step_s=None if step_s is None else StepRange(*step_s),
        )
        for each in workloads
    )  # fmt: skip
    plan = DocumentedPlan(rank=1, sharing=sharing, power_cap_w=None, note=None, jobs=jobs)
    named = {each.name: each for each in workloads}
    return PlanDocument(schema=1, gpu=gpu, objective=None, workloads=named, plans=(plan,))


def text_of(plan):
    return json.dumps(asdict(plan))


class Execution(Started):
    """``python -m advisor.execution run`` of a plan, on the CPU, in a state folder of its own."""

    def __init__(self, folder, plan):
        self.home, self.plan = Path(folder) / "state", Path(folder) / "plan.json"
        self.plan.write_text(text_of(plan))
        super().__init__(folder, "-m", "advisor.execution")

    def begin(self, *words, **environment):
        """Start the plan."""
        with (Path(self.folder) / "said").open("a") as said:
            return self.start("run", self.plan, "--device", "cpu", "--apply", *words,
                              stdout=said, **self._own(environment))  # fmt: skip

    def does(self, *words, **environment):
        """Another of the program's verbs: exit code, stdout and stderr."""
        process = self.start(*words, stdout=subprocess.PIPE, **self._own(environment))
        out, said = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, said

    def runs(self):
        """The folders of its runs."""
        found = sorted((self.home / "advisor" / "runs").glob("*"))
        return [RunFolder(path) for path in found]

    def state(self):
        return self.runs()[-1].state()

    def fates(self):
        return [job.fate for job in self.state().jobs]

    def _own(self, environment):
        return {"XDG_STATE_HOME": str(self.home)} | environment
