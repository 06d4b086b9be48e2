"""The file that says what to run together: read strictly, with the standard library alone.

{"schema": 1, "gpu": "h200-141gb", "plans": [
    {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn", "repeats": null,
     "workloads": ["resnet50-imagenet64-bs128", {"name": ..., every field of a workload}]},
    {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
     "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
     "steps": [1000, 100, 300]}]}

What ``advisor recommend --json`` prints will do as well: see `recommended_plans`.
"""

from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from advisor.errors import InvalidInput
from advisor.measure.shared.planned_run import PlannedRun, mixes_of
from advisor.measure.shared.recommended_plans import is_advice, plans_of_advice
from advisor.sharing import parse_sharing
from advisor.sharing.parts import mps_servers
from advisor.workload import named_workloads
from advisor.workload.files import read_json
from advisor.workload.spec import Workload

_Record = TypeVar("_Record")


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """The plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is no such file, or for another GPU; says which entry is wrong.
    """
    document = read_json(path)
    try:
        return _plans(document, gpu)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}. Mend the file.") from None


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
    refuse_twins([mix.id for plan in plans for mix in mixes_of(plan)])
    return plans


def refuse_twins(ids: list[str]) -> None:
    """See that no id comes twice.

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
        InvalidInput: It holds none, or one that `gpu` cannot run.
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
        InvalidInput: It does neither.
    """
    return named_workloads.workload(entry) if isinstance(entry, str) else _record(Workload, entry)


def _record(kind: type[_Record], entry: Any) -> _Record:
    """The dataclass `kind` that the JSON object `entry` holds, nothing more and nothing less."""
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
