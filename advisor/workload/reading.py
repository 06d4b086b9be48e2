"""Reads users' files: profiles, calibrations and runs. The only importer of pydantic.

Malformed, truncated, NaN, out-of-range or misspelt input raises `InvalidInput` with the file, the
field and what to do.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from advisor.errors import InvalidInput
from advisor.workload.data_folders import EVALUATION, shown
from advisor.workload.files import parse_json, read_bytes
from advisor.workload.profile import Profile

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from advisor.workload.machine_calibration import Calibration
    from advisor.workload.run import Run

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
    parse_json(text, where, remedy)  # pydantic takes the last of duplicate keys
    return record


def read_profile(path: Path) -> Profile:
    """The profile in `path`.

    Raises:
        InvalidInput: There is none, or its numbers are impossible.
    """
    if path.name == EVALUATION:
        raise InvalidInput(
            f"{shown(path)}: it describes the profiles next to it and is not one. Leave it out."
        )
    return parse_record(Profile, read_bytes(path), shown(path))


def read_calibration(path: Path) -> "Calibration":
    """The calibration in `path`.

    Raises:
        InvalidInput: There is none, or its numbers are impossible.
    """
    from advisor.workload.machine_calibration import Calibration

    remedy = "Measure it again: `advisor calibrate`."
    return parse_record(Calibration, read_bytes(path), str(path), remedy)


def read_runs(path: Path) -> "tuple[Run, ...]":
    """The runs in a JSON Lines file, in its order.

    Raises:
        InvalidInput: A line is not a possible run.
    """
    from advisor.workload.run import Run

    where, lines = shown(path), enumerate(read_bytes(path).splitlines(), start=1)
    return tuple(parse_record(Run, line, f"{where}:{number}") for number, line in lines if line)
