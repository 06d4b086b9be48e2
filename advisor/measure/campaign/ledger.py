"""The files of a campaign, to which runs, profiles and failures go, and its progress on stderr."""

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import monotonic

from advisor.measure.campaign.draw import idle_twin
from advisor.measure.campaign.runner import Record, Task
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.process.supervisor import say
from advisor.measure.shared.run_list import FIRST_RUN_S, records_in, run_summary
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import append_line, append_run, profile_text, write_whole


class Ledger:
    """The records in a campaign's folder; `add` and `fail` may be called from any thread.

    Args:
        out: The folder: every ``*.jsonl`` in it holds runs.
        name: Of the campaign; the prefix of the files that it writes.
        profiles: Folder of new profiles.
        steadiness: Receives every run.

    Attributes:
        done: Ids of the runs in the folder.
        homes: The runner that did the busy control, by the id of its idle twin.
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
        """Write `record`, which `runner` measured, to its file."""
        with self._lock:
            if isinstance(record, Run):
                append_run(self._out / f"{self._name}-{runner}.jsonl", record)
                self._steadiness.note(asdict(record))
            else:
                path = self._profiles / f"{record.name}.json"
                write_whole(path, profile_text(record))
                self._steadiness.learn(path)

    def fail(self, task: Task, why: str) -> None:
        """Write to the log that `task` was given up, and why."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            log = self._out / f"{self._name}-failed.log"
            append_line(log, f"{moment} {task_name(task)}: {why}\n")


def task_name(task: Task) -> str:
    """The name of `task` in messages."""
    return f"profile of {task.name}" if isinstance(task, Workload) else task.id


class CampaignProgress:
    """Counts what is done and failed; every method may be called from any thread.

    Args:
        total: Number of records to measure.
        runners: Number of runners.
        deadline_s: No task is begun that would end later than this after the start; None: no
            deadline.
        steadiness: Its short summary ends each line.
    """

    def __init__(
        self, total: int, runners: int, deadline_s: float | None, steadiness: Steadiness
    ) -> None:
        self._total = total
        self._runners = runners
        self._deadline_s = deadline_s
        self._steadiness = steadiness
        self._began = monotonic()
        self._spent_s = 0.0
        self._lock = Lock()
        self.done = 0
        self.failed = 0

    def too_late(self) -> bool:
        """Whether one more would pass the deadline."""
        with self._lock:
            next_s = self._spent_s / self.done if self.done else FIRST_RUN_S
        passed_s = monotonic() - self._began
        return self._deadline_s is not None and passed_s + next_s > self._deadline_s

    def report_done(self, record: Record, runner: str, seconds: float) -> None:
        """Print that `runner` measured `record` in `seconds`."""
        with self._lock:
            self.done += 1
            self._spent_s += seconds
            what = run_summary(record) if isinstance(record, Run) else f"profile of {record.name},"
            say(
                f"{self.done + self.failed}/{self._total} {what} {seconds:.1f} s on {runner}; "
                f"{self._pace()}; {self.failed} failed; {self._steadiness.short()}"
            )

    def give_up(self, name: str, why: str) -> None:
        """Print that the task called `name` was given up."""
        with self._lock:
            self.failed += 1
            say(f"{self.done + self.failed}/{self._total} {name} failed: {why}")

    def summary(self) -> str:
        """What was done, in one line."""
        passed_s = monotonic() - self._began
        return (
            f"{self.done} records in {passed_s:.0f} s by {self._runners} runners, "
            f"{60 * self.done / passed_s:.1f} a minute; {self.failed} failed"
        )

    def _pace(self) -> str:
        a_minute = 60 * self.done / (monotonic() - self._began)
        left = self._total - self.done - self.failed
        return f"{a_minute:.1f} records a minute, about {left / a_minute:.1f} min left"
