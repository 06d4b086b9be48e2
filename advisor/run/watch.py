"""Watches runs of plans to their end, and keeps what was measured for `fit`."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.hardware.machine import allowed_cores
from advisor.measure.device import Meter, Origin, find_device
from advisor.measure.process import sweep, tail
from advisor.run.measured_pace import PacedPlan
from advisor.run.start import COMMAND, Say, ask_to_end, read_about, stop
from advisor.run.watched_job import script_lives
from advisor.run.watched_run import WatchedRun
from advisor.workload.reading import user_folder
from advisor.workload.run import Run
from advisor.workload.writing import append_run, writable

LOOK_S = 0.5


class Watcher:
    """A watcher of the run in `folder`.

    Args:
        folder: Of the run.
        plan: Predicts and corrects it; None: steps are expected as the folder's plan has them.
        say: Takes a line about something that happened.
        deadline_s: After so many seconds the run is ended; None: never.
        patience_s: A job that counts steps and does none for so long is ended; None: never.

    Attributes:
        run: The run as it was at the last look.
    """

    def __init__(
        self,
        folder: Path,
        plan: PacedPlan | None,
        say: Say,
        deadline_s: float | None = None,
        patience_s: float | None = None,
    ) -> None:
        self._about = read_about(folder)
        self._device = find_device(self._about.device, on_mig=True)
        expected = None if plan is None else plan.expected
        self.run = WatchedRun(folder, self._about.steps, Meter(self._device), expected)
        self._plan, self._say = plan, say
        self._deadline_s, self._patience_s = deadline_s, patience_s
        self._began_s, self._ended = monotonic(), False
        self._reported = set[tuple[int, str]]()

    def look(self) -> bool:
        """Note the run as it is now, report what happened, and return whether it goes on."""
        alive = script_lives(self.run.folder)  # before the look: what it wrote last is seen then
        self.run.look()
        if self._plan is not None:
            self._plan.correct(self.run)
        if self.run.events.over is not None or not alive:
            return False
        self._report_pace()
        for number in self.run.silent(self._patience_s):
            self._say(f"job {number}: no step for {self._patience_s:g} s")
            stop(self.run.folder, number, self._say)
        passed_s = monotonic() - self._began_s
        if self._deadline_s is not None and passed_s > self._deadline_s and not self._ended:
            self._say("ending the jobs at the time limit")
            self.end()
        return True

    def end(self) -> None:
        """Ask the jobs to end; the run goes on until they have."""
        self._ended = True
        ask_to_end(self.run.folder)

    def _report_pace(self) -> None:
        folder = self.run.folder
        for job in self.run.jobs:
            if job.drifted and (job.number, "pace") not in self._reported:
                self._reported.add((job.number, "pace"))
                self._say(f"{job}: its pace has changed since its first second")
            if job.silent_s is not None and (job.number, "silent") not in self._reported:
                self._reported.add((job.number, "silent"))
                self._say(
                    f"job {job.number}, {job.workload.name}: no step for {job.silent_s:.0f} s. To "
                    f"end it: advisor stop {folder.name} --job {job.number}"
                )

    def records(self) -> tuple[Run, ...]:
        """Return what was measured for `fit`, once the run is over.

        Raises:
            GpuUnavailable: The script ended before it started a job.
        """
        folder = self.run.folder
        if not self.run.events.started_s:
            raise GpuUnavailable(f"{folder.name}: no job started. {tail(folder / 'script.log')}")
        records: tuple[Run, ...] = ()
        with suppress(InvalidInput):  # cores of another process
            origin = Origin(self._device, COMMAND, len(allowed_cores()))
            records = tuple(self.run.records(origin, allowed_cores(self._about.cores)))
        return records

    def exit_code(self) -> int:
        """Report how jobs ended that failed, once the run is over, and return the exit code."""
        run, bad = self.run, False
        for job in run.jobs:
            if job.state not in ("done", "stopped"):
                bad = True
                self._say(
                    f"job {job.number}, {job.workload.name}: {job.state} {job.detail} {job.log}"
                )
        if run.events.over is None:
            self._say(
                f"{run.folder.name}: its script was killed. `advisor stop {run.folder.name}` ends "
                f"its jobs, and undoes what it changed."
            )
            return AdvisorError.exit_code
        if run.events.over and not bad and not run.events.stopped:
            bad = True
            self._say(tail(run.folder / "script.log"))
        return AdvisorError.exit_code if bad else 0


def watch(
    watchers: Sequence[Watcher],
    *,
    say: Say,
    show: Callable[[Sequence[WatchedRun]], None],
    log: Callable[[Run], None] | None = None,
) -> int:
    """Watch runs to their end, store what was measured for `fit`, and return the exit code.

    Ctrl-C ends the runs; whatever else ends this process does not.

    Args:
        watchers: One for each run.
        say: Takes a line about something that happened.
        show: Takes the runs as they are, again and again.
        log: Takes each record for `fit`, which are stored anyway.

    Raises:
        GpuUnavailable: A script ended before it started a job; the other runs have ended too.
        KeyboardInterrupt: It was interrupted, and the runs have ended.
    """
    interrupted = False
    while True:
        try:
            if interrupted:
                say("ending the jobs")
                for watcher in watchers:
                    watcher.end()
            _to_the_end(watchers, show)
            break
        except KeyboardInterrupt:
            interrupted = True
    sweep()
    if interrupted:
        raise KeyboardInterrupt
    records, failures = list[Run](), list[GpuUnavailable]()
    for watcher in watchers:
        try:
            records += watcher.records()
        except GpuUnavailable as error:
            failures.append(error)
    keep(records, say, log)
    codes = [each.exit_code() for each in watchers if each.run.events.started_s]
    for failure in failures[:-1]:
        say(str(failure))
    for failure in failures[-1:]:
        raise failure
    return max(codes)


def _to_the_end(watchers: Sequence[Watcher], show: Callable[[Sequence[WatchedRun]], None]) -> None:
    going = list(watchers)
    while going:
        going = [watcher for watcher in going if watcher.look()]
        show([watcher.run for watcher in watchers])
        sleep(LOOK_S if going else 0)


def keep(records: Sequence[Run], say: Say, log: Callable[[Run], None] | None) -> None:
    """Store `records` where `fit` finds them."""
    for record in records:
        file = user_folder("profiles") / record.gpu / "runs" / "validation.jsonl"
        writable(file)
        append_run(file, record)
        if log is not None:
            log(record)
    if not records:
        say(
            "nothing of it is kept for `advisor fit`, which learns from jobs that all step at the "
            "same time, for ten seconds at least"
        )
