"""Plans run on this machine as the command line asks: watched, and kept for the next fit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from json import loads

from advisor.apply.mig_provider import MigProvider, refuse_switching
from advisor.errors import GpuUnavailable
from advisor.hardware.catalogue import gpu
from advisor.launch.launch_plan import NOT_RUN
from advisor.measure.execution.dry_run import capped, dry_run, refuse_unfit
from advisor.measure.execution.execution_command import exit_code_of, origin_of
from advisor.measure.execution.execution_plan import (
    ExecutionPlan,
    execution_plan,
    read_execution_plan,
)
from advisor.measure.execution.recorded_run import recorded_runs
from advisor.measure.execution.run_folder import run_named
from advisor.measure.execution.run_monitor import Expected, RunMonitor
from advisor.measure.execution.run_view import RunView
from advisor.measure.execution.watching import RunPlace, Watch, resume, start
from advisor.measure.process.claimed_device import Device, device_at_hand
from advisor.measure.process.cores import allowed_cores, named_cores
from advisor.measure.shared.strict_record import record
from advisor.validate.advised import store_file
from advisor.workload.plan_document import PlanDocument
from advisor.workload.run import Run
from advisor.workload.writing import append_run, writable

_COMMAND = "advisor run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """How a plan is to be run, as the user asked.

    Attributes:
        device: GPU index or UUID, or ``"cpu"``.
        cores: Host cores that jobs may have; None: all.
        steps: Most steps of each job of the zoo; None: as planned.
        replacing: Whether to remove idle MIG instances that are in the way, and make them again
            afterwards.
        say: Called with a line about each event.
        show: Called again and again with the state of the run.
        log: Called with each recorded run; None: nothing is logged.
    """

    device: str
    cores: str | None
    steps: int | None
    replacing: bool
    grace_s: float
    patience_s: float | None
    deadline_s: float | None
    say: Callable[[str], None]
    show: Callable[[RunView], None]
    log: Callable[[Run], None] | None = None

    def place(self, plan: ExecutionPlan) -> RunPlace:
        """Where `plan` is to run.

        Raises:
            GpuUnavailable: There is no such device, or it is in MIG mode and is not to be.
            InvalidInput: The device cannot run it.
        """
        device = device_at_hand(self.device, on_mig=plan.on_mig)
        refuse_unfit(plan, device)
        provider = None
        if plan.on_mig:
            provider = MigProvider(
                plan, gpu(plan.gpu), str(device.uuid), _COMMAND,
                replacing=self.replacing, say=self.say,
            )  # fmt: skip
        return RunPlace(
            device=device, command=_COMMAND, provider=provider, cores=self.cores,
            grace_s=self.grace_s, patience_s=self.patience_s,
        )  # fmt: skip

    def watch(self, expected: Expected | None) -> Watch:
        return Watch(say=self.say, show=self.show, expected=expected, deadline_s=self.deadline_s)


def rehearsed_plan(document: str, ask: Ask) -> list[str]:
    """What running the plan would start, where there is its GPU or not.

    Raises:
        InvalidInput: The device is another, there are too few cores or they cannot be meant, or MIG
            mode would be switched.
    """
    plan = _plan(document, ask)
    if plan.on_mig:
        refuse_switching(plan)
    device = _device_meant(plan, ask.device)
    if device is not None:
        lines = dry_run(plan, device, allowed_cores(ask.cores))
    else:
        some = Device("cuda", "UUID-OF-THE-GPU", plan.gpu, plan.gpu, None)
        lines = [*_said_of_cap(plan), *dry_run(plan, some, _cores_elsewhere(plan, ask.cores))]
    return [NOT_RUN, *lines] if plan.on_mig else lines


def _said_of_cap(plan: ExecutionPlan) -> list[str]:
    """What stands in the way on the plan's GPU, which is not here."""
    cap_w = plan.power_cap_w
    return [] if cap_w is None else [f"On its GPU this is refused: {capped(cap_w)}."]


def _cores_elsewhere(plan: ExecutionPlan, asked: str | None) -> Sequence[int]:
    """Cores of the machine that has the plan's GPU: those asked for, or enough."""
    if asked is None:
        return range(sum(job.core_count for job in plan.jobs))
    return named_cores(asked)


def _device_meant(plan: ExecutionPlan, asked: str) -> Device | None:
    """The device that `asked` names; None where this machine has none."""
    try:
        device = device_at_hand(asked, on_mig=plan.on_mig)
    except GpuUnavailable:
        return None
    refuse_unfit(plan, device)
    return device


def execute(document: str, expected: Expected, ask: Ask) -> int:
    """Run the plan in `document` to its end, and return the exit code.

    Raises:
        GpuUnavailable: No GPU, no permission, or somebody else uses it.
        AdvisorError: Something cannot be started or written; nothing of the run is left behind.
    """
    plan = _plan(document, ask)
    place = ask.place(plan)
    writable(store_file(place.device.key))
    monitor = start(plan, document, place, ask.watch(expected), ask.steps)
    return _kept(monitor, place, ask)


def watch_again(named: str, ask: Ask) -> int:
    """Watch the run of that name to its end, and return the exit code.

    Raises:
        GpuUnavailable: Somebody else watches it, or nothing of it is left.
        InvalidInput: There is no such run.
    """
    folder = run_named(named)
    state = folder.state()
    plan = read_execution_plan(folder.plan, state.most_steps)
    place = replace(ask, device=state.device).place(plan)
    return _kept(resume(plan, folder, place, ask.watch(None)), place, ask)


def _plan(document: str, ask: Ask) -> ExecutionPlan:
    return execution_plan(record(PlanDocument, loads(document)), ask.steps)


_NOTHING_KEPT = (
    "nothing of it is kept for `advisor fit`, which learns from jobs that all step side by side, "
    "for ten seconds at least"
)


def _kept(monitor: RunMonitor, place: RunPlace, ask: Ask) -> int:
    runs = list(recorded_runs(monitor, origin_of(place)))
    for run in runs:
        append_run(store_file(place.device.key), run)
        if ask.log is not None:
            ask.log(run)
    if not runs:
        ask.say(_NOTHING_KEPT)
    return exit_code_of(monitor)
