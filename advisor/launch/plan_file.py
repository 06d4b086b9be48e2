"""Writes and reads a plan as a JSON file, to simulate it or for ``python -m advisor.measure runs``.

The keys are those of ``advisor recommend --json`` as far as that command needs them; each job of
the plan has its name, how much of it is to run, and its constraints.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from advisor.errors import InvalidInput, UnknownName
from advisor.hardware.gpus import gpu
from advisor.launch.launch_plan import NOT_RUN, LaunchPlan, Start
from advisor.measure.run_list import is_advice
from advisor.prediction.find_profile import profile_finder
from advisor.sharing import Sharing, parse_sharing
from advisor.sharing.groups import check_count
from advisor.workload.job import Job
from advisor.workload.plan_document import (
    DocumentedJob,
    DocumentedPlan,
    PlanDocument,
    StepRange,
    workloads_by_name,
)
from advisor.workload.profile import FindsProfiles, Profile
from advisor.workload.reading import located, read_bytes, read_json
from advisor.workload.records import check_record, parse_record
from advisor.workload.spec import Workload

_ASKED = (
    "epochs", "validation_s", "checkpoint_s", "user", "data_parallel", "isolated", "protect"
)  # fmt: skip
_REMEDY = "Export the plan again: `advisor export --format json`."


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """The content of a plan file: jobs on one GPU, and how they share it.

    Attributes:
        gpu: Catalogue key.
        power_cap_w: Power cap in watts; None: the GPU's own limit.
    """

    gpu: str
    sharing: Sharing
    jobs: tuple[Job, ...]
    power_cap_w: float | None


def plan_text(plan: LaunchPlan) -> str:
    """`plan` as JSON; cores, limits and memory caps of jobs are there for others to read."""
    return json.dumps(asdict(plan_document(plan)), indent=1, allow_nan=False) + "\n"


def plan_document(
    plan: LaunchPlan, predicted: Mapping[int, StepRange] = MappingProxyType({})
) -> PlanDocument:
    """The content of a plan file; `predicted` holds predicted steps by job number."""
    return PlanDocument(
        schema=1,
        gpu=plan.gpu.key,
        objective=None,
        workloads=workloads_by_name(start.job.profile.workload for start in plan.starts),
        plans=(
            DocumentedPlan(
                rank=1,
                sharing=str(plan.sharing),
                power_cap_w=plan.power_cap_w,
                note=NOT_RUN if plan.on_mig else None,
                estimated_from=plan.estimated_from,
                jobs=tuple(_planned(each, predicted.get(each.number)) for each in plan.starts),
            ),
        ),
    )


def read_plan(path: Path, profiles: Path | None = None) -> SavedPlan:
    """The plan in the file `path`, as `plan_text` wrote it.

    Raises:
        InvalidInput: It holds no plan, or a job has no profile, or the profile is of another
            workload.
    """
    found = read_json(path, _REMEDY)
    if isinstance(found, dict) and found.get("objective") is not None:
        raise InvalidInput(
            f"{path}: it is advice, of several plans. `advisor export --format json` writes one of "
            f"them, by --rank; `advisor run` takes advice too."
        )
    document = read_plan_document(path)
    (plan,) = document.plans
    load = profile_finder(gpu(document.gpu), profiles)
    if lacking := [each.job for each in plan.jobs if each.job not in document.workloads]:
        raise InvalidInput(f"{path}: workloads lacks {lacking[0]!r}. {_REMEDY}")
    with located(path):
        jobs = tuple(
            _job(planned_profile(each.job, load), each, document.workloads[each.job])
            for each in plan.jobs
        )
        sharing = parse_sharing(plan.sharing)
        check_count(sharing, len(jobs))
    return SavedPlan(document.gpu, sharing, jobs, plan.power_cap_w)


def read_plan_document(path: Path) -> PlanDocument:
    """The content of a plan file, whatever profiles there are.

    Raises:
        InvalidInput: It holds no plan.
    """
    return parse_record(PlanDocument, read_bytes(path), str(path), _REMEDY)


def planned_profile(name: str, load: FindsProfiles) -> Profile:
    """The profile of a job that a plan names, found by `load`.

    Raises:
        InvalidInput: There is none of that name.
    """
    try:
        return load(name)
    except UnknownName as error:
        raise InvalidInput(
            f"{error} If the plan was made from a file of its profile, name the file's folder: "
            "--profiles DIR."
        ) from None


def plan_named(word: str, profiles: Path | None = None) -> str | SavedPlan:
    """The plan in the file `word` if it ends in .json, else `word` as the notation of a sharing.

    Raises:
        InvalidInput: The file holds no plan.
    """
    return read_plan(Path(word), profiles) if word.endswith(".json") else word


def check_gpu_of_plan(asked: str | None, planned: str, file: str) -> None:
    """Check that a plan from a file is for the GPU asked for, if one was.

    Raises:
        InvalidInput: It is for another GPU.
    """
    if asked is not None and asked != planned:
        raise InvalidInput(f"--gpu {asked}: {file} is a plan for {planned}. Leave --gpu out.")


def check_same_jobs(plans: Sequence[SavedPlan]) -> SavedPlan:
    """The first of `plans`, all of which must have equal jobs and GPUs.

    Raises:
        InvalidInput: They do not.
    """
    first, *others = plans
    for other in others:
        if (other.gpu, other.jobs) != (first.gpu, first.jobs):
            raise InvalidInput(
                "the two plan files are of different jobs or GPUs. Export both plans for the same "
                "jobs, in the same order: `advisor export --format json`."
            )
    return first


def _planned(start: Start, step_s: StepRange | None) -> DocumentedJob:
    job = start.job
    return DocumentedJob(
        job=job.name,
        cores=start.cores,
        mps_limit_percent=start.limit,
        memory_cap_mib=start.memory_cap_mib,
        step_s=step_s,
        **asked_of(job),
    )


def asked_of(job: Job) -> dict[str, Any]:
    """What a file says of a job besides its name: how much of it, its constraints, its script."""
    workload = job.profile.workload
    own = {"examples_per_epoch": workload.examples_per_epoch, "script": workload.script}
    return own | _asked_of(job)


def _asked_of(job: Job | DocumentedJob) -> dict[str, Any]:
    """Fields of `job` that `Job` and the file have in common: amount of work and constraints."""
    return {name: getattr(job, name) for name in _ASKED}


def _job(profile: Profile, planned: DocumentedJob, asked: Workload) -> Job:
    """As `planned_job`, if `profile` is of the workload that was `asked` for."""
    found = planned_job(profile, planned)
    workload = found.profile.workload
    if workload != replace(asked, examples_per_epoch=planned.examples_per_epoch):
        raise InvalidInput(f"the profile of {planned.job} is of another workload. {_REMEDY}")
    return found


def planned_job(profile: Profile, planned: DocumentedJob) -> Job:
    """The job that was planned, of `profile`; its script and its epoch are as in the file."""
    workload = replace(
        profile.workload,
        examples_per_epoch=planned.examples_per_epoch,
        script=planned.script,
    )
    return Job(replace(profile, workload=workload), **_asked_of(planned))


_SAVED_PLAN_REMEDY = "Ask again: `advisor recommend --json`."
# What an exported plan says of a job and advice does not.
_OF_EXPORT = ("cores", "mps_limit_percent", "memory_cap_mib")


def saved_plan(path: Path, rank: int, profiles: Path | None = None) -> SavedPlan:
    """The plan in `path`: an exported one, or the one of that rank in an answer of `recommend`.

    Raises:
        InvalidInput: It holds none, or none of that rank, or a job has no profile.
    """
    document = read_json(path)
    # An exported plan has no objective.
    if not is_advice(document) or document["objective"] is None:
        exported = read_plan(path, profiles)
        if rank != 1:
            raise InvalidInput(
                f"{path}: it has no plan of rank {rank}: a plan that was exported is alone in its "
                f"file. Leave --rank out, or choose another by `advisor export --rank {rank}`."
            )
        return exported
    try:
        return _advised(document, rank, profiles)
    except (KeyError, TypeError, AttributeError, ArithmeticError, ValueError) as error:
        raise InvalidInput(
            f"{path}: it is advice, but incomplete ({error!r}). {_SAVED_PLAN_REMEDY}"
        ) from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None


def _advised(document: Mapping[str, Any], rank: int, profiles: Path | None) -> SavedPlan:
    if (gpus := document.get("gpus", 1)) > 1:
        raise InvalidInput(
            f"it is a plan for {gpus} GPUs, and a run is on one. For the same jobs `advisor export "
            f"--gpus {gpus} --format json --out FILE` writes a plan for each GPU, and `advisor "
            f"recommend --gpus {gpus} --commands 1` prints the shell lines for all."
        )
    plans = [each for each in document["plans"] if each["rank"] == rank]
    if not plans:
        raise InvalidInput(f"it has no plan of rank {rank}. {_SAVED_PLAN_REMEDY}")
    (plan,) = plans
    load = profile_finder(gpu(str(document["gpu"])), profiles)
    epochs: Sequence[Any] = document.get("epochs") or [1.0] * len(plan["jobs"])
    jobs = tuple(
        _saved_plan_job(job, float(each), load)
        for job, each in zip(plan["jobs"], epochs, strict=True)
    )
    sharing = parse_sharing(str(plan["sharing"]))
    check_count(sharing, len(jobs))
    return SavedPlan(str(document["gpu"]), sharing, jobs, plan.get("power_cap_w"))


def _saved_plan_job(advised: Mapping[str, Any], epochs: float, load: FindsProfiles) -> Job:
    """The job that advice names; old advice says no more of it than its name, and its `epochs`."""
    name = str(advised["job"])
    profile = planned_profile(name, load)
    if "script" not in advised:
        return Job(profile, epochs)
    said = {each.name for each in fields(DocumentedJob)} & advised.keys()
    entry = dict.fromkeys(_OF_EXPORT) | {key: advised[key] for key in said}
    planned = check_record(DocumentedJob, entry, name, _SAVED_PLAN_REMEDY)
    with located(name, _SAVED_PLAN_REMEDY):
        return planned_job(profile, planned)
