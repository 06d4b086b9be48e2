"""Reads lists of planned runs.

The file is read strictly, with the standard library alone: values that are missing, unknown or
invalid are refused with their key, e.g. ``degrees.2.naive.same``.

    {"schema": 1, "gpu": "h200-141gb", "plans": [
        {"id": "drawn-001", "sharing": "mps=43,57", "purpose": "drawn", "repeats": null,
         "workloads": ["resnet50-imagenet64-bs128", {"name": ..., every field of a workload}]},
        {"id": "whole-1", "sharing": "naive[1];mps[2,3]", "purpose": "completion",
         "workloads": ["dlrm-1gb-bs128", "gru-speech-bs64", "gru-speech-bs64"],
         "steps": [1000, 100, 300]}]}
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from hashlib import sha256
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from advisor.errors import InvalidInput
from advisor.sharing import Concurrent, Naive, parse_sharing
from advisor.sharing.groups import check_count, mps_servers, restricted, running_together, together
from advisor.workload.catalogue import workload as named_workload
from advisor.workload.reading import REMOVED_FIELDS, located, read_json
from advisor.workload.run import Purpose
from advisor.workload.spec import Workload

# More tenants than are useful on any GPU, and few enough to start.
_MOST_WORKLOADS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """Workloads to run together, as a user or a campaign asked for.

    Attributes:
        id: Becomes the run's; ``ID.1``, ``ID.2``... where a serial plan has several workloads.
        sharing: In the notation of `advisor.sharing.parse_sharing`.
        purpose: See `advisor.workload.run.Run`.
        repeats: Id of the run that this one repeats, with purpose ``"repeat"``.
        capacity_mib: Size of the card that the GPU is made to look like, with purpose ``"memory"``.
        steps: Steps of each workload, with purpose ``"completion"``: then all of them run to their
            end, also serially and in phases.
        workloads: In the order of the limits in `sharing`.
    """

    id: str
    sharing: str
    purpose: Purpose
    repeats: str | None = None
    capacity_mib: int | None = None
    steps: tuple[int, ...] | None = None
    workloads: tuple[Workload, ...]

    def __post_init__(self) -> None:
        if not self.id:
            raise InvalidInput("a plan needs an id, for --resume and for repeats")
        if not 1 <= len(self.workloads) <= _MOST_WORKLOADS:
            raise InvalidInput(
                f"a plan has 1 to {_MOST_WORKLOADS} workloads, got {len(self.workloads)}"
            )
        if (self.purpose == "repeat") != (self.repeats is not None):
            raise InvalidInput('"repeats" names a run if and only if purpose is "repeat"')
        if (self.purpose == "memory") != (self.capacity_mib is not None):
            raise InvalidInput('a "capacity_mib" is given if and only if purpose is "memory"')
        if self.capacity_mib is not None and self.capacity_mib < 1:
            raise InvalidInput(f"a card has at least 1 MiB, got {self.capacity_mib}")
        for workload in self.workloads:
            workload.check_startable()
            script = workload.script
            if self.steps is not None and script is not None and not script.by_steps:
                raise InvalidInput(
                    f"{workload.name}: its steps are not counted, so its pace among others cannot "
                    f"be measured. Leave it out here: `advisor run` runs it"
                )
        self._check_steps()
        sharing = parse_sharing(self.sharing)
        if sharing.instances:
            raise InvalidInput(
                "MIG plans cannot be run: instances are not created here. Run the others"
            )
        if sharing.mode == "phases" and self.steps is None:
            raise InvalidInput(f"{sharing} is several runs: plan each group as one, or give steps")
        check_count(sharing, len(self.workloads))

    def _check_steps(self) -> None:
        if (self.purpose == "completion") != (self.steps is not None):
            raise InvalidInput('"steps" are given if and only if purpose is "completion"')
        steps = self.steps or (1,) * len(self.workloads)
        if len(steps) != len(self.workloads):
            raise InvalidInput(f"{len(steps)} numbers of steps for {len(self.workloads)} workloads")
        if any(type(each) is not int or each < 1 for each in steps):
            raise InvalidInput(f"steps are whole numbers from 1, got {list(steps)}")

    @property
    def groups(self) -> tuple[tuple[tuple[int, ...], Concurrent], ...]:
        """Positions of the workloads that run at the same time and how they share, in turn.

        In a serial plan each workload is a group.
        """
        sharing = parse_sharing(self.sharing)
        return tuple(
            (tuple(jobs), together(restricted(sharing, jobs)) or Naive())  # alone in turn is naive
            for jobs in map(sorted, running_together(sharing, len(self.workloads)))
        )


def single_runs(plan: PlannedRun) -> tuple[PlannedRun, ...]:
    """Divide `plan` into what one `Run` records: a serial plan runs each distinct workload alone.

    A plan with steps is one run.
    """
    if plan.steps is not None or together(parse_sharing(plan.sharing)) is not None:
        return (plan,)
    # Copies that run alone take equally long: one of them is enough.
    workloads = list(dict.fromkeys(plan.workloads))
    suffixes = [f".{number}" for number, _ in enumerate(workloads, start=1)]
    if len(workloads) == 1:
        suffixes = [""]
    return tuple(
        replace(
            plan, id=plan.id + suffix, sharing=str(Naive()), workloads=(workload,),
            repeats=None if plan.repeats is None else plan.repeats + suffix,
        )
        for workload, suffix in zip(workloads, suffixes, strict=True)
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _RunList:
    schema: Any
    gpu: str
    plans: tuple[PlannedRun, ...]


def read_plans(path: Path, gpu: str) -> tuple[PlannedRun, ...]:
    """Read the plans in `path`, which must be for `gpu`.

    Raises:
        InvalidInput: The file is not such a file, or is for another GPU; the message names the
            entry.
    """
    document = read_json(path)
    with located(path, "Correct the file."):
        listed = record(_RunList, _plans_of_advice(document) if is_advice(document) else document)
        if type(listed.schema) is not int or listed.schema != 1:
            raise InvalidInput(f"its schema is {listed.schema!r}, this advisor reads 1")
        if listed.gpu != gpu:
            raise InvalidInput(
                f"its plans are for {listed.gpu}, and this device is {gpu}. Run them on the GPU "
                f"they were made for"
            )
        refuse_of_cpu(gpu, listed.plans, "plans")
        refuse_duplicate_ids(listed.plans)
        return listed.plans


def refuse_duplicate_ids(plans: Sequence[PlannedRun]) -> None:
    """Raise InvalidInput if two runs of `plans` have one id."""
    for name, count in Counter(run.id for plan in plans for run in single_runs(plan)).items():
        if count > 1:
            raise InvalidInput(f"two runs would have the id {name!r}")


def refuse_of_cpu(gpu: str, plans: Sequence[PlannedRun], where: str) -> None:
    """Raise InvalidInput if `gpu` is a CPU that cannot run `plans`, which messages call `where`."""
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
    """Return whether `document` is advice rather than a file of plans."""
    return isinstance(document, dict) and "objective" in document


def _plans_of_advice(document: Mapping[str, Any]) -> dict[str, Any]:
    """The plans of `document` in the form of a plan file, with the purpose of validation.

    A run's id consists of its jobs and its rank, so that ``--resume`` recognises it. Plans on MIG,
    in phases and under a power cap are left out: MIG instances and caps are not set here, and a
    run has one sharing.
    """
    try:
        workloads = document["workloads"]
        # A job counts by its name, and by its own script if it has one.
        jobs = [
            [
                plan["sharing"],
                *([j["job"], j["script"]] if j.get("script") else j["job"] for j in plan["jobs"]),
            ]
            for plan in document["plans"]
        ]
        digest = sha256(json.dumps([workloads, jobs]).encode()).hexdigest()[:8]
        plans = [
            {
                "id": f"advice-{digest}-plan{plan['rank']}",
                "sharing": plan["sharing"],
                "purpose": "validation",
                "workloads": [
                    workloads[job["job"]] | ({"script": job["script"]} if job.get("script") else {})
                    for job in plan["jobs"]
                ],
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
    sharing = parse_sharing(plan["sharing"])
    simple = sharing.mode == "serial" or together(sharing) is not None
    return simple and plan.get("power_cap_w") is None


_Record = TypeVar("_Record")

# Larger whole numbers are no measurements, and some of them no floats.
_MOST_EXACT = 2**1000

_WORDS = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a number in a file, for `Annotated`; `above` leaves out the lower one."""

    low: float
    high: float
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        return f" {'above' if self.above else 'from'} {self.low} to {self.high}"


def record(kind: type[_Record], entry: Any, where: str = "") -> _Record:
    """Return the dataclass `kind` from a table of TOML or an object of JSON, read strictly.

    A workload may be a name too, and bounds of numbers are `Within` in their types.

    Args:
        kind: Its fields are strings, numbers, dataclasses, or tuples of such.
        entry: As read by the standard library.
        where: Name of the entry in messages, e.g. ``"plans[2]"``; empty for the document.

    Raises:
        InvalidInput: A key is unknown or missing, or a value does not fit its field.
    """
    entries = _table(entry, where).items()
    table = {name: value for name, value in entries if name not in REMOVED_FIELDS}
    allowed = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(table.keys() - allowed.keys()):
        raise InvalidInput(
            f"unknown key {_key(where, unknown[0])!r}; known here: {', '.join(allowed)}"
        )
    for name, field in allowed.items():
        if name not in table and field.default is field.default_factory is MISSING:
            raise InvalidInput(f"{_key(where, name)!r} is missing")
    hints = get_type_hints(kind, include_extras=True)
    read = {name: _value(value, hints[name], _key(where, name)) for name, value in table.items()}
    try:
        return kind(**read)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}" if where else str(error)) from None


def _table(entry: Any, where: str) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise InvalidInput(f"{where or 'the document'}: must be a table, got {entry!r}")
    return entry


def _key(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _value(value: Any, hint: Any, where: str) -> Any:
    kind, arguments = get_origin(hint), get_args(hint)
    if NoneType in arguments:
        return None if value is None else _value(value, arguments[0], where)
    if kind is tuple:
        return tuple(
            _value(each, arguments[0], f"{where}[{number}]")
            for number, each in enumerate(_of_type(value, list, "an array", where))
        )
    if kind is dict:
        names, values = arguments  # names are numbers or of a choice
        read = {}
        for word, entry in _table(value, where).items():
            key = _key(where, word)
            name = _plain(int(word) if word.isdecimal() else word, names, key)
            read[name] = _value(entry, values, key)
        return read
    if hint is Workload and isinstance(value, str):
        with located(where):
            return named_workload(value)
    if is_dataclass(hint):
        return record(hint, value, where)  # type: ignore[arg-type]
    return _plain(value, hint, where)


def _plain(value: Any, hint: Any, where: str) -> Any:
    """A string, number, or one of a choice."""
    if get_origin(hint) is Literal:
        if any(value == each and type(value) is type(each) for each in get_args(hint)):
            return value
        raise InvalidInput(
            f"{where} must be one of {', '.join(map(str, get_args(hint)))}, got {value!r}"
        )
    if hint is Any:
        return value
    if hint is NoneType:
        if value is None:
            return None
        raise InvalidInput(f"{where} must be null, got {value!r}")
    kind, bounds = get_args(hint) if get_origin(hint) is Annotated else (hint, "")
    if kind is float and type(value) is int and abs(value) < _MOST_EXACT:
        value = float(value)
    words = f"{_WORDS[kind]}{bounds}"
    _of_type(value, kind, words, where)
    if (kind is float and not isfinite(value)) or (bounds and value not in bounds):
        raise InvalidInput(f"{where} must be {words}, got {value!r}")
    return value


def _of_type(value: Any, kind: type, words: str, where: str) -> Any:
    if type(value) is not kind:
        raise InvalidInput(f"{where} must be {words}, got {value!r}")
    return value
