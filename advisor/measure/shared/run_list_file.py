"""Reads a file of plans, or the output of ``advisor recommend --json``, as runs to measure.

The file is read strictly and with the standard library alone:

{"schema": 1, "gpu": "h200-141gb", "plans": [
    {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn", "repeats": null,
     "workloads": ["resnet50-imagenet64-bs128", {"name": ..., every field of a workload}]},
    {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
     "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
     "steps": [1000, 100, 300]}]}
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from hashlib import sha256
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.sharing import SHARED_MODES, parse_sharing
from advisor.sharing.traversal import mps_servers
from advisor.workload import named_workloads
from advisor.workload.files import read_json
from advisor.workload.spec import Workload

_Record = TypeVar("_Record")


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """The plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is not such a file, or is for another GPU; the message names the
            entry.
    """
    document = read_json(path)
    try:
        return _plans(document, gpu)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}. Correct the file.") from None


def _plans(document: Any, gpu: str) -> tuple[PlannedRun, ...]:
    if is_advice(document):
        document = plans_of_advice(document)
    if not isinstance(document, dict) or document.keys() != {"schema", "gpu", "plans"}:
        raise InvalidInput('the document must be an object of "schema", "gpu" and "plans"')
    if type(document["schema"]) is not int or document["schema"] != 1:
        raise InvalidInput(f"its schema is {document['schema']!r}, this advisor reads 1")
    if document["gpu"] != gpu:
        raise InvalidInput(
            f"its plans are for {document['gpu']}, and this device is {gpu}. Run them on the GPU "
            f"they were made for"
        )
    if not isinstance(document["plans"], list):
        raise InvalidInput('"plans" must be a list')
    plans = tuple(
        plan_of(entry, f"plans[{number}]", gpu) for number, entry in enumerate(document["plans"])
    )
    refuse_duplicate_ids([mix.id for plan in plans for mix in mixes_of(plan)])
    return plans


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


def plan_of(entry: Any, where: str, gpu: str) -> PlannedRun:
    """The plan that `entry` of a file holds; messages call it `where`.

    Raises:
        InvalidInput: It is not a plan, or `gpu` cannot run it.
    """
    try:
        if isinstance(entry, dict) and isinstance(entry.get("workloads"), list):
            workloads = enumerate(entry["workloads"])
            entry = entry | {"workloads": tuple(_workload(each, n) for n, each in workloads)}
        if isinstance(entry, dict) and isinstance(entry.get("steps"), list):
            entry = entry | {"steps": tuple(entry["steps"])}
        plan = _record(PlannedRun, entry)
        _refuse_of_cpu(gpu, plan)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
    return plan


def _refuse_of_cpu(gpu: str, plan: PlannedRun) -> None:
    if gpu == "cpu" and plan.capacity_mib is not None:
        raise InvalidInput("a CPU's memory cannot be made to look smaller; drop capacity_mib")
    if gpu == "cpu" and mps_servers(parse_sharing(plan.sharing), len(plan.workloads)):
        raise InvalidInput("a CPU is not shared by MPS; use naive or serial with it")


def _workload(entry: Any, number: int) -> Workload:
    try:
        return workload_of(entry)
    except InvalidInput as error:
        raise InvalidInput(f"workloads[{number}]: {error}") from None


def workload_of(entry: Any) -> Workload:
    """The workload that `entry` of a file names, or describes field by field.

    Raises:
        InvalidInput: `entry` is neither a known name nor a description.
    """
    return named_workloads.workload(entry) if isinstance(entry, str) else _record(Workload, entry)


def _record(kind: type[_Record], entry: Any) -> _Record:
    """The dataclass `kind` from the JSON object `entry`; unknown and missing keys are refused."""
    if not isinstance(entry, dict):
        raise InvalidInput(f"expected an object, got {entry!r}")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(entry.keys() - known.keys()):
        raise InvalidInput(f"unknown key {unknown[0]!r}; known: {', '.join(known)}")
    hints = get_type_hints(kind)
    for name, field in known.items():
        if name not in entry:
            if field.default is MISSING:
                raise InvalidInput(f"{name!r} is missing")
        elif not _is(entry[name], hints[name]):
            raise InvalidInput(f"{name!r} cannot be {entry[name]!r}")
    return kind(**entry)


def _is(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(hint))
    if isinstance(hint, UnionType):
        return any(_is(value, each) for each in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple)  # its members were read before, or `PlannedRun` reads them
    return value is None if hint in (None, NoneType) else type(value) is hint


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
                "workloads": [workloads[job["job"]] for job in plan["jobs"]],
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


def _can_be_run(plan: Mapping[str, Any]) -> bool:
    simple = parse_sharing(plan["sharing"]).mode in ("serial", *SHARED_MODES)
    return simple and plan.get("power_cap_w") is None


def _jobs(document: Mapping[str, Any]) -> list[list[str]]:
    return [[plan["sharing"], *(job["job"] for job in plan["jobs"])] for plan in document["plans"]]
