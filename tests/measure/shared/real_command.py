"""Commands that measure, as a user starts them, and all processes that come of them."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from tests.lean import LEAN_PATH
from tests.waiting import PATIENCE_S, until


class Started:
    """A command, started as often as a test likes; all that comes of it bears its mark.

    Args:
        folder: For its files; a short path, since sockets go there.
        words: Of the command, after the interpreter's own.
    """

    def __init__(self, folder, *words):
        self.folder = Path(folder)
        self.temporary = self.folder / "t"
        self.temporary.mkdir(exist_ok=True)
        self._words = words
        self._started = []
        self._mark = f"ADVISOR_TEST_MARK={uuid4()}"

    def start(self, *words, stdin=None, stdout=None, **environment):
        """The process, begun; its stderr is a pipe."""
        name, value = self._mark.split("=")
        process = subprocess.Popen(
            [sys.executable, *self._words, *words],
            env=os.environ
            | {name: value, "TMPDIR": str(self.temporary), "PYTHONPATH": LEAN_PATH}
            | environment,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def finish(self, *words, **environment):
        """Run to the end: exit code and what it said."""
        process = self.start(*words, **environment)
        said = process.communicate(timeout=PATIENCE_S)[1]
        return process.returncode, said

    def processes(self):
        """The pids of all that came of it and still live."""
        folders = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
        return {int(path.name) for path in folders if self._is_ours(path)}

    def tenants(self):
        """The pids of its tenants: commands of the zoo."""
        return sorted(pid for pid in self.processes() if "advisor.zoo" in _words_of(pid))

    def wait_for_tenants(self, count):
        """Wait until `count` tenants live."""
        until(lambda: len(self.tenants()) >= count)
        return self.tenants()

    def assert_nothing_is_left(self):
        """See that every process, folder and lock is gone."""
        until(lambda: not self.processes())
        assert list(self.temporary.iterdir()) == []

    def clear(self):
        """End what a failed test left."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
            process.stderr.close()

    def _is_ours(self, path):
        with suppress(OSError):
            zombie = path.joinpath("stat").read_text().rpartition(")")[2].split()[0] == "Z"
            return not zombie and self._mark.encode() in path.joinpath("environ").read_bytes()
        return False


class Command(Started):
    """``advisor runs``.

    Args:
        folder: As `Started` has it.
        plans: What to run, on the CPU.
    """

    def __init__(self, folder, *plans, gpu="cpu"):
        self.plans, self.out = Path(folder) / "plans.json", Path(folder) / "runs.jsonl"
        self.plans.write_text(json.dumps({"schema": 1, "gpu": gpu, "plans": plans}))
        words = ("-m", "advisor", "runs", self.plans, "--out", self.out, "--device", "cpu")
        super().__init__(folder, *words)

    def runs(self):
        """What was recorded."""
        if not self.out.exists():
            return []
        return [json.loads(line) for line in self.out.read_text().splitlines()]


def _words_of(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
