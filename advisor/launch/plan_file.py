"""Plans as JSON files, with the profiles of their jobs, and as scripts that `advisor run` starts.

The keys of a file are those of ``advisor recommend --json`` that ``advisor run`` needs.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput, UnknownName
from advisor.files.reading import located, parse_json, present_folder, read_bytes
from advisor.files.records import check_record, expecting, parse_record
from advisor.files.writing import json_text
from advisor.hardware.gpus import Gpu, gpu
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Start, check_memory, launch_plan
from advisor.launch.shell import commands_text
from advisor.prediction.find_profile import profile_finder
from advisor.prediction.mig_instances import placed
from advisor.prediction.prediction import MixPrediction
from advisor.sharing import Sharing, parse_sharing
from advisor.sharing.groups import check_count, without_ended
from advisor.workload.job import Job
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.run import (
    DocumentedJob,
    DocumentedPlan,
    PlanDocument,
    StepRange,
    embedded,
    planned_steps,
    profile_positions,
    workloads_by_name,
)
from advisor.workload.spec import Script, is_secret, masked_words

_SHARED_FIELDS = (
    "epochs",
    "validation_s",
    "checkpoint_s",
    "user",
    "data_parallel",
    "isolated",
    "protect",
)
_ADVICE_REMEDY = "Ask again: `advisor recommend --json`."
_REMEDY = "Export the plan again: `advisor export --format json`."


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """The plan of one GPU in a plan file: its jobs, and how they share it.

    Attributes:
        gpu: Catalogue key.
        sharing: Calls the jobs by their positions, from 1.
        numbers: Numbers of the jobs among all jobs of the file.
        power_cap_w: Power cap in watts; None: the GPU's own limit.
        host: Number of its host, from 0.
        device: Index of the GPU on its host.
    """

    gpu: str
    sharing: Sharing
    jobs: tuple[Job, ...]
    numbers: tuple[int, ...]
    power_cap_w: float | None
    host: int = 0
    device: int = 0

    def restricted_to(self, positions: Sequence[int]) -> "SavedPlan":
        """Return the plan of the jobs at these `positions`, the others of which are not started."""
        return replace(
            self,
            sharing=without_ended(self.sharing, len(self.jobs), positions),
            jobs=tuple(self.jobs[at] for at in positions),
            numbers=tuple(self.numbers[at] for at in positions),
        )


def plans_text(plans: Sequence[LaunchPlan], *, with_steps: bool = False) -> str:
    """Return the plan of one GPU, or of several, as JSON.

    Limits and memory caps of jobs are for other readers; predicted steps are for a watcher.
    """
    jobs = [start.job for plan in plans for start in plan.starts]
    profiles = profile_positions(jobs)
    documented = []
    for plan in plans:
        own = []
        for start in plan.starts:
            step_s = start.step_s
            steps = StepRange(step_s.p05, step_s.p50, step_s.p95) if with_steps else None
            job = replace(_documented_job(start), profile=profiles[start.job.profile], step_s=steps)
            own.append(job)
        documented.append(
            DocumentedPlan(
                rank=1,
                sharing=str(plan.sharing),
                power_cap_w=plan.power_cap_w,
                note=NOT_RUN if plan.on_mig else None,
                estimated_from=plan.estimated_from,
                gpu=None if plan.gpu.key == plans[0].gpu.key else plan.gpu.key,
                host=plan.host,
                device=plan.device,
                jobs=tuple(own),
            )
        )
    document = PlanDocument(
        schema=1,
        gpu=plans[0].gpu.key,
        objective=None,
        workloads=workloads_by_name(job.profile.workload for job in jobs),
        plans=tuple(documented),
        profiles=embedded(profiles),
    )
    return json_text(asdict(document))


def _documented_job(start: Start) -> DocumentedJob:
    workload = start.job.profile.workload
    return DocumentedJob(
        job=start.job.name,
        mps_limit_percent=start.limit,
        memory_cap_mib=start.memory_cap_mib,
        number=start.number,
        examples_per_epoch=workload.examples_per_epoch,
        script=workload.script,
        **_shared_fields(start.job),
    )


def read_plan(path: Path, profiles: Path | None = None) -> SavedPlan:
    """Read the plan of one GPU in the file `path`, as `plans_text` wrote it.

    Raises:
        InvalidInput: As `read_plans`, or it has plans of several GPUs.
    """
    plan, *others = read_plans(path, profiles)
    if others:
        raise InvalidInput(
            f"{path}: it is a plan for {len(others) + 1} GPUs, and this command needs a plan for "
            f"one GPU. Run it: `advisor run {path}`. Or export a plan without --gpus."
        )
    return plan


def read_plans(
    path: Path, profiles: Path | None = None, *, rank: int | None = None
) -> tuple[SavedPlan, ...]:
    """Read the plan of each GPU in `path`, as `plans_text` wrote it.

    With a `rank`, the file may also be an answer of `recommend`, of which the plan of that rank is
    read.

    Raises:
        InvalidInput: It holds no plan, or none of that rank, or a job has no profile, or the
            profile is of another workload.
    """
    text = read_bytes(path)
    with expecting("an exported plan", text, path):
        content = parse_json(text, str(path), _REMEDY)
    # An exported plan has no objective.
    if not isinstance(content, dict) or content.get("objective") is None:
        with expecting("an exported plan", text, path):
            document = parse_record(PlanDocument, text, str(path), _REMEDY)
        with located(path):
            plans = tuple(_saved(plan, document, profiles) for plan in document.plans)
        if rank not in (None, 1):
            raise InvalidInput(
                f"{path}: plan of rank {rank} not found: an exported file has one plan. Leave "
                f"--rank out, or export another plan by `advisor export --rank {rank}`."
            )
        return plans
    if rank is None:
        raise InvalidInput(
            f"{path} contains several plans. Write one of them: `advisor export --format json "
            f"--rank RANK`. Or run one: `advisor run {path} --rank RANK`."
        )
    try:
        with located(path):
            planned = _of_rank(content, rank)
        document = check_record(PlanDocument, planned, str(path), _ADVICE_REMEDY)
        with located(path):
            return (_saved(document.plans[0], document, profiles),)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path}: incomplete advice ({error!r}). {_ADVICE_REMEDY}") from None


def _saved(plan: DocumentedPlan, document: PlanDocument, profiles: Path | None) -> SavedPlan:
    key = plan.gpu or document.gpu
    load = profile_finder(gpu(key), profiles)
    if lacking := [job.job for job in plan.jobs if job.job not in document.workloads]:
        raise InvalidInput(f"workloads lacks {lacking[0]!r}. {_REMEDY}")
    jobs = tuple(_planned_job(planned, document.profiles, load) for planned in plan.jobs)
    for job, planned in zip(jobs, plan.jobs, strict=True):
        workload = document.workload_of(planned)
        if job.profile.workload != replace(workload, examples_per_epoch=planned.examples_per_epoch):
            raise InvalidInput(f"the profile of {planned.job} is of another workload. {_REMEDY}")
    sharing = parse_sharing(plan.sharing)
    check_count(sharing, len(jobs))
    return SavedPlan(
        gpu=key,
        sharing=sharing,
        jobs=jobs,
        numbers=plan.numbers,
        power_cap_w=plan.power_cap_w,
        host=plan.host,
        device=plan.device,
    )


def check_gpu_of_plan(wanted: str | None, planned: str, file: str) -> None:
    """Check that a plan from a file is for the GPU asked for, if one was.

    Raises:
        InvalidInput: It is for another GPU.
    """
    if wanted is not None and wanted != planned:
        raise InvalidInput(f"--gpu {wanted}: {file} is a plan for {planned}. Leave --gpu out.")


def check_same_jobs(plans: Sequence[SavedPlan]) -> SavedPlan:
    """Return the first of `plans`, all of which must have equal jobs and GPUs.

    Raises:
        InvalidInput: They do not.
    """
    first, *others = plans
    if any((other.gpu, other.jobs) != (first.gpu, first.jobs) for other in others):
        raise InvalidInput(
            "the two plan files are of different jobs or GPUs. Export both plans for the same "
            "jobs, in the same order: `advisor export --format json`."
        )
    return first


def _shared_fields(job: Job | DocumentedJob) -> dict[str, Any]:
    """Fields that `Job` and the file have in common: amount of work and constraints."""
    return {name: getattr(job, name) for name in _SHARED_FIELDS}


def _planned_job(planned: DocumentedJob, profiles: Sequence[Profile], load: FindsProfiles) -> Job:
    """The planned job; its profile is one of `profiles`, its script and epoch are its own."""
    try:
        profile = load(planned.job) if planned.profile is None else profiles[planned.profile]
    except UnknownName as error:
        raise InvalidInput(
            f"{error} An earlier version wrote the plan without profiles. {_REMEDY}"
        ) from None
    workload = replace(
        profile.workload, examples_per_epoch=planned.examples_per_epoch, script=planned.script
    )
    return Job(replace(profile, workload=workload), **_shared_fields(planned))


def _of_rank(advice: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Return the plan of that `rank` as an exported plan file has it."""
    if (gpus := advice.get("gpus", 1)) > 1:
        raise InvalidInput(
            f"expected a plan for one GPU, got advice for {gpus}. Write a file that `run` "
            f"accepts: `advisor export --gpus {gpus} --format json --out FILE`."
        )
    plan = next((plan for plan in advice["plans"] if plan["rank"] == rank), None)
    if plan is None:
        raise InvalidInput(f"plan of rank {rank} not found. {_ADVICE_REMEDY}")
    keys = {field.name for field in fields(DocumentedJob)} - {"number", "step_s"}
    only_exported = dict.fromkeys(("mps_limit_percent", "memory_cap_mib"))
    jobs = [
        only_exported | {key: value for key, value in job.items() if key in keys}
        for job in plan["jobs"]
    ]
    own = {"rank": 1, "sharing": plan["sharing"], "power_cap_w": plan.get("power_cap_w")}
    return {
        "schema": 1,
        "gpu": advice["gpu"],
        "objective": None,
        "workloads": advice["workloads"],
        "plans": [own | {"note": None, "jobs": jobs}],
        "profiles": advice.get("profiles", []),
    }


def gang_left_out(name: str, gpus: int, model: str) -> str:
    """Return why `advisor run` does not start the job `name` on so many GPUs of a `model`."""
    return (
        f"{name} takes {gpus} GPUs at once, and `advisor run` starts jobs of one GPU only. Write a "
        f"script for Slurm that starts it: `advisor export --format slurm --only {model}`."
    )


def run_wants(plans: Sequence[LaunchPlan]) -> tuple[str, ...]:
    """Return the reasons for which `advisor run` leaves out a job of `plans`, or refuses them."""
    jobs = dict.fromkeys(start.job for plan in plans for start in plan.starts)
    left_out = [
        f"`advisor run` leaves a job out: {gang_left_out(job.name, job.gpus, job.profile.gpu)}"
        for job in jobs
        if job.gpus > 1
    ]
    refused = [f"`advisor run` refuses this plan: {why}" for why in _refusals(jobs)]
    return tuple(dict.fromkeys([*left_out, *refused]))


def _refusals(jobs: Iterable[Job]) -> Iterator[str]:
    for job in jobs:
        try:
            if job.gpus == 1:
                job.profile.workload.check_startable()
        except InvalidInput as error:
            yield str(error)


def run_command(plans: Sequence[LaunchPlan], file: Path) -> str | None:
    """Return the command that prints what `advisor run` would start; None: it would refuse it."""
    jobs = [start.job for plan in plans for start in plan.starts]
    if any(_refusals(jobs)) or all(job.gpus > 1 for job in jobs):
        return None
    here = len({plan.host for plan in plans}) == len({plan.gpu for plan in plans}) == 1
    return f"advisor run {file}" + ("" if here else " --ray auto")


def prepare(saved: SavedPlan, gpu: Gpu, prediction: MixPrediction) -> LaunchPlan:
    """Place the parts of `saved`, for which `prediction` was made.

    Raises:
        NothingFits: The jobs run out of memory, or the GPU cannot be cut up like that.
        InvalidInput: MIG mode would be switched, or only numbers of a job are known.
    """
    for job in saved.jobs:
        job.profile.workload.check_startable()
    plan = launch_plan(saved.jobs, gpu, prediction, numbers=saved.numbers)
    if plan.switches_mode:
        raise InvalidInput(
            f"{plan.sharing}: some groups are on MIG and others are not. `advisor run` never "
            f"switches MIG mode. Run each group as a plan of its own, or use `advisor export`."
        )
    check_memory(plan, prediction)
    return replace(
        plan,
        sharing=placed(prediction.sharing, gpu),
        host=saved.host,
        device=saved.device,
    )


def script_text(
    plan: LaunchPlan, device_kind: str, steps: int | None, *, masked: bool = False
) -> str:
    """Return the script of `plan` as `export` writes it; jobs of the zoo train themselves.

    Args:
        plan: The plan.
        device_kind: ``"cuda"`` or ``"cpu"``.
        steps: Most steps of each job of the zoo; None: as planned.
        masked: Hide values of options that are secret by their names.

    Raises:
        InvalidInput: A job has no command.
    """

    def startable(start: Start) -> Start:
        workload = start.job.profile.workload
        script = workload.script
        if script is None:
            workload.check_startable()
            values = asdict(workload).items()
            fields = {name: each for name, each in values if each is not None and each is not False}
            words = [sys.executable, "-m", "advisor.zoo", json.dumps(fields, separators=(",", ":"))]
            most = planned_steps(_documented_job(start), workload, steps)
            words += ["--device", device_kind, *([] if most is None else ["--steps", str(most)])]
            variables = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            script = Script(
                command=tuple(words), folder=str(present_folder()), environment=variables
            )
        elif masked:
            script = replace(script, command=tuple(masked_words(script.command)))
        profile = replace(start.job.profile, workload=replace(workload, script=script))
        return replace(start, job=replace(start.job, profile=profile))

    return commands_text([plan.with_starts(startable)])


def refuse_unfit(plan: LaunchPlan, kind: str, key: str) -> None:
    """Check that `plan` is for the device of this `kind`, ``"cuda"`` or ``"cpu"``, and this key.

    Raises:
        InvalidInput: It is not.
    """
    if kind == "cpu":
        if plan.on_mig or plan.under_mps:
            raise InvalidInput(f"{plan.sharing}: a CPU has neither MPS nor MIG instances")
    elif plan.gpu.key != key:
        raise InvalidInput(
            f"the plan is for {plan.gpu.key}, and this device is {key}. Run it on its own GPU, or "
            "ask again: `advisor recommend`."
        )


def secret_variables(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables that the script of `plan` reads from its caller's environment.

    Raises:
        InvalidInput: A variable differs between jobs.
    """
    values: dict[str, str] = {}
    for start in plan.starts:
        script = start.job.profile.workload.script
        for name, value in (script.environment if script else {}).items():
            if is_secret(name) and values.setdefault(name, value) != value:
                raise InvalidInput(
                    f"{name} differs between jobs. Leave it out of the job file, and set it in "
                    f"each job's own script."
                )
    return values
