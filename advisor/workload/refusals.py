"""Explains why a file is not a valid record, from what pydantic found.

The message says where, what, and which field may have been meant.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from advisor.english import counted

Found = Mapping[str, Any]
"""One of pydantic's errors: its ``type``, its ``loc`` and its ``msg``."""

_UNKNOWN, _MISSING = "unexpected_keyword_argument", "missing"
_NO_LIST = ("tuple_type", "list_type")
# Of all that a file lacks, more than these are counted.
_NAMED = 3
_WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def refusal(kind: type, wrong: Sequence[Found]) -> str:
    """Why a document is no record of type `kind`, without a full stop."""
    if wrong[0]["type"] == "json_invalid":
        return str(wrong[0]["msg"]).replace("Invalid JSON", "not valid JSON")
    missing = [str(each["loc"][0]) for each in wrong if _lacks_of_its_own(each)]
    if len(missing) > 1:
        some, more = ", ".join(missing[:_NAMED]), len(missing) - _NAMED
        others = f" and {counted(more, 'other field')}" if more > 0 else ""
        return f"it is no {_word(kind)}: it lacks {some}{others}"
    # A key that is not known says why the one that was meant is missing.
    first = next((each for each in wrong if each["type"] == _UNKNOWN), wrong[0])
    return _said(kind, first) if first["loc"] else no_record(kind)


def no_record(kind: type) -> str:
    """Why a document that is no JSON object is no record of type `kind`."""
    return f"it is no {_word(kind)}, which is a JSON object, {{...}}"


def _lacks_of_its_own(each: Found) -> bool:
    return each["type"] == _MISSING and len(each["loc"]) == 1


def _said(kind: type, found: Found) -> str:
    field = _place(found["loc"])
    if found["type"] == _UNKNOWN:
        *places, name = found["loc"]
        near = get_close_matches(str(name), sorted(_fields_at(kind, places)), n=1)
        return f"{field} is no known field" + "".join(f"; did you mean {each}?" for each in near)
    if found["type"] in _NO_LIST:
        return f"{field}: write a list, as [...]"
    return f"{field} is missing" if found["type"] == _MISSING else f"{field}: {found['msg']}"


def _place(parts: Sequence[str | int]) -> str:
    """Where in the file, entries counted from 1: ``"workload.batch"``, ``"job 2: epochs"``."""
    said, after = "", ""
    for part in parts:
        said += f" {part + 1}" if isinstance(part, int) else f"{after}{part}"
        after = ": " if isinstance(part, int) else "."
    return said


def _word(kind: type) -> str:
    """What a record of type `kind` is called: ``"minimal profile"``."""
    return _WORD_STARTS.sub(" ", kind.__name__.lstrip("_")).lower()


def _fields_at(kind: type, places: Sequence[str | int]) -> set[str]:
    """The fields of the records at these `places` inside a record of `kind`."""
    records = {kind}
    for name in places:
        inside = {
            each
            for record in records
            for each in _records_in(get_type_hints(record).get(str(name)))
        }
        records = inside or records  # numbers and names of entries lead no deeper
    return {field.name for record in records for field in fields(record)}


def _records_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _records_in(part)
