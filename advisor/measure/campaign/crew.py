"""Runs a campaign's runners, a thread for each, and replaces those that are lost."""

from collections import Counter
from collections.abc import Sequence
from threading import Lock, Thread
from time import monotonic

from advisor.english import counted, is_or_are
from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.campaign.ledger import CampaignProgress, Ledger, task_name
from advisor.measure.campaign.runner import Record, Runner, Task
from advisor.measure.campaign.task_queue import TaskQueue
from advisor.measure.process.supervisor import say
from advisor.workload.run import Run

# How often a run is repeated, each time by a new runner, before it is given up.
_AGAIN = 2


class Crew:
    """All runners of a campaign, started."""

    def __init__(self, queue: TaskQueue, ledger: Ledger, progress: CampaignProgress) -> None:
        self._queue = queue
        self._ledger = ledger
        self._progress = progress
        self._tries: Counter[str] = Counter()
        self._lock = Lock()
        self._error: BaseException | None = None

    def work(self, runners: Sequence[Runner]) -> None:
        """Let started `runners` work until all is done, or the next task would pass the deadline.

        Raises:
            AdvisorError: A record cannot be written, or no runner is left.
        """
        threads = [Thread(target=self._serve, args=(each,), daemon=True) for each in runners]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
            if self._error is not None:
                raise self._error
            if self._queue.left and not self._queue.over:
                raise AdvisorError(
                    f"every runner was given up, and {counted(self._queue.left, 'run')} "
                    f"{is_or_are(self._queue.left)} left. Fix the errors above; the same "
                    f"command goes on from here."
                )
        finally:
            self._queue.close()

    def _serve(self, runner: Runner) -> None:
        try:
            while block := self._queue.take(runner.name):
                if not self._block(runner, block):
                    break
        except BaseException as error:  # otherwise an error in a thread would be lost
            self._error = error
            self._queue.close()
        finally:
            self._queue.leave(runner.name)

    def _block(self, runner: Runner, block: list[Task]) -> bool:
        """Do the tasks of `block`; whether `runner` can go on."""
        while block:
            if self._progress.too_late():
                self._queue.back(block)
                self._queue.close()
                return False
            task, *block = block
            if not self._do(runner, task) and not self._replaced(runner):
                self._queue.back(block)
                return False
        return True

    def _do(self, runner: Runner, task: Task) -> bool:
        """Do `task`, or queue it again; whether `runner` is still usable."""
        began = monotonic()
        try:
            record = runner.measured(task)
        except InvalidInput as error:
            self._give_up(runner, task, str(error))
            return True
        except AdvisorError as error:
            if not self._queue.over:
                self._once_more(runner, task, str(error))
            return False
        died = _died(record)
        if died and self._may_try_again(task):
            self._once_more(runner, task, died)
            return False
        self._ledger.add(record, runner.name)
        self._queue.done(task, runner.name)
        self._progress.report_done(record, runner.name, monotonic() - began)
        return not died

    def _once_more(self, runner: Runner, task: Task, why: str) -> None:
        if not self._may_try_again(task):
            self._give_up(runner, task, f"{why} ({_AGAIN + 1} times)")
            return
        with self._lock:
            self._tries[task_name(task)] += 1
        say(f"{task_name(task)} on {runner.name}: {why}; it will be done again")
        self._queue.back([task])

    def _may_try_again(self, task: Task) -> bool:
        with self._lock:
            return self._tries[task_name(task)] < _AGAIN

    def _give_up(self, runner: Runner, task: Task, why: str) -> None:
        self._ledger.fail(task, why)
        self._queue.done(task, runner.name)
        self._progress.give_up(task_name(task), why)

    def _replaced(self, runner: Runner) -> bool:
        """Whether a lost runner was replaced by a new one."""
        why: object = "the campaign ends"
        for _ in range(_AGAIN + 1):
            if self._queue.over:
                return False
            runner.stop()
            try:
                runner.start()
            except AdvisorError as error:
                why = error
            else:
                return True
        say(f"runner {runner.name} is given up, the others do its runs: {why}")
        return False


def _died(record: Record) -> str | None:
    """How a tenant died for another reason than memory, which may not repeat with a new runner."""
    if not isinstance(record, Run):
        return None
    return next(
        (f"a tenant died ({t.detail})" for t in record.tenants if t.outcome == "died"), None
    )
