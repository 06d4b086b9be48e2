"""A plan as what `advisor run` starts: its script, with a command for every job."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from advisor.errors import InvalidInput
from advisor.hardware.gpus import Gpu
from advisor.hardware.host_cores import cores_of_each
from advisor.launch.exports import commands_text
from advisor.launch.launch_plan import LaunchPlan, check_memory, launch_plan
from advisor.launch.plan_file import SavedPlan, plan_document
from advisor.launch.shell import switches_mode
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import Interval, MixPrediction
from advisor.workload.job import Job, is_secret, masked_words
from advisor.workload.plan_document import StepRange, planned_steps
from advisor.workload.reading import present_folder
from advisor.workload.spec import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTerms:
    """How a plan is run.

    Attributes:
        device: GPU index or UUID, or ``"cpu"`` to try out.
        cores: Host cores that jobs may have, as a user writes them; None: all.
        steps: Most steps of each job of the zoo; None: as planned.
        replace_instances: Remove idle MIG instances that are in the way until the end.
        grace_s: Between asking a job to end and killing it.
    """

    device: str = "0"
    cores: str | None = None
    steps: int | None = None
    replace_instances: bool = False
    grace_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A plan with all that its script and its watcher need.

    Attributes:
        plan: As predicted, for the jobs of the plan.
        prediction: Of all jobs.
        document: The plan as a file, with the predicted steps.
    """

    plan: LaunchPlan
    prediction: MixPrediction
    document: str

    def script(self, device_kind: str, steps: int | None, *, masked: bool = False) -> str:
        """Return the script as `export` writes it; jobs of the zoo train themselves.

        Args:
            device_kind: ``"cuda"`` or ``"cpu"``.
            steps: Most steps of each job of the zoo; None: as planned.
            masked: Hide values of options that are secret by their names.

        Raises:
            InvalidInput: A job has no command.
        """
        jobs = []
        for start, planned in zip(
            self.plan.starts, plan_document(self.plan).plans[0].jobs, strict=True
        ):
            most = planned_steps(planned, start.job.profile.workload, steps)
            jobs.append(_startable(start.job, device_kind, most, masked=masked))
        return commands_text(launch_plan(jobs, self.plan.gpu, self.prediction))

    def refuse_unfit(self, kind: str, key: str, allowed: Sequence[int]) -> None:
        """Check that the plan is for a device.

        Args:
            kind: ``"cuda"`` or ``"cpu"``.
            key: Catalogue key of the device.
            allowed: Host cores that jobs may have.

        Raises:
            InvalidInput: It is not, or there are too few cores.
        """
        plan = self.plan
        if kind == "cpu":
            if plan.on_mig or any(part.under_mps for part in plan.partitions):
                raise InvalidInput(f"{plan.sharing}: a CPU has neither MPS nor MIG instances")
        elif plan.gpu.key != key:
            raise InvalidInput(
                f"the plan is for {plan.gpu.key}, and this device is {key}. Run it on the GPU "
                f"that it was made for, or ask again: `advisor recommend`."
            )
        for stage in plan.stages:
            wanted = [each.core_count or 1 for each in stage.starts]
            one_by_one = stage.partitions[0].sharing.mode == "serial"
            cores_of_each([max(wanted)] if one_by_one else wanted, allowed, share=kind == "cpu")

    def secrets(self) -> dict[str, str]:
        """Variables that the script takes from its caller instead of holding them."""
        found: dict[str, str] = {}
        for start in self.plan.starts:
            script = start.job.profile.workload.script
            for name, value in (script.environment if script else {}).items():
                if is_secret(name) and found.setdefault(name, value) != value:
                    raise InvalidInput(
                        f"{name} differs between jobs. Leave it out of the job file, and set it in "
                        f"each job's own script."
                    )
        return found


def prepare(saved: SavedPlan, gpu: Gpu, prediction: MixPrediction) -> PreparedRun:
    """Place the parts of `saved`, for which `prediction` was made.

    Raises:
        NothingFits: The jobs run out of memory, or the GPU cannot be cut up like that.
        InvalidInput: MIG mode would be switched.
    """
    plan = launch_plan(saved.jobs, gpu, prediction)
    if switches_mode(plan):
        raise InvalidInput(
            f"{plan.sharing}: some groups are on MIG and others are not. `advisor run` never "
            f"switches MIG mode. Run each group as a plan of its own, or use `advisor export`."
        )
    check_memory(plan, prediction)
    plan = replace(plan, sharing=placed(prediction.sharing, gpu))
    steps = {number: step_range(job.step_s) for number, job in enumerate(prediction.jobs, start=1)}
    document = json.dumps(asdict(plan_document(plan, steps)), indent=1, allow_nan=False) + "\n"
    return PreparedRun(plan, prediction, document)


def step_range(step_s: Interval) -> StepRange:
    """A predicted step as a plan file has it."""
    return StepRange(step_s.p05, step_s.p50, step_s.p95)


def _startable(job: Job, device_kind: str, steps: int | None, *, masked: bool) -> Job:
    workload = job.profile.workload
    script = workload.script
    if script is None:
        workload.check_startable()
        fields = {name: value for name, value in asdict(workload).items() if value is not None}
        words = [sys.executable, "-m", "advisor.zoo", json.dumps(fields, separators=(",", ":"))]
        words += ["--device", device_kind, *([] if steps is None else ["--steps", str(steps)])]
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        script = Script(command=tuple(words), folder=str(present_folder()), environment=one_thread)
    elif masked:
        script = script.with_words(command=tuple(masked_words(script.command)))
    return replace(job, profile=replace(job.profile, workload=replace(workload, script=script)))
