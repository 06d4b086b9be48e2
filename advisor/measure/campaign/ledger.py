"""The files of a campaign: what was measured by whom, and what failed."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from advisor.measure.campaign.draw import idle_twin
from advisor.measure.campaign.runner import Record, Task
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.shared.run_list import records_in
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import append_line, append_run, profile_text, write_whole


class Ledger:
    """What the folder of a campaign holds; `add` and `fail` may be called from any thread.

    Args:
        out: The folder: every ``*.jsonl`` in it holds runs.
        name: The campaign's, with which the files that it adds to begin.
        profiles: Where new profiles go.
        steadiness: Told of every run.

    Attributes:
        done: Ids of the runs in the folder.
        homes: Which runner did the busy control, by the id of its idle twin.
    """

    def __init__(self, out: Path, name: str, profiles: Path, steadiness: Steadiness) -> None:
        self._out = out
        self._name = name
        self._profiles = profiles
        self._steadiness = steadiness
        self._lock = Lock()
        self.done: set[str] = set()
        self.homes: dict[str, str] = {}
        for path in sorted(out.glob("*.jsonl")):
            for record in records_in(path):
                self.done.add(record["id"])
                steadiness.note(record)
                if record.get("purpose") == "control":
                    self.homes[idle_twin(record["id"])] = path.stem.removeprefix(f"{name}-")

    def add(self, record: Record, runner: str) -> None:
        """Write down what `runner` measured."""
        with self._lock:
            if isinstance(record, Run):
                append_run(self._out / f"{self._name}-{runner}.jsonl", record)
                self._steadiness.note(asdict(record))
            else:
                path = self._profiles / f"{record.name}.json"
                write_whole(path, profile_text(record))
                self._steadiness.learn(path)

    def fail(self, task: Task, why: str) -> None:
        """Write down that `task` was given up, and why."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            log = self._out / f"{self._name}-failed.log"
            append_line(log, f"{moment} {task_name(task)}: {why}\n")


def task_name(task: Task) -> str:
    """What `task` is called in messages."""
    return f"profile of {task.name}" if isinstance(task, Workload) else task.id
