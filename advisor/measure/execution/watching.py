"""Starts plans and watches them to their end; a terminal that goes away ends only the watching."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic, sleep
from types import FrameType

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.measure.execution.execution_plan import ExecutionPlan
from advisor.measure.execution.job_process import GRACE_S
from advisor.measure.execution.leftovers import end_run
from advisor.measure.execution.mps_daemons import pipes_folder
from advisor.measure.execution.run_folder import RunFolder, new_id, runs_folder, sweep_drafts
from advisor.measure.execution.run_monitor import Expected, RunMonitor
from advisor.measure.execution.run_processes import boot_id
from advisor.measure.execution.run_site import DeviceProvider, GpuClaim, Site, WholeDevice
from advisor.measure.execution.run_state import JobState, RunState
from advisor.measure.execution.run_view import RunView
from advisor.measure.execution.running_plan import RunningPlan
from advisor.measure.process.claimed_device import Device, Meter, refuse_busy
from advisor.measure.process.cores import allowed_cores
from advisor.measure.process.run_locks import sweep

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How a run is watched.

    Attributes:
        say: Takes a line about something that happened.
        show: Takes what there is to see, again and again.
        expected: What is predicted where some of a stage's jobs have ended.
        deadline_s: After so many seconds what still runs is stopped; None: never.
        look_s: Seconds between two looks.
    """

    say: Callable[[str], None]
    show: Callable[[RunView], None]
    expected: Expected | None = None
    deadline_s: float | None = None
    look_s: float = _LOOK_S


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """Where a run happens, as it was asked for.

    Attributes:
        provider: What cuts the GPU up; None: it is taken as it is.
        cores: Host cores that jobs may have, as a user writes them; None: all.
        grace_s: Between asking a job to end and killing it.
        patience_s: A job that counts its steps, and does none for so long, is ended; None: never.
    """

    device: Device
    command: str
    provider: DeviceProvider | None = None
    cores: str | None = None
    grace_s: float = GRACE_S
    patience_s: float | None = None


def start(
    plan: ExecutionPlan,
    plan_text: str,
    place: RunPlace,
    watch: Watch,
    most_steps: int | None = None,
) -> RunMonitor:
    """Run `plan` in a folder of its own, and watch it until all of it has ended.

    Args:
        plan: What is run.
        plan_text: The document that it was read from.
        place: Where it is run.
        watch: How.
        most_steps: As `plan` was read with.

    Raises:
        GpuUnavailable: Somebody else uses the device, or MPS or MIG cannot be set up.
        AdvisorError: Something cannot be written or started; nothing of the run is left.
        KeyboardInterrupt: It was interrupted; nothing of the run is left.
    """
    sweep()
    sweep_drafts()
    state = _before_it_starts(plan, place, most_steps)
    folder = RunFolder(runs_folder() / state.id)
    claim = GpuClaim(place.device.uuid, place.command, state.id)
    claim.take()
    with _signals() as asked:
        try:
            if place.device.uuid is not None:
                refuse_busy(place.device.uuid)
            folder.create(plan_text, state)
        except BaseException:
            claim.give_back()
            raise
        return _watched(RunningPlan(plan, folder, _site(place, claim), watch.say), watch, asked)


def _before_it_starts(plan: ExecutionPlan, place: RunPlace, most_steps: int | None) -> RunState:
    run_id = new_id()
    return RunState(
        id=run_id, gpu=plan.gpu, device=place.device.uuid or "cpu", boot=boot_id(),
        date=datetime.now(UTC).isoformat(timespec="seconds"), command=place.command,
        pipes=str(pipes_folder(run_id)), most_steps=most_steps,
        jobs=tuple(JobState(number=job.number) for job in plan.jobs),
    )  # fmt: skip


def resume(plan: ExecutionPlan, folder: RunFolder, place: RunPlace, watch: Watch) -> RunMonitor:
    """Go on watching the run in `folder`, whose watcher ended; otherwise as `start`.

    Raises:
        GpuUnavailable: It is watched already, or the machine was started anew since.
    """
    if not folder.state().same_boot:
        raise GpuUnavailable(
            f"run {folder.path.name}: the machine was started anew since, and nothing of it is "
            f"left. `advisor restore` clears it away; start it anew."
        )
    claim = GpuClaim(place.device.uuid, place.command, folder.path.name)
    claim.take()
    with _signals() as asked:
        return _watched(RunningPlan(plan, folder, _site(place, claim), watch.say), watch, asked)


def _site(place: RunPlace, claim: GpuClaim) -> Site:
    return Site(
        device=place.device,
        provider=place.provider or WholeDevice(place.device),
        meter=Meter(place.device),
        cores=allowed_cores(place.cores),
        claim=claim,
        grace_s=place.grace_s,
        patience_s=place.patience_s,
    )


def _watched(running: RunningPlan, watch: Watch, asked: Sequence[int]) -> RunMonitor:
    """Watch until the run is over; `asked` has the interrupts that came."""
    folder, monitor = running.folder, RunMonitor(running, watch.say, watch.expected)
    with folder.watched():
        running.begin()
        try:
            _to_the_end(monitor, watch, asked)
        except AdvisorError:
            running.stop()
            _wait_for_end(running, watch)
            raise
    if asked:
        end_run(folder)  # what a job that was killed left, if anything
        raise KeyboardInterrupt
    return monitor


def _to_the_end(monitor: RunMonitor, watch: Watch, asked: Sequence[int]) -> None:
    running, began_s, stopped = monitor.running, monotonic(), False
    while not running.state.over:
        running.advance()
        watch.show(monitor.view())
        late = watch.deadline_s is not None and monotonic() - began_s > watch.deadline_s
        if (asked or late) and not stopped:
            stopped = True
            watch.say("ending the jobs" + (" at the deadline" if not asked else ""))
            running.stop()
        sleep(0 if running.state.over else watch.look_s)


def _wait_for_end(running: RunningPlan, watch: Watch) -> None:
    """After an error: let what was started end; what does not is left to `advisor restore`."""
    while any(state.phase == "running" for state in running.state.jobs):
        running.observe()
        sleep(watch.look_s)
    running.stop()  # those that were never started
    running.finish()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Interrupts that came while the block ran; a terminal that goes away ends this process."""
    asked: list[int] = []

    def take(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)}
    hangup = signal.signal(signal.SIGHUP, lambda *_: os._exit(129))
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGHUP, hangup)
