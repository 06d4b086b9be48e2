"""``advisor campaign``: measures a campaign from its plan file to its summary."""

import argparse
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic

from advisor.errors import AdvisorError, InvalidInput, counted, is_or_are
from advisor.hardware.machine import allowed_cores, cores_of_each, split_cores
from advisor.measure.campaign_runner import (
    CampaignProgress,
    Ledger,
    LocalRunner,
    Runner,
    RunnerSettings,
    Steadiness,
    Task,
    start_all,
    stop_all,
    task_name,
)
from advisor.measure.device import command_line, devices_in, find_device
from advisor.measure.draw import Campaign, counts, draw_plans, idle_twin, read_campaign, write_list
from advisor.measure.pace import Timing
from advisor.measure.process import say
from advisor.measure.profile_command import ABOVE_0
from advisor.measure.run_list import Measurable, PlannedMix, PlannedRun, mixes_of
from advisor.measure.shared_run import cores_of_tenants
from advisor.workload.reading import user_folder
from advisor.workload.run import Run
from advisor.workload.spec import Workload
from advisor.workload.writing import new_path, writable_folder

# Starting or stopping an MPS daemon takes about a second, so a runner gets up to this many runs
# that need it in one state ...
_BLOCK = 8
# ... among the first this many: solo runs must stay in their places between the others.
_LOOK_AHEAD = 24


class TaskQueue:
    """The tasks left to do; every method may be called from any runner's thread.

    Args:
        tasks: In the order in which they should be done.
        idle_controls: Controls to be done last, each with all other runners idle, and by the runner
            that did its busy twin, if it is still there.
        homes: The runners that did busy twins before, by the id in `idle_controls`.
        runners: The names of all runners.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        idle_controls: Sequence[PlannedMix],
        homes: Mapping[str, str],
        runners: Collection[str],
    ) -> None:
        self._waiting = list(tasks)
        self._idle_controls = list(idle_controls)
        self._homes = dict(homes)
        self._runners = set(runners)
        self._under_way = 0
        self._over = False
        self._changed = Condition()

    def take(self, runner: str) -> list[Task]:
        """The next tasks of `runner`; waits while others may give some back; empty at the end.

        The caller must report each task as `done` or give it `back`.
        """
        with self._changed:
            while not self._over:
                block = self._block() or self._alone(runner)
                if block:
                    self._under_way += len(block)
                    return block
                if not (self._under_way or self._waiting or self._idle_controls):
                    break
                self._changed.wait()
            self._changed.notify_all()
            return []

    def _block(self) -> list[Task]:
        """The first waiting task, and some soon after it that need MPS in the same state."""
        if not self._waiting:
            return []
        # Smaller towards the end, so that no runner has much left when the others are done.
        size = max(1, min(_BLOCK, len(self._waiting) // (2 * max(1, len(self._runners)))))
        with_mps = needs_mps(self._waiting[0])
        near = self._waiting[:_LOOK_AHEAD]
        block = [task for task in near if needs_mps(task) is with_mps][:size]
        taken = set(map(id, block))
        self._waiting = [task for task in self._waiting if id(task) not in taken]
        return block

    def _alone(self, runner: str) -> list[Task]:
        """An idle control of this runner's, if no task is under way."""
        if self._under_way:
            return []
        for mix in self._idle_controls:
            home = self._homes.get(mix.id)
            if home == runner or home not in self._runners:
                self._idle_controls.remove(mix)
                return [mix]
        return []

    def done(self, task: Task, runner: str) -> None:
        """Note that `runner` is done with `task`, with or without a record."""
        with self._changed:
            self._under_way -= 1
            if isinstance(task, PlannedMix) and task.purpose == "control":
                self._homes[idle_twin(task.id)] = runner
            self._changed.notify_all()

    def back(self, tasks: Sequence[Task]) -> None:
        """Put back `tasks` that were taken and not done, before all others."""
        with self._changed:
            self._waiting[:0] = tasks
            self._under_way -= len(tasks)
            self._changed.notify_all()

    def leave(self, runner: str) -> None:
        """Note that `runner` takes no further task."""
        with self._changed:
            self._runners.discard(runner)
            self._changed.notify_all()

    def close(self) -> None:
        """Give out no further task."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    @property
    def over(self) -> bool:
        """Whether it was closed."""
        return self._over

    @property
    def left(self) -> int:
        """Number of tasks that were not taken."""
        with self._changed:
            return len(self._waiting) + len(self._idle_controls)


def needs_mps(task: Task) -> bool:
    """Return whether `task` begins with an MPS daemon running."""
    return isinstance(task, Measurable) and task.groups[0][1].sharing.under_mps


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
        # A death for another reason than memory may not repeat with a new runner.
        tenants = record.tenants if isinstance(record, Run) else ()
        deaths = [f"a tenant died ({t.detail})" for t in tenants if t.outcome == "died"]
        died = next(iter(deaths), None)
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
    unprofiled, mixes = _unmeasured(campaign, plans, ledger, steadiness)
    run_s = sum(_RUN_S + _TENANT_S * len(mix.workloads) for mix in mixes)
    minutes = (len(unprofiled) * _PROFILE_S + run_s) / 60
    devices = 1 if words.ray else len(devices_in(words.devices or "0"))
    todo = f"{counted(len(unprofiled), 'profile')} and {counted(len(mixes), 'run')} to do"
    say(f"{todo}: about {minutes / devices:.0f} min on {counted(devices, 'device')}")
    if words.dry_run:
        return 0
    if not unprofiled and not mixes:
        say(steadiness.summary())
        return 0
    command = command_line("campaign", argv)
    with _runners(words, campaign, command) as (runners, fewest):
        # Tasks that need more cores than there are are refused before anything is started.
        kind = "cpu" if campaign.gpu == "cpu" else "cuda"
        for mix in mixes:
            cores_of_tenants(mix, fewest, kind)
        for each in unprofiled:
            cores_of_each([each.cores], fewest, share=kind == "cpu")
        start_all(runners)
        return _measure(runners, (*unprofiled, *mixes), ledger, steadiness, words.deadline)


def _unmeasured(
    campaign: Campaign, plans: Sequence[PlannedRun], ledger: Ledger, steadiness: Steadiness
) -> tuple[list[Workload], list[Measurable]]:
    """Workloads to profile and mixes to run that are not measured yet."""
    planned = [mix for plan in plans for mix in mixes_of(plan)]
    mixes = [mix for mix in planned if mix.id not in ledger.done]
    if done := len(planned) - len(mixes):
        say(f"{counted(done, 'run')} {is_or_are(done)} done already and not done again")
    used = [each for mix in planned for each in mix.workloads]
    listed = dict.fromkeys((*campaign.small, *campaign.large, *used))
    refuse_profiles(steadiness, {each.name for each in listed})
    unprofiled = [each for each in listed if each.name not in steadiness.profiled]
    return unprofiled if campaign.profile.missing else [], mixes


def refuse_profiles(steadiness: Steadiness, used: Collection[str]) -> None:
    """Refuse files that are not profiles but have the name of a workload in `used`.

    Raises:
        InvalidInput: There is one. For other names, a warning is printed.
    """
    for name, why in sorted(steadiness.refused.items()):
        if name in used:
            raise InvalidInput(why)
        say(f"warning: {why}")


@contextmanager
def _runners(
    words: Namespace, campaign: Campaign, command: str
) -> Iterator[tuple[Sequence[Runner], tuple[int, ...]]]:
    """Runners that are stopped when the block ends, and the cores of the one with fewest."""
    timing = Timing(**asdict(campaign.timing))
    settings = RunnerSettings("cpu", (), timing, campaign.profile.probe, command)
    if words.ray is not None:
        from advisor.measure.ray_cluster import cluster_runners

        with cluster_runners(words, campaign.gpu, settings) as runners_and_cores:
            yield runners_and_cores
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
        LocalRunner(
            f"cpu{number}" if name == "cpu" else name,
            replace(settings, device=name, cores=cores),
        )
        for number, (name, cores) in enumerate(zip(devices, shares, strict=True))
    ]
    try:
        yield runners, min(shares, key=len)
    finally:
        stop_all(runners)


def _measure(
    runners: Sequence[Runner],
    todo: Sequence[Task],
    ledger: Ledger,
    steadiness: Steadiness,
    deadline_s: float | None,
) -> int:
    controls = [task for task in todo if isinstance(task, PlannedMix) and task.purpose == "control"]
    if len(runners) == 1 and controls:
        say(f"{counted(len(controls), 'control run')} left out: these need two devices or more")
        todo = [task for task in todo if task not in controls]
        controls = []
    idle_controls = [task for task in controls if task.id.endswith("-idle")]
    busy = [task for task in todo if task not in idle_controls]
    names = [runner.name for runner in runners]
    queue = TaskQueue(busy, idle_controls, ledger.homes, names)
    progress = CampaignProgress(len(todo), len(runners), deadline_s, steadiness)
    Crew(queue, ledger, progress).work(runners)
    say(progress.summary())
    if queue.left:
        say(f"{queue.left} left; the same command does them")
    say(steadiness.summary())
    return AdvisorError.exit_code if progress.failed else 0


def _parsed(argv: Sequence[str]) -> Namespace:
    parser = argparse.ArgumentParser(
        prog="advisor campaign",
        description="Measures the runs of a plan on all chosen GPUs, out of one queue. Runs that "
        "the folder has already are left out. Also: `python -m advisor.measure campaign`, "
        "which needs torch, timm and nvidia-ml-py only.",
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
    add(
        "--deadline", type=ABOVE_0, metavar="S", help="start nothing that would end later than this"
    )
    add("--dry-run", action="store_true", help="write the drawn list and count it; measure nothing")
    add("--ray", metavar="ADDRESS", help="measure on the GPUs of this Ray cluster, e.g. auto; "
        "advisor must be installed on its nodes")  # fmt: skip
    return parser.parse_args(argv)
