"""Reads JSON and TOML strictly into dataclasses, and explains what a file should contain instead.

The only importer of pydantic, and only when a record is read.
"""

import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from advisor.errors import InvalidInput, counted, near_names, shortened
from advisor.files.reading import REMOVED_FIELDS, NewerFile, kept_fields, load_json, refuse_newer

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_Record = TypeVar("_Record")

_LARGEST = 2**63 - 1
# pydantic looks for plugins among all installed packages, which takes longer than to read a file.
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"
_REMOVED = [name.encode() for name in REMOVED_FIELDS]


@dataclass(frozen=True, slots=True)
class OrText:
    """Marks the type of a field that a file may also have as text, which `read` converts."""

    read: Callable[[str], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core.core_schema import no_info_before_validator_function

        return no_info_before_validator_function(self._converted, handler(source))

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], Any]) -> Any:
        own = handler(core)
        return {"anyOf": [*own.get("anyOf", [own]), {"type": "string"}]}

    def _converted(self, value: Any) -> Any:
        if not isinstance(value, str):
            return _with_tuples(value)
        try:
            return self.read(value)
        except InvalidInput as error:
            raise ValueError(str(error)) from None


def _with_tuples(value: Any) -> Any:
    """Return `value` of JSON with tuples for its lists, as strict types need."""
    if isinstance(value, dict):
        return {key: _with_tuples(each) for key, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


@cache
def _validator(kind: Any) -> "SchemaValidator":
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    before = os.environ.get(_NO_PLUGINS)
    os.environ[_NO_PLUGINS] = "1"
    try:
        schema = TypeAdapter(kind).core_schema
    finally:
        del os.environ[_NO_PLUGINS]
        os.environ.update({} if before is None else {_NO_PLUGINS: before})
    _refuse_endless(schema)
    return SchemaValidator(schema)


def _refuse_endless(schema: Any) -> None:
    """Let no number of a schema have hundreds of digits, which a float reads as infinite."""
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if node.get("type") == "float":
                node["allow_inf_nan"] = False
            elif node.get("type") == "int":
                node.setdefault("le", _LARGEST)
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)


def parse_record(
    kind: type[_Record],
    text: str | bytes,
    where: str,
    remedy: str = "Measure it again, or correct the file.",
) -> _Record:
    """Read the record of type `kind`, a frozen dataclass, from the JSON document `text`.

    Messages call the document `where`, and end with the `remedy`.

    Raises:
        InvalidInput: `text` is not such a record: it is not JSON, a key is misspelt or occurs
            twice, a field is missing, or a value has another type or is impossible.
    """
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    content = content.removeprefix(BOM_UTF8)  # some editors write it
    document = load_json(content, where, remedy)
    refuse_newer(document, where, _newest(kind))
    if any(field in content for field in _REMOVED):
        content = json.dumps(document).encode()
    return _validated(kind, content, where, remedy)


def _newest(kind: type) -> int:
    """The newest schema of records of `kind`: the default of that field, else 1."""
    default = getattr(kind, "__dataclass_fields__", {}).get("schema")
    return default.default if default and isinstance(default.default, int) else 1


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of records of type `kind`, which have no other fields."""
    from pydantic import TypeAdapter

    document: dict[str, Any] = TypeAdapter(kind).json_schema()
    for record in (document, *document.get("$defs", {}).values()):
        if "properties" in record:
            record["additionalProperties"] = False
    return document


def check_record(
    kind: type[_Record], document: Mapping[str, Any], where: str, remedy: str
) -> _Record:
    """Read the record of type `kind` from a parsed `document`, e.g. of TOML; see `parse_record`."""
    refuse_newer(document, where, _newest(kind))
    kept = json.loads(json.dumps(document, default=str), object_pairs_hook=kept_fields)
    return _validated(kind, json.dumps(kept).encode(), where, remedy)


def _validated(kind: type[_Record], content: bytes, where: str, remedy: str) -> _Record:
    from pydantic import ValidationError

    validator = _validator(kind)  # type: ignore[arg-type]  # types do hash
    try:
        record: _Record = validator.validate_json(content, strict=True, extra="forbid")
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        reason = _reason(kind, wrong)
        stop = "" if reason.endswith(("?", ".")) else "."
        raise InvalidInput(f"{where}: {reason}{stop} {remedy}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {str(error).removesuffix('.')}. {remedy}") from None
    return record


# One of pydantic's errors: its ``type``, its ``loc`` and its ``msg``.
_Wrong = Mapping[str, Any]

_UNKNOWN, _MISSING = "unexpected_keyword_argument", "missing"
# What to write for a value of another type, by pydantic's names of its errors.
_WRITE = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list, as [...]"),
    **dict.fromkeys(("int_type", "int_from_float"), "a whole number, without quotes"),
    "float_type": "a number, without quotes",
    "bool_type": "true or false, without quotes",
    "dataclass_type": "a table, as {NAME = VALUE}",
    "string_type": 'text in quotes, as "..."',
    "dict_type": 'a table, as {NAME = "VALUE"}',
}
_BOUNDS = {"greater_than_equal": "at least", "less_than_equal": "at most"}
_MOST_SHOWN = 1e300
# Missing fields beyond these are counted.
_NAMED = 3
# Fields of a record are listed up to so many.
_LISTED = 20
_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _reason(kind: type, wrong: Sequence[_Wrong]) -> str:
    """Why a document is not a record of type `kind`, without a full stop."""
    name = _WORD_STARTS.sub(" ", kind.__name__.lstrip("_")).lower()  # e.g. "minimal profile"
    missing = [
        str(each["loc"][0]) for each in wrong if each["type"] == _MISSING and len(each["loc"]) == 1
    ]
    if len(missing) > 1:
        some, more = ", ".join(missing[:_NAMED]), len(missing) - _NAMED
        others = f" and {counted(more, 'other field')}" if more > 0 else ""
        return f"not a {name}: it lacks {some}{others}"
    # An unknown key explains why the one that was meant is missing.
    first = next((each for each in wrong if each["type"] == _UNKNOWN), wrong[0])
    if not first["loc"]:
        return f"not a {name}, which is an object, {{...}}"
    field, separator = "", ""  # entries counted from 1: "workload.batch", "job 2: epochs"
    for part in first["loc"]:
        field += f" {part + 1}" if isinstance(part, int) else f"{separator}{part}"
        separator = ": " if isinstance(part, int) else "."
    if first["type"] == _UNKNOWN:
        *places, key = first["loc"]
        fields_there = sorted(_fields_at(kind, places))
        near = near_names(str(key), fields_there, alike=0.6)[:1]
        if not near and len(fields_there) <= _LISTED:
            return f"{field} is not a known field: there are {', '.join(fields_there)}"
        return f"{field} is not a known field" + "".join(f"; did you mean {it}?" for it in near)
    return f"{field}{_problem(first)}"


def _problem(wrong: _Wrong) -> str:
    """The problem of a value, to follow the place of its field."""
    kind = wrong["type"]
    if kind in _WRITE:
        return f": write {_WRITE[kind]}"
    if kind in _BOUNDS:
        bound, value = wrong["ctx"].get("le", wrong["ctx"].get("ge")), wrong["input"]
        got = f"{value:,.12g}" if abs(value) < _MOST_SHOWN else "one of hundreds of digits"
        return f" must be {_BOUNDS[kind]} {bound:,.12g}, got {got}; check its unit"
    if kind == "literal_error":
        return f" must be {wrong['ctx']['expected']}, got {shortened(str(wrong['input']))}"
    return " is missing" if kind == _MISSING else f": {wrong['msg'].removeprefix('Value error, ')}"


def _fields_at(kind: type, places: Sequence[str | int]) -> set[str]:
    """The fields of the records at these `places` inside a record of `kind`."""
    records = {kind}
    for name in places:
        hints = [get_type_hints(record).get(str(name)) for record in records]
        # Numbers and names of entries lead no deeper.
        records = {inner for hint in hints for inner in _records_in(hint)} or records
    return {field.name for record in records for field in fields(record)}


def _records_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _records_in(part)


# Kinds of files, and where each belongs; {} is the file.
_USE = {
    "a profile": "Name it as a JOB: `advisor recommend {}`.",
    "an exported plan": "Use `advisor run {}` or `advisor simulate --plan {}`.",
    "an answer of `advisor recommend --json`": "Use `advisor run {} --rank 1`.",
    "an answer of `--json`": "Name its JOBs instead: `advisor profiles` lists them.",
    "a calibration": "Pass it as --calibration {}.",
    "a fitted model": "Pass its folder as --models DIR.",
    "a list of runs": "Use `advisor validate --runs {}`.",
    "a job file": "Pass it as --jobs {}.",
    "a campaign": "Use `advisor campaign {}`.",
    "numbers of nvidia-smi": "Make numbers over time a profile: `advisor profile --from-history "
    "{}`. Pass single ones: `advisor profile --from-numbers -h`.",
    "a CSV table": "Use `advisor simulate --trace-in {}`, with the columns arrival_s,job.",
}

# The keys by which a JSON document is of a kind; the first kind of which it has all is it.
_KEYS = {
    "a list of runs": {"tenants", "sharing"},
    "an answer of `advisor recommend --json`": {"plans", "ranked_by"},
    "an exported plan": {"workloads", "plans"},
    "a calibration": {"contexts", "switching"},
    "a fitted model": {"constants", "corrections"},
    "an answer of `--json`": {"calibrated", "stale"},
    "a profile": {"workload", "gpu"},
}

_JOB_TABLE = re.compile(rb"^\s*\[\[?job\]?\]", re.MULTILINE)
_CAMPAIGN = re.compile(rb"^\s*\[\[runs\]\]|^\s*\[degrees\.", re.MULTILINE)
# Its columns with --query-gpu, the lines of its table, those of dmon, and names of DCGM.
_OF_NVIDIA_SMI = re.compile(
    rb"\butilization\.(?:gpu|memory)|\bmemory\.used\b|\bpower\.draw\b|NVIDIA-SMI \d|^# ?gpu |"
    rb"^# ?Entity|\bDCGM_FI_",
    re.M,
)
_ROW = re.compile(rb"[^\[\]{}=\n]*\w[,;\t|]\s*\"?\w[^\[\]{}=\n]*\n")


def kind_of_file(content: bytes) -> str | None:
    """Return the kind of a file with this `content`; None if advisor reads no such files."""
    text = content.strip()
    if text.startswith(b"{"):
        lines = text.splitlines()
        for part in (text, lines[0]):  # of runs, each line is a document
            try:
                keys = json.loads(part).keys()
            except (ValueError, RecursionError):
                continue
            return next((kind for kind, has in _KEYS.items() if has <= keys), None)
        return None
    if _OF_NVIDIA_SMI.search(content[:4096]):
        return "numbers of nvidia-smi"
    if _JOB_TABLE.search(content):
        return "a job file"
    if _CAMPAIGN.search(content):
        return "a campaign"
    return "a CSV table" if _ROW.match(content.lstrip() + b"\n") else None


@contextmanager
def expecting(wanted: str, content: bytes, where: object) -> Iterator[None]:
    """Refuse `content` that fails in the block by the name of its kind, if that is not `wanted`."""
    try:
        yield
    except InvalidInput as error:
        kind = kind_of_file(content)
        # A fitted model's schema is above that of other files.
        newer = isinstance(error, NewerFile) and kind != "a fitted model"
        if kind is None or kind == wanted or newer:
            raise
        use = _USE[kind].replace("{}", str(where))
        raise InvalidInput(f"{where}: it is {kind}, not {wanted}. {use}") from None
