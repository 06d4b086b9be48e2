"""Reads records, checking each field.

The only importer of pydantic, and only when something is read.
"""

import json
import re
from codecs import BOM_UTF8
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.errors import InvalidInput
from advisor.workload.reading import REMOVED_FIELDS, no_record, parse_json, refusal

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    pass


_Record = TypeVar("_Record")


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    """Reads `kind` and the records inside it: no misspelt key, no NaN, no true or "3" for a number.

    Pydantic takes no settings for a dataclass alone, and passes those of a union on to all inside.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(
        kind | None, config={"extra": "forbid", "allow_inf_nan": False, "strict": True}
    )


def parse_record(
    kind: type[_Record],
    text: str | bytes,
    where: str,
    remedy: str = "Measure it again, or correct the file.",
) -> _Record:
    """The record of type `kind` in the JSON `text`.

    Args:
        kind: A frozen dataclass of this package.
        text: One JSON document.
        where: Names the document in messages.
        remedy: What to do about a document that is refused.

    Raises:
        InvalidInput: `text` is not such a record.
    """
    from pydantic import ValidationError

    text = text.removeprefix(BOM_UTF8) if isinstance(text, bytes) else text  # as editors write it
    try:
        record: _Record | None = _adapter(kind).validate_json(_without_removed(text))  # type: ignore[arg-type]  # types do hash
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidInput(_ended(f"{where}: {refusal(kind, wrong)}", remedy)) from None
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}. {remedy}") from None
    if record is None:
        raise InvalidInput(_ended(f"{where}: {no_record(kind)}", remedy))
    if _may_repeat_keys(text):  # of which pydantic takes the last
        parse_json(text, where, remedy, of_a_type=True)
    return record


_REMOVED = re.compile(f'"(?:{"|".join(sorted(REMOVED_FIELDS))})"\\s*:')


def _without_removed(text: str | bytes) -> str | bytes:
    """Return the JSON `text` without `REMOVED_FIELDS`; unchanged if it is not JSON."""
    content = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if not _REMOVED.search(content):
        return text
    try:
        return json.dumps(json.loads(content, object_hook=_kept))
    except (ValueError, RecursionError):
        return text


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in REMOVED_FIELDS}


def _ended(said: str, remedy: str) -> str:
    """Both, as sentences; one that asks has its end already."""
    return f"{said} {remedy}" if said.endswith("?") else f"{said}. {remedy}"


# Every key of a JSON text; in strings there may be more of these.
_KEY = re.compile(rb'"\s*:')


def _may_repeat_keys(text: str | bytes) -> bool:
    """Whether there may be a key twice in an object of `text`: it has more than are told apart.

    Looking for one takes a file of many numbers three times as long.
    """
    from pydantic_core import from_json

    content = text.encode() if isinstance(text, str) else text
    keys, left = 0, [from_json(content)]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            keys += len(each)
            left += each.values()
        elif isinstance(each, list) and each and isinstance(each[0], dict | list):
            left += each
    return keys < len(_KEY.findall(content))
