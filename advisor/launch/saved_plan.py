"""Reads the plan that `run` starts, from an exported plan or from an answer of `recommend`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.hardware.catalogue import gpu
from advisor.launch.plan_file import (
    SavedPlan,
    planned_job,
    planned_profile,
    read_plan,
)
from advisor.measure.shared.run_list_file import is_advice
from advisor.measure.shared.strict_record import record
from advisor.prediction.estimated_profile import profile_finder
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import check_count
from advisor.workload.documents import read_json
from advisor.workload.files import located
from advisor.workload.job import Job
from advisor.workload.plan_document import DocumentedJob
from advisor.workload.profile import FindsProfiles

_REMEDY = "Ask again: `advisor recommend --json`."
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
        raise InvalidInput(f"{path}: it is advice, but incomplete ({error!r}). {_REMEDY}") from None
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
        raise InvalidInput(f"it has no plan of rank {rank}. {_REMEDY}")
    (plan,) = plans
    load = profile_finder(gpu(str(document["gpu"])), profiles)
    epochs: Sequence[Any] = document.get("epochs") or [1.0] * len(plan["jobs"])
    jobs = tuple(
        _job(job, float(each), load) for job, each in zip(plan["jobs"], epochs, strict=True)
    )
    sharing = parse_sharing(str(plan["sharing"]))
    check_count(sharing, len(jobs))
    return SavedPlan(str(document["gpu"]), sharing, jobs, plan.get("power_cap_w"))


def _job(advised: Mapping[str, Any], epochs: float, load: FindsProfiles) -> Job:
    """The job that advice names; old advice says no more of it than its name, and its `epochs`."""
    name = str(advised["job"])
    profile = planned_profile(name, load)
    if "script" not in advised:
        return Job(profile, epochs)
    said = {each.name for each in fields(DocumentedJob)} & advised.keys()
    entry = dict.fromkeys(_OF_EXPORT) | {key: advised[key] for key in said}
    with located(name, _REMEDY):
        return planned_job(profile, record(DocumentedJob, entry))
