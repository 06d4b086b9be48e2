"""Reads dataclasses strictly from TOML or JSON, with the standard library alone.

Missing, unknown and invalid values are refused with their key, e.g. ``degrees.2.naive.same``.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from math import isfinite
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from advisor.errors import InvalidInput
from advisor.workload import catalogue as named_workloads
from advisor.workload.reading import REMOVED_FIELDS, located
from advisor.workload.spec import Workload

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
    """Return the dataclass `kind` from a table of TOML or an object of JSON.

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
            return named_workloads.workload(value)
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
