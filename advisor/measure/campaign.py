"""``advisor campaign``: measures a campaign from its plan file to its summary."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, counted, is_or_are
from advisor.files.reading import profile_files, user_folder
from advisor.files.records import parse_record
from advisor.files.writing import (
    append_line,
    append_record,
    record_line,
    writable_folder,
    write_whole,
)
from advisor.hardware import DEFAULT_DEVICE
from advisor.measure.device import command_line, devices_in
from advisor.measure.planned_runs import (
    PlannedRun,
    counts,
    draw_plans,
    read_campaign,
    single_runs,
    write_list,
)
from advisor.measure.process import say
from advisor.measure.runners import (
    Record,
    Runner,
    RunnerSettings,
    Task,
    cluster_runners,
    local_runners,
)
from advisor.measure.shared_run import FIRST_RUN_S, run_summary
from advisor.workload.profile import Profile
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.store import read_profile, read_runs


class Ledger:
    """The records in a campaign's folders.

    Runs lie in every ``*.jsonl`` in `out`; `name` is the prefix of new files there. Of two profiles
    with one name, that in `profiles` counts, then that in the first of the `known` folders.
    """

    def __init__(self, out: Path, name: str, profiles: Path, known: Sequence[Path] = ()) -> None:
        self._out, self._name, self._folder = out, name, profiles
        self.runs = {run.id: run for path in sorted(out.glob("*.jsonl")) for run in read_runs(path)}
        self.profiles: dict[str, Profile] = {}
        for path in (path for folder in (profiles, *known) for path in profile_files(folder)):
            if path.stem not in self.profiles:
                try:
                    self.profiles[path.stem] = read_profile(path)
                except InvalidInput as error:
                    say(f"warning: {error}")

    def add(self, record: Record, runner: str) -> None:
        """Write `record`, which `runner` measured, to its file."""
        if isinstance(record, Run):
            append_record(self._out / f"{self._name}-{runner}.jsonl", record)
            self.runs[record.id] = record
        else:
            write_whole(self._folder / f"{record.name}.json", record_line(record))
            self.profiles[record.name] = record

    def fail(self, name: str, why: str) -> None:
        """Write to the log that a task was given up, and why."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        append_line(self._out / f"{self._name}-failed.log", f"{moment} {name}: {why}\n")


# How often a run is repeated, each time by a new runner, before it is given up.
_AGAIN = 2


class _RunnerGone(AdvisorError):
    """A runner that was lost does not start again."""


# Starting or stopping an MPS daemon takes about a second, so a runner gets up to this many runs in
# turn that need it in one state ...
_IN_TURN = 8
# ... among the first this many: solo runs must stay in their places between the others.
_LOOK_AHEAD = 24


class Seat:
    """A runner, and whether it has to start again before its next task."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.lost = False
        self.began = 0.0
        self._with_mps = False
        self._in_turn = 0

    def take(self, waiting: list[Task]) -> Task:
        """Take the first task that waits, or one soon after it that needs MPS as the last did."""
        near = [task for task in waiting[:_LOOK_AHEAD] if _needs_mps(task) is self._with_mps]
        if self._in_turn == _IN_TURN or not near:
            near, self._in_turn = waiting[:1], 0
        waiting.remove(task := near[0])
        self._with_mps = _needs_mps(task)
        self._in_turn += 1
        self.began = monotonic()
        return task

    def measured(self, task: Task) -> Record:
        """Measure `task`, by a fresh runner if this one was lost."""
        for tries_left in reversed(range((_AGAIN + 1) * self.lost)):
            self.runner.stop()
            try:
                self.runner.start()
                self.lost = False
                break
            except AdvisorError as error:
                if not tries_left:
                    raise _RunnerGone(str(error)) from None
        return self.runner.measured(task)


def _needs_mps(task: Task) -> bool:
    return isinstance(task, PlannedRun) and task.groups[0][1].under_mps


class Dispatcher:
    """Hands tasks to runners in order, waits for each in a thread, and keeps their records.

    No task is begun that would end later than `deadline_s` after the start. No runner has the tasks
    that are `waiting`; `done` ones have a record, and `failed` ones were given up.
    """

    def __init__(self, tasks: Sequence[Task], ledger: Ledger, deadline_s: float | None) -> None:
        self.waiting = list(tasks)
        self.done = self.failed = 0
        self._total = len(tasks)
        self._ledger = ledger
        self._deadline_s = deadline_s
        self._began = monotonic()
        self._spent_s = 0.0
        self._tries: Counter[str] = Counter()

    def work(self, runners: Sequence[Runner]) -> None:
        """Let `runners` work until all is done, or the next task would pass the deadline.

        Raises:
            AdvisorError: A runner does not start, a record cannot be written, or no runner is left.
        """
        idle = [Seat(runner) for runner in runners]
        busy: dict[Future[Record], tuple[Seat, Task]] = {}
        with ThreadPoolExecutor(len(runners)) as pool:
            starting = [pool.submit(runner.start) for runner in runners]
            try:
                for start in starting:
                    start.result()
                while True:
                    while idle and self.waiting:
                        next_s = self._spent_s / self.done if self.done else FIRST_RUN_S
                        passed_s = monotonic() - self._began
                        if self._deadline_s is not None and passed_s + next_s > self._deadline_s:
                            break
                        seat = idle.pop()
                        task = seat.take(self.waiting)
                        busy[pool.submit(seat.measured, task)] = seat, task
                    if not busy:
                        break
                    for future in wait(busy, return_when=FIRST_COMPLETED).done:
                        seat, task = busy.pop(future)
                        if self._keep(future, seat, task):
                            idle.append(seat)
            finally:
                threads: set[Future[Any]] = {*starting, *busy}
                left = True
                while left:  # after an error or Ctrl-C, so that what the threads wait for ends
                    with ThreadPoolExecutor(len(runners)) as stopping:
                        list(stopping.map(lambda runner: runner.stop(), runners))
                    left = bool(wait(threads, 1.0).not_done)
        if not idle and self.waiting:
            raise AdvisorError(
                f"all runners were given up; {counted(len(self.waiting), 'run')} left. Fix the "
                "errors above; the same command continues from here."
            )
        passed_s = monotonic() - self._began
        say(
            f"{self.done} records in {passed_s:.0f} s by {len(runners)} runners, "
            f"{60 * self.done / passed_s:.1f} a minute; {self.failed} failed"
        )

    def _keep(self, future: Future[Record], seat: Seat, task: Task) -> bool:
        name = f"profile of {task.name}" if isinstance(task, Workload) else task.id
        record = why = None
        try:
            record = future.result()
        except _RunnerGone as error:
            say(f"runner {seat.runner.name} is given up, and the others do its runs: {error}")
            self.waiting.insert(0, task)
            return False
        except InvalidInput as error:
            self._give_up(name, str(error))
            return True
        except AdvisorError as error:
            why = str(error)
        else:
            # A failure for another reason than memory may not repeat with a new runner.
            tenants = record.tenants if isinstance(record, Run) else ()
            failed = (tenant.detail for tenant in tenants if tenant.outcome == "failed")
            why = next((f"a tenant failed ({detail})" for detail in failed), None)
        seat.lost = why is not None
        self._tries[name] += 1
        if seat.lost and self._tries[name] <= _AGAIN:
            say(f"{name} on {seat.runner.name}: {why}; it will run again")
            self.waiting.insert(0, task)
        elif record is None:
            self._give_up(name, f"{why} ({_AGAIN + 1} times)")
        else:
            self._ledger.add(record, seat.runner.name)
            seconds = monotonic() - seat.began
            self.done += 1
            self._spent_s += seconds
            a_minute = 60 * self.done / (monotonic() - self._began)
            left = self._total - self.done - self.failed
            summary = run_summary(record) if isinstance(record, Run) else f"{name},"
            say(
                f"{self.done + self.failed}/{self._total} {summary} {seconds:.1f} s on "
                f"{seat.runner.name}; {a_minute:.1f} records a minute, about "
                f"{left / a_minute:.1f} min left; {self.failed} failed"
            )
        return True

    def _give_up(self, name: str, why: str) -> None:
        self._ledger.fail(name, why)
        self.failed += 1
        say(f"{self.done + self.failed}/{self._total} {name} failed: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _CampaignOptions:
    words: tuple[str, ...]
    plan: Path
    out: Path | None
    profiles: Path | None
    device: str | None
    cores: str | None
    deadline: float | None
    dry_run: bool
    as_json: bool
    ray: str | None


def run_campaign(document: str) -> int:
    """Measure the campaign that the JSON `document` of options names; return the exit code."""
    words = parse_record(_CampaignOptions, document, "the command")
    campaign = read_campaign(words.plan)
    home = user_folder("profiles") / campaign.gpu
    out, profiles = words.out or home / "runs", words.profiles or home
    plans = draw_plans(campaign)
    for folder in (out, profiles):
        writable_folder(folder)
    write_list(out / f"{campaign.name}-drawn.json", campaign.gpu, plans)
    say(counts(plans))
    ledger = Ledger(out, campaign.name, profiles, [*map(Path, campaign.profile.known)])
    planned = [run for plan in plans for run in single_runs(plan)]
    runs = [run for run in planned if run.id not in ledger.runs]
    if done := len(planned) - len(runs):
        say(f"{counted(done, 'run')} {is_or_are(done)} done already, and will not run again")
    unprofiled: list[Workload] = []
    if campaign.profile.missing:
        used = [workload for run in planned for workload in run.workloads]
        listed = dict.fromkeys((*campaign.small, *campaign.large, *used))
        unprofiled = [workload for workload in listed if workload.name not in ledger.profiles]
    # Seconds of a profile, of a run and of each of its tenants, on an H200 with sixteen cores.
    seconds = 25 * len(unprofiled) + sum(4 + len(run.workloads) for run in runs)
    devices = 1 if words.ray else len(devices_in(words.device or DEFAULT_DEVICE))
    todo = f"{counted(len(unprofiled), 'profile')} and {counted(len(runs), 'run')} to do"
    say(f"{todo}: about {seconds / 60 / devices:.0f} min on {counted(devices, 'device')}")
    answer = {
        "schema": 1,
        "campaign": campaign.name,
        "gpu": campaign.gpu,
        "runs": len(planned),
        "runs_done_before": done,
        "runs_to_do": len(runs),
        "profiles_to_do": len(unprofiled),
        "estimated_s": seconds / devices,
    }
    failed = 0
    if not words.dry_run:
        dispatcher = Dispatcher((*unprofiled, *runs), ledger, words.deadline)
        if dispatcher.waiting:
            settings = RunnerSettings(campaign, command_line("campaign", words.words))
            dispatcher.work(_runners(words, settings, len(dispatcher.waiting)))
        if dispatcher.waiting:
            say(f"{len(dispatcher.waiting)} left; the same command does them")
        failed = dispatcher.failed
        answer |= {"done": dispatcher.done, "failed": failed, "left": len(dispatcher.waiting)}
    if words.as_json:
        print(json.dumps(answer, indent=1), flush=True)
    return AdvisorError.exit_code if failed else 0


def _runners(words: _CampaignOptions, settings: RunnerSettings, tasks: int) -> list[Runner]:
    if words.ray is None:
        return local_runners(words.device, words.cores, settings)
    on_cpu = settings.campaign.gpu == "cpu"
    if words.cores or (words.device and not on_cpu):
        raise InvalidInput("--ray takes all free GPUs of Ray: leave out --device and --cores")
    most = len(devices_in(words.device or "cpu")) if on_cpu else tasks
    return cluster_runners(words.ray, settings, most)
