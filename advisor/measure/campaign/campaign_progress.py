"""How far a campaign is, in lines on stderr."""

from threading import Lock
from time import monotonic

from advisor.measure.campaign.ledger import task_name
from advisor.measure.campaign.runner import Record, Task
from advisor.measure.campaign.steadiness import Steadiness
from advisor.measure.process.supervisor import say
from advisor.measure.shared.run_list import FIRST_RUN_S, told
from advisor.workload.run import Run


class Progress:
    """Counts; every method may be called from any thread.

    Args:
        total: Records to make.
        runners: That make them.
        deadline_s: Nothing is begun that would end later than this after the start; None: all is.
        steadiness: For its short word in each line.
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

    def tell(self, record: Record, runner: str, seconds: float) -> None:
        """Say that `runner` made `record` in `seconds`."""
        with self._lock:
            self.done += 1
            self._spent_s += seconds
            what = told(record) if isinstance(record, Run) else f"profile of {record.name},"
            say(
                f"{self.done + self.failed}/{self._total} {what} {seconds:.1f} s on {runner}; "
                f"{self._pace()}; {self.failed} failed; {self._steadiness.short()}"
            )

    def fail(self, task: Task, why: str) -> None:
        """Say that `task` was given up."""
        with self._lock:
            self.failed += 1
            say(f"{self.done + self.failed}/{self._total} {task_name(task)} failed: {why}")

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
