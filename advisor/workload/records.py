"""A record of a file, checked field by field as it is read.

The only importer of pydantic, and only where something is read.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.errors import InvalidInput
from advisor.workload.files import parse_json

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def parse_record(
    kind: type[_Record],
    text: str | bytes,
    where: str,
    remedy: str = "Measure it again, or correct the file.",
) -> _Record:
    """The record of `kind` that the JSON `text` holds.

    Args:
        kind: A frozen dataclass of this package.
        text: One JSON document.
        where: Names the document in messages.
        remedy: What to do about a document that is refused.

    Raises:
        InvalidInput: `text` is not such a record.
    """
    from pydantic import ValidationError

    try:
        record: _Record = _adapter(kind).validate_json(text)  # type: ignore[arg-type]  # types do hash
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the document"
        raise InvalidInput(f"{where}: {field}: {first['msg']}. {remedy}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}. {remedy}") from None
    parse_json(text, where, remedy, of_a_type=True)  # pydantic takes the last of duplicate keys
    return record
