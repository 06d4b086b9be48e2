"""``advisor campaign``: measures a campaign from its plan file to its summary."""

import argparse
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from threading import Lock, Thread
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, counted, is_or_are
from advisor.hardware.machine import allowed_cores, split_cores
from advisor.measure.campaign_runner import (
    LocalRunner,
    Record,
    Runner,
    RunnerSettings,
    Task,
    TaskQueue,
    cluster_runners,
    start_all,
    stop_all,
)
from advisor.measure.device import command_line, devices_in, find_device
from advisor.measure.draw import Campaign, counts, draw_plans, read_campaign, write_list
from advisor.measure.process import say
from advisor.measure.profile_command import ABOVE_0
from advisor.measure.run_list import PlannedRun, single_runs
from advisor.measure.shared_run import FIRST_RUN_S, records_in, run_summary
from advisor.workload.profile import Profile, Window, median_step_s
from advisor.workload.reading import profile_files, read_json, user_folder
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import (
    append_line,
    append_run,
    new_path,
    profile_text,
    writable_folder,
    write_whole,
)

# A solo run that differs from its profile by more than this share does not repeat it.
_STEADY_WITHIN = 0.05


class Steadiness:
    """Runs and profiles as read from their files, compared.

    Of two profiles with one name, that in the first of the folders `profiles` counts.

    Attributes:
        alone_s: Seconds of a step by the workload's name, of those that have a profile.
        refused: Why a file of these folders is not a profile, by its workload's name.
    """

    def __init__(self, profiles: Iterable[Path]) -> None:
        self.alone_s: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        # Each tenant's workload and seconds of a step, by run; those of solo runs again.
        self._steps_s: dict[str, list[tuple[str, float]]] = {}
        self._solo_steps_s: dict[str, list[tuple[str, float]]] = {}
        # The run that a run repeats.
        self._repeated: dict[str, str] = {}
        for folder in reversed(list(profiles)):
            for path in profile_files(folder):
                try:
                    self.learn(path)
                except InvalidInput as error:
                    self.refused[path.stem] = str(error)

    def learn(self, path: Path) -> None:
        """Add the profile in the file `path`; raises InvalidInput if it is not one."""
        remedy = "Measure it again, or move it out of this folder."
        measured = read_json(path, remedy)
        try:
            self.alone_s[path.stem] = _step_s(measured)
        except (InvalidInput, TypeError, KeyError):
            raise InvalidInput(f"{path}: not a profile. {remedy}") from None
        self.refused.pop(path.stem, None)

    def note(self, record: Mapping[str, Any]) -> None:
        """Add a run; one with a tenant that ended early is ignored."""
        name = record["id"]
        try:
            tenants = record.get("tenants") or ()
            if not tenants or any(tenant["outcome"] != "ok" for tenant in tenants):
                return
            steps_s = [(tenant["workload"]["name"], _step_s(tenant)) for tenant in tenants]
        except (AttributeError, TypeError, KeyError):
            raise InvalidInput(
                f"run {name} is incomplete. Correct its file, or choose another --out."
            ) from None
        self._steps_s[name] = steps_s
        if record.get("purpose") == "solo":
            self._solo_steps_s[name] = steps_s
        if record.get("repeats"):
            self._repeated[name] = record["repeats"]

    def short(self) -> str:
        """The number of solo runs that repeat their profiles, for a line of progress."""
        apart = [each for solos in self._solos().values() for each in solos]
        steady = sum(each <= _STEADY_WITHIN for each in apart)
        return f"{steady}/{counted(len(apart), 'solo run')} within {_STEADY_WITHIN:.0%}"

    def summary(self) -> str:
        """All comparisons, a line each."""
        solos = self._solos()
        steady = sum(median(each) <= _STEADY_WITHIN for each in solos.values())
        lines = [
            f"{self.short()} of the profile; so {is_or_are(steady)} {steady}/"
            f"{counted(len(solos), 'workload')}"
        ]
        apart = [
            abs(mine_s / its_s - 1)
            for name, other in self._repeated.items()
            if other in self._steps_s
            for (_, mine_s), (_, its_s) in zip(
                self._steps_s[name], self._steps_s[other], strict=True
            )
        ]
        if apart:
            lines.append(
                f"repeats: median difference {median(apart):.1%} of {counted(len(apart), 'step')}"
            )
        return "\n".join(lines)

    def _solos(self) -> dict[str, list[float]]:
        """Differences of each workload's solo runs from its profile, as shares."""
        apart = defaultdict(list)
        for steps_s in tuple(self._solo_steps_s.values()):  # other threads add runs
            for name, step_s in steps_s:
                if name in self.alone_s:
                    apart[name].append(abs(step_s / self.alone_s[name] - 1))
        return apart


def _step_s(measured: Mapping[str, Any]) -> float:
    return median_step_s(tuple(Window(**window) for window in measured["windows"]))


class Ledger:
    """The records in a campaign's folder; `add` and `fail` may be called from any thread.

    Args:
        out: The folder: every ``*.jsonl`` in it holds runs.
        name: Of the campaign; the prefix of the files that it writes.
        profiles: Folder of new profiles.
        steadiness: Receives every run.

    Attributes:
        steadiness: Of all runs and profiles.
        done: Ids of the runs in the folder.
    """

    def __init__(self, out: Path, name: str, profiles: Path, steadiness: Steadiness) -> None:
        self._out = out
        self._name = name
        self._profiles = profiles
        self._lock = Lock()
        self.steadiness = steadiness
        self.done: set[str] = set()
        for path in sorted(out.glob("*.jsonl")):
            for record in records_in(path):
                self.done.add(record["id"])
                steadiness.note(record)

    def add(self, record: Record, runner: str) -> None:
        """Write `record`, which `runner` measured, to its file."""
        with self._lock:
            if isinstance(record, Run):
                append_run(self._out / f"{self._name}-{runner}.jsonl", record)
                self.steadiness.note(asdict(record))
            else:
                path = self._profiles / f"{record.name}.json"
                write_whole(path, profile_text(record))
                self.steadiness.learn(path)

    def fail(self, task: Task, why: str) -> None:
        """Write to the log that `task` was given up, and why."""
        moment = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock:
            log = self._out / f"{self._name}-failed.log"
            append_line(log, f"{moment} {_task_name(task)}: {why}\n")


def _task_name(task: Task) -> str:
    return f"profile of {task.name}" if isinstance(task, Workload) else task.id


# How often a run is repeated, each time by a new runner, before it is given up.
_AGAIN = 2


class Crew:
    """All started runners of a campaign; prints a line for each task that is done.

    Args:
        queue: The tasks.
        ledger: Receives the records; how steady they are ends each line.
        total: Number of records to measure.
        deadline_s: No task is begun that would end later than this after the start; None: no
            deadline.

    Attributes:
        done: Number of tasks that have a record.
        failed: Number of tasks that were given up.
    """

    def __init__(
        self, queue: TaskQueue, ledger: Ledger, total: int, deadline_s: float | None
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._total = total
        self._deadline_s = deadline_s
        self._began = monotonic()
        self._spent_s = 0.0
        self._tries: Counter[str] = Counter()
        self._lock = Lock()
        self._error: BaseException | None = None
        self.done = 0
        self.failed = 0

    def work(self, runners: Sequence[Runner]) -> None:
        """Let started `runners` work until all is done, or the next task would pass the deadline.

        Raises AdvisorError if a record cannot be written, or no runner is left.
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
        passed_s = monotonic() - self._began
        say(
            f"{self.done} records in {passed_s:.0f} s by {len(runners)} runners, "
            f"{60 * self.done / passed_s:.1f} a minute; {self.failed} failed"
        )

    def _serve(self, runner: Runner) -> None:
        try:
            while block := self._queue.take():
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
            if self._too_late():
                self._queue.back(block)
                self._queue.close()
                return False
            task, *block = block
            if not self._do(runner, task) and not self._replaced(runner):
                self._queue.back(block)
                return False
        return True

    def _too_late(self) -> bool:
        """Return whether one more would pass the deadline."""
        with self._lock:
            next_s = self._spent_s / self.done if self.done else FIRST_RUN_S
        passed_s = monotonic() - self._began
        return self._deadline_s is not None and passed_s + next_s > self._deadline_s

    def _do(self, runner: Runner, task: Task) -> bool:
        """Do `task`, or queue it again; whether `runner` is still usable."""
        began = monotonic()
        try:
            record = runner.measured(task)
        except InvalidInput as error:
            self._give_up(task, str(error))
            return True
        except AdvisorError as error:
            if not self._queue.over:
                self._once_more(runner, task, str(error))
            return False
        # A death for another reason than memory may not repeat with a new runner.
        tenants = record.tenants if isinstance(record, Run) else ()
        died = next((tenant for tenant in tenants if tenant.outcome == "died"), None)
        if died is not None and self._may_try_again(task):
            self._once_more(runner, task, f"a tenant died ({died.detail})")
            return False
        self._ledger.add(record, runner.name)
        self._queue.done()
        self._report_done(record, runner.name, monotonic() - began)
        return died is None

    def _report_done(self, record: Record, runner: str, seconds: float) -> None:
        with self._lock:
            self.done += 1
            self._spent_s += seconds
            summary = (
                f"profile of {record.name}," if isinstance(record, Profile) else run_summary(record)
            )
            a_minute = 60 * self.done / (monotonic() - self._began)
            left = self._total - self.done - self.failed
            say(
                f"{self.done + self.failed}/{self._total} {summary} {seconds:.1f} s on {runner}; "
                f"{a_minute:.1f} records a minute, about {left / a_minute:.1f} min left; "
                f"{self.failed} failed; {self._ledger.steadiness.short()}"
            )

    def _once_more(self, runner: Runner, task: Task, why: str) -> None:
        if not self._may_try_again(task):
            self._give_up(task, f"{why} ({_AGAIN + 1} times)")
            return
        with self._lock:
            self._tries[_task_name(task)] += 1
        say(f"{_task_name(task)} on {runner.name}: {why}; it will be done again")
        self._queue.back([task])

    def _may_try_again(self, task: Task) -> bool:
        with self._lock:
            return self._tries[_task_name(task)] < _AGAIN

    def _give_up(self, task: Task, why: str) -> None:
        self._ledger.fail(task, why)
        self._queue.done()
        with self._lock:
            self.failed += 1
            say(f"{self.done + self.failed}/{self._total} {_task_name(task)} failed: {why}")

    def _replaced(self, runner: Runner) -> bool:
        """Start a lost runner again; return whether that worked."""
        reason: object = "the campaign ends"
        for _ in range(_AGAIN + 1):
            if self._queue.over:
                return False
            runner.stop()
            try:
                runner.start()
            except AdvisorError as error:
                reason = error
            else:
                return True
        say(f"runner {runner.name} is given up, the others do its runs: {reason}")
        return False


# Seconds of a profile, of a run, and of each tenant of it, on an H200 with sixteen cores.
_PROFILE_S, _RUN_S, _TENANT_S = 25.0, 4.0, 1.0


def run_campaign(argv: Sequence[str]) -> int:
    """Measure the campaign that `argv` names, under a supervisor; return the exit code.

    Raises:
        InvalidInput: Plan, words or files are invalid.
        GpuUnavailable: A device cannot be used.
    """
    words = _parsed(argv)
    campaign = read_campaign(words.plan)
    home = user_folder("profiles") / campaign.gpu
    words.out, words.profiles = words.out or home / "runs", words.profiles or home
    plans = draw_plans(campaign)
    for folder in (words.out, words.profiles):
        writable_folder(folder)
    write_list(words.out / f"{campaign.name}-drawn.json", campaign.gpu, plans)
    say(counts(plans))
    steadiness = Steadiness([words.profiles, *map(Path, campaign.profile.known)])
    ledger = Ledger(words.out, campaign.name, words.profiles, steadiness)
    unprofiled, runs = _unmeasured(campaign, plans, ledger)
    run_s = sum(_RUN_S + _TENANT_S * len(run.workloads) for run in runs)
    minutes = (len(unprofiled) * _PROFILE_S + run_s) / 60
    devices = 1 if words.ray else len(devices_in(words.devices or "0"))
    todo = f"{counted(len(unprofiled), 'profile')} and {counted(len(runs), 'run')} to do"
    say(f"{todo}: about {minutes / devices:.0f} min on {counted(devices, 'device')}")
    if words.dry_run:
        return 0
    if not unprofiled and not runs:
        say(steadiness.summary())
        return 0
    command = command_line("campaign", argv)
    with _runners(words, campaign, command) as runners:
        start_all(runners)
        return _measure(runners, (*unprofiled, *runs), ledger, words.deadline)


def _unmeasured(
    campaign: Campaign, plans: Sequence[PlannedRun], ledger: Ledger
) -> tuple[list[Workload], list[PlannedRun]]:
    """The workloads and runs that are not measured yet."""
    planned = [run for plan in plans for run in single_runs(plan)]
    runs = [run for run in planned if run.id not in ledger.done]
    if done := len(planned) - len(runs):
        say(f"{counted(done, 'run')} {is_or_are(done)} done already and not done again")
    used = [workload for run in planned for workload in run.workloads]
    listed = dict.fromkeys((*campaign.small, *campaign.large, *used))
    names = {workload.name for workload in listed}
    for name, why in sorted(ledger.steadiness.refused.items()):
        if name in names:
            raise InvalidInput(why)
        say(f"warning: {why}")
    profiled = ledger.steadiness.alone_s
    unprofiled = [workload for workload in listed if workload.name not in profiled]
    return unprofiled if campaign.profile.missing else [], runs


@contextmanager
def _runners(words: Namespace, campaign: Campaign, command: str) -> Iterator[Sequence[Runner]]:
    """Runners that are stopped when the block ends."""
    settings = RunnerSettings("cpu", (), campaign.timing, campaign.profile.probe, command)
    if words.ray is not None:
        with cluster_runners(words, campaign.gpu, settings) as cluster:
            yield cluster
        return
    devices = devices_in(words.devices or ("cpu" if campaign.gpu == "cpu" else "0"))
    for name in devices:
        device = find_device(name)
        if device.key != campaign.gpu:
            raise InvalidInput(
                f"the plan is for {campaign.gpu}, and device {name} is {device.key} "
                f"({device.name}). Choose other --devices, or correct the plan's gpu."
            )
    allowed = allowed_cores(words.cores)
    # Trials on the CPU, whose figures are not kept, share all cores.
    on_cpu = devices[0] == "cpu"
    shares = (allowed,) * len(devices) if on_cpu else split_cores(allowed, len(devices))
    runners = [
        LocalRunner(f"cpu{n}" if name == "cpu" else name, replace(settings, device=name, cores=its))
        for n, (name, its) in enumerate(zip(devices, shares, strict=True))
    ]
    try:
        yield runners
    finally:
        stop_all(runners)


def _measure(
    runners: Sequence[Runner], todo: Sequence[Task], ledger: Ledger, deadline_s: float | None
) -> int:
    queue = TaskQueue(todo, [runner.name for runner in runners])
    crew = Crew(queue, ledger, len(todo), deadline_s)
    crew.work(runners)
    if queue.left:
        say(f"{queue.left} left; the same command does them")
    say(ledger.steadiness.summary())
    return AdvisorError.exit_code if crew.failed else 0


def _parsed(argv: Sequence[str]) -> Namespace:
    parser = argparse.ArgumentParser(
        prog="advisor campaign",
        description="Measures the runs of a plan on all chosen GPUs, out of one queue. Runs that "
        "the folder has already are left out.",
        epilog="Exit codes: 0 all measured or the deadline is near, 1 some failed, 2 wrong use, "
        "4 no GPU to use.",
    )
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN.toml", help="what to measure")
    add("--out", type=new_path, metavar="DIR", help="folder of runs [your own, read by advisor]")
    add("--profiles", type=Path, metavar="DIR", help="folder of profiles, read, and where missing "
        "ones go [your own, read by advisor]")  # fmt: skip
    add("--devices", metavar="LIST", help="GPU indices or UUIDs, e.g. 0-7 or 0,2; or cpu,cpu to "
        "try out with two runners [0; with --ray, all that are free]")  # fmt: skip
    add("--cores", help="host cores, split evenly among the devices, e.g. 0-63 [all]")
    add("--deadline", type=ABOVE_0, metavar="S", help="start nothing that would end later than "
        "this")  # fmt: skip
    add("--dry-run", action="store_true", help="write the drawn list and count it; measure nothing")
    add("--ray", metavar="ADDRESS", help="measure on the GPUs of this Ray cluster, e.g. auto; "
        "advisor must be installed on its nodes")  # fmt: skip
    return parser.parse_args(argv)
