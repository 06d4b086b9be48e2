"""A dry run: lists all that running a plan would start, and starts nothing."""

from collections.abc import Mapping, Sequence
from shlex import join

from advisor.errors import InvalidInput
from advisor.measure.execution.execution_plan import ExecutedJob, ExecutionPlan
from advisor.measure.execution.job_process import command_of
from advisor.measure.execution.mps_daemons import MpsDaemons, pipes_folder
from advisor.measure.execution.run_site import cores_of_stage, own_variables
from advisor.measure.process.claimed_device import Device
from advisor.workload.secret_names import masked_variables, masked_words


def refuse_unfit(plan: ExecutionPlan, device: Device) -> None:
    """Check that `plan` is for `device`.

    Raises:
        InvalidInput: It is for another, a CPU cannot run it, or it is under a power cap.
    """
    if plan.power_cap_w is not None:
        raise InvalidInput(capped(plan.power_cap_w))
    if device.kind == "cpu":
        if plan.on_mig or any(part.under_mps for each in plan.stages for part in each.partitions):
            raise InvalidInput(f"{plan.sharing}: a CPU has neither MPS nor MIG instances")
    elif plan.gpu != device.key:
        raise InvalidInput(
            f"the plan is for {plan.gpu}, and this device is {device.key}. Run it on the GPU that "
            f"it was made for, or ask anew: `advisor recommend`"
        )


def capped(power_cap_w: float) -> str:
    """Why a plan under that power cap is not run."""
    return (
        f"the plan is under a power cap of {power_cap_w:g} W, which is not set here. `advisor "
        f"export --power-cap {power_cap_w:g}` writes shell lines that set it; or ask for a plan "
        f"without one"
    )


def dry_run(plan: ExecutionPlan, device: Device, allowed: Sequence[int]) -> list[str]:
    """Every process that running `plan` would start, with its variables, cores and command.

    Args:
        plan: What would be run.
        device: Where.
        allowed: Host cores that jobs may have.

    Raises:
        InvalidInput: There are too few cores.
    """
    daemons, lines = MpsDaemons("RUN", pipes_folder("RUN")), []
    uuid = device.uuid or ""
    for number, stage in enumerate(plan.stages, start=1):
        if len(plan.stages) > 1:
            lines.append(f"stage {number} of {len(plan.stages)}, when the one before has ended:")
        own = cores_of_stage(stage, plan.jobs, allowed, share=device.kind == "cpu")
        for part in stage.partitions:
            where = f"UUID of {part.instance}" if part.instance else uuid
            if part.under_mps:
                daemon = daemons.of(part, where).environment.items()
                lines += ["MPS daemon", *(f"  {name}={value}" for name, value in daemon)]
                lines.append("  $ nvidia-cuda-mps-control -f")
            for job in part.jobs:
                given = dict(own_variables(plan.job(job), part, where, daemons))
                lines += _lines_of(plan.job(job), given, own[job], device.kind)
    lines.append("Nothing was started: add --apply.")
    return lines


def _lines_of(
    job: ExecutedJob, own: Mapping[str, str], cores: Sequence[int], kind: str
) -> list[str]:
    command = command_of(job, kind)
    given = dict(own) | dict(masked_variables(command.environment))
    return [
        f"job {job.number}, {job.name}",
        f"  cores: {','.join(map(str, cores))}",
        f"  folder: {command.folder}",
        *(f"  {name}={value}" for name, value in given.items()),
        f"  $ {join(masked_words(command.words))}",
    ]
