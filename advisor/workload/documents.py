"""JSON and TOML documents that users hand in: what is wrong with one is said with its place.

Needs the standard library only, as `advisor.workload.files`.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.workload.files import read_bytes, shown

REMOVED_FIELDS = frozenset({"mps_client_priority", "read_from", "to_end"})
"""Fields of files that earlier versions wrote; readers ignore them."""

# Ours have 90 KiB at most, and the standard library reads a megabyte a second.
MOST_TOML_BYTES = 2**20
# Ours are nested 8 deep at most.
_DEEPEST = 64


def read_json(path: Path, remedy: str = "Correct the file.") -> Any:
    """The JSON document in `path`; see `parse_json`."""
    return parse_json(read_bytes(path), shown(path), remedy)


def parse_json(
    text: str | bytes, where: str, remedy: str = "Correct the file.", *, of_a_type: bool = False
) -> Any:
    """The JSON document `text`; messages call it `where`.

    Args:
        text: One document.
        where: Names it in messages.
        remedy: What to do about one that is refused.
        of_a_type: Whether the text was already parsed as a typed record, whose nesting is limited;
            then nesting is not checked, which takes as long as parsing.

    Raises:
        InvalidInput: It is not JSON, an object has a key twice, a number is not finite, or it is
            nested too deep.
    """
    try:
        document = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
        if not of_a_type:
            _refuse_deep(document)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}. {remedy}") from None
    except RecursionError:
        raise InvalidInput(f"{where}: {_TOO_DEEP}. {remedy}") from None
    except ValueError as error:
        raise InvalidInput(f"{where}: not JSON: {_unlike_json(text, error)}. {remedy}") from None
    return document


def read_toml(path: Path) -> dict[str, Any]:
    """The TOML document in `path`; errors as of `parse_toml`."""
    return parse_toml(read_bytes(path, MOST_TOML_BYTES), shown(path))


def parse_toml(text: bytes, where: str) -> dict[str, Any]:
    """The TOML document `text`; `where` names it in messages.

    Raises:
        InvalidInput: It is not TOML, too large, or nested too deep.
    """
    if len(text) > MOST_TOML_BYTES:
        raise InvalidInput(f"{where}: more than {MOST_TOML_BYTES:,} bytes. Correct the file.")
    import tomllib  # not at the top: a script that is measured may run on Python 3.10

    try:
        document = tomllib.loads(text.decode("utf-8-sig"))
        _refuse_deep(document)
    except RecursionError:
        raise InvalidInput(f"{where}: {_TOO_DEEP}. Correct the file.") from None
    except (InvalidInput, ValueError) as error:
        raise InvalidInput(f"{where}: {_unlike_toml(text, error)}. Correct the file.") from None
    return document


def _unlike_json(text: str | bytes, error: ValueError) -> str:
    """What somebody who took another file for it should know, else where it is not JSON."""
    import tomllib

    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if not content.strip():
        return "it is empty"
    if len(content) <= MOST_TOML_BYTES and _parses(content, tomllib.loads):
        return "it is TOML"
    return _not_text(error)


def _unlike_toml(text: bytes, error: Exception) -> str:
    if isinstance(error, ValueError) and text.lstrip()[:1] in (b"{", b"["):
        return "it is JSON, and TOML is wanted" if _parses(text, json.loads) else _not_text(error)
    return _not_text(error)


def _not_text(error: Exception) -> str:
    return "it is no text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


def _parses(content: bytes, parse: Callable[[str], object]) -> bool:
    try:
        parse(content.decode())
    except (ValueError, RecursionError):
        return False
    return True


_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"


def _refuse_deep(document: Any) -> None:
    level: list[Any] = [[document]]
    for _ in range(_DEEPEST + 1):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise InvalidInput(_TOO_DEEP)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InvalidInput(f"{twice!r} occurs twice")
    return found


def _refuse_constant(word: str) -> Any:
    raise InvalidInput(f"{word} is not a number that can be measured")
