"""Reads a file of plans, or the output of ``advisor recommend --json``, as runs to measure.

The file is read strictly, as `advisor.measure.shared.strict_record` does:

{"schema": 1, "gpu": "h200-141gb", "plans": [
    {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn", "repeats": null,
     "workloads": ["resnet50-imagenet64-bs128", {"name": ..., every field of a workload}]},
    {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
     "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
     "steps": [1000, 100, 300]}]}
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.measure.shared.strict_record import record
from advisor.sharing import parse_sharing
from advisor.sharing.traversal import mps_servers, together
from advisor.workload.documents import read_json
from advisor.workload.files import located


@dataclass(frozen=True, slots=True)
class _RunList:
    schema: Any
    gpu: str
    plans: tuple[PlannedRun, ...]


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """The plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is not such a file, or is for another GPU; the message names the
            entry.
    """
    document = read_json(path)
    with located(path, "Correct the file."):
        return _plans(document, gpu)


def _plans(document: Any, gpu: str) -> tuple[PlannedRun, ...]:
    if is_advice(document):
        document = plans_of_advice(document)
    found = record(_RunList, document)
    if type(found.schema) is not int or found.schema != 1:
        raise InvalidInput(f"its schema is {found.schema!r}, this advisor reads 1")
    if found.gpu != gpu:
        raise InvalidInput(
            f"its plans are for {found.gpu}, and this device is {gpu}. Run them on the GPU they "
            f"were made for"
        )
    refuse_of_cpu(gpu, found.plans, "plans")
    refuse_duplicate_ids([mix.id for plan in found.plans for mix in mixes_of(plan)])
    return found.plans


def refuse_duplicate_ids(ids: list[str]) -> None:
    """Check that no id occurs twice.

    Raises:
        InvalidInput: One does.
    """
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            raise InvalidInput(f"two runs would have the id {each!r}")
        seen.add(each)


def refuse_of_cpu(gpu: str, plans: Sequence[PlannedRun], where: str) -> None:
    """Check that a CPU can run `plans`, if `gpu` is one; messages call them `where`.

    Raises:
        InvalidInput: It cannot.
    """
    for number, plan in enumerate(plans if gpu == "cpu" else ()):
        if plan.capacity_mib is not None:
            raise InvalidInput(
                f"{where}[{number}]: a CPU's memory cannot be made to look smaller; drop "
                f"capacity_mib"
            )
        if mps_servers(parse_sharing(plan.sharing), len(plan.workloads)):
            raise InvalidInput(
                f"{where}[{number}]: a CPU is not shared by MPS; use naive or serial with it"
            )


def is_advice(document: Any) -> bool:
    """Whether `document` is advice rather than a file of plans."""
    return isinstance(document, dict) and "objective" in document


def plans_of_advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of `document` in the form of a plan file, with the purpose of validation.

    A run's id is made of its jobs and its rank, so that ``--resume`` recognises it. Plans on MIG,
    in phases and under a power cap are left out: MIG instances and caps are not set here, and a
    run has one sharing.

    Raises:
        InvalidInput: Part of the advice is missing, or none of its plans can be run.
    """
    try:
        workloads = document["workloads"]
        name = sha256(json.dumps([workloads, _jobs(document)]).encode()).hexdigest()[:8]
        plans = [
            {
                "id": f"advice-{name}-plan{plan['rank']}",
                "sharing": plan["sharing"],
                "purpose": "validation",
                "workloads": [_workload(job, workloads) for job in plan["jobs"]],
            }
            for plan in document["plans"]
            if _can_be_run(plan)
        ]
        gpu, schema = document["gpu"], document["schema"]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"it is advice, but incomplete ({error!r})") from None
    if not plans:
        raise InvalidInput(
            "all plans of this advice are on MIG, in phases or under a power cap. Ask for more: "
            "`advisor recommend`"
        )
    return {"schema": schema, "gpu": gpu, "plans": plans}


def _workload(job: Mapping[str, Any], workloads: Mapping[str, Any]) -> Any:
    """What `job` of a plan trains; its own script, if it has one, starts it."""
    named = workloads[job["job"]]
    return named | {"script": job["script"]} if job.get("script") else named


def _can_be_run(plan: Mapping[str, Any]) -> bool:
    sharing = parse_sharing(plan["sharing"])
    simple = sharing.mode == "serial" or together(sharing) is not None
    return simple and plan.get("power_cap_w") is None


def _jobs(document: Mapping[str, Any]) -> list[list[Any]]:
    return [[plan["sharing"], *map(_named, plan["jobs"])] for plan in document["plans"]]


def _named(job: Mapping[str, Any]) -> Any:
    """The name of `job`, and its own script, if it has one."""
    return [job["job"], job["script"]] if job.get("script") else job["job"]
