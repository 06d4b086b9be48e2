"""The JSON of a record: its fields, and the properties that it marks with `in_document`.

A JSON field stands in the record that holds it, and nowhere else: `document` writes the values of a
record, and `document_type` returns their types, of which `advisor.schemas` makes a JSON Schema.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from inspect import cleandoc
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

SCHEMA = 1
"""Counts breaking changes of the answers' JSON."""

_Getter = TypeVar("_Getter", bound=Callable[..., Any])


def in_document(getter: _Getter) -> _Getter:
    """Mark the getter of a property as a field of the JSON document; it follows ``@property``."""
    getter.__dict__["in_document"] = True
    return getter


class Mark(Enum):
    """Form of a marked field in JSON, as in ``Annotated[Sharing, Mark.TEXT]``."""

    LEFT_OUT = "not at all"
    TEXT = "as str writes it"
    AT_TOP = "its fields among those of an answer, and not at all in a part of one"


@dataclass(frozen=True, slots=True)
class As:
    """Mark of a field that JSON replaces by one attribute of its value, or of each value."""

    attribute: str


@dataclass(frozen=True, slots=True, init=False)
class Inline:
    """Mark of a record whose attributes JSON lists among the fields: these names, or all."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


_Mark = Mark | As | Inline


def answer_document(record: Any) -> dict[str, Any]:
    """Return the JSON document that a command prints of `record`."""
    tops = [document(top) for top in _tops(record)]
    return {"schema": SCHEMA} | (tops[0] if tops else {}) | document(record)


def _tops(record: Any) -> Iterator[Any]:
    """Yield the records at the top of an answer, of `record` or of records inlined in it."""
    for name, _, mark in _entries(type(record)):
        if mark is Mark.AT_TOP:
            yield getattr(record, name)
        elif mark == Inline():
            yield from _tops(getattr(record, name))


def document(record: Any) -> dict[str, Any]:
    """Return the fields and marked properties of `record`; its own stand before inlined ones."""
    own, inlined = dict[str, Any](), dict[str, Any]()
    for name, _, mark in _entries(type(record)):
        value = getattr(record, name)
        if isinstance(mark, Inline):
            marks = {each: inner for each, _, inner in _entries(type(value))}
            some = {
                each: _plain(_marked(getattr(value, each), marks.get(each))) for each in mark.names
            } or document(value)
            inlined = some | inlined
        elif mark not in (Mark.LEFT_OUT, Mark.AT_TOP):
            own[name] = _plain(_marked(value, mark))
    return inlined | own


def _marked(value: Any, mark: _Mark | None) -> Any:
    """The part of a value that JSON has, by its mark."""
    if value is None or mark is None:
        return value
    if isinstance(value, tuple | list):
        return [_marked(each, mark) for each in value]
    return getattr(value, mark.attribute) if isinstance(mark, As) else str(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [_plain(each) for each in value]
    return document(value) if is_dataclass(value) else str(value)


_Entry = tuple[str, Any, _Mark | None]
"""Name, type and mark of a field of JSON."""


def _read_entries(kind: type) -> tuple[_Entry, ...]:
    """The fields of records of `kind`, then the properties that they or their bases mark."""
    hints = get_type_hints(kind, include_extras=True)
    types = {field.name: hints[field.name] for field in fields(kind)}
    for base in reversed(kind.__mro__):
        for name, attribute in vars(base).items():
            getter = attribute.fget if isinstance(attribute, property) else None
            if "in_document" in getattr(getter, "__dict__", ()):
                types[name] = get_type_hints(getter, include_extras=True)["return"]
    return tuple((name, *_without_mark(hint)) for name, hint in types.items())


_entries: Callable[[type], tuple[_Entry, ...]] = cache(_read_entries)


def _without_mark(hint: Any) -> tuple[Any, _Mark | None]:
    marks = getattr(hint, "__metadata__", ())
    mark = next((each for each in marks if isinstance(each, Mark | As | Inline)), None)
    return (hint, None) if mark is None else (get_args(hint)[0], mark)


def document_type(kind: type, *, top: bool = False) -> Any:
    """Return the type of the document of records of `kind`, a TypedDict.

    With `top`, return the type of the document that `answer_document` returns.
    """
    typed = dict(_typed(kind))
    if top:
        tops = [dict(_typed(each)) for each in _top_types(kind)]
        typed = {"schema": Literal[1]} | (tops[0] if tops else {}) | typed
    return _typed_dict(kind, tuple(typed.items()))


def _top_types(kind: type) -> Iterator[type]:
    for _, hint, mark in _entries(kind):
        if mark is Mark.AT_TOP:
            yield hint
        elif mark == Inline():
            yield from _top_types(hint)


@cache
def _typed_dict(kind: type, typed: tuple[tuple[str, Any], ...]) -> Any:
    from typing_extensions import TypedDict  # pydantic refuses the other on Python 3.11

    made: Any = TypedDict(kind.__name__, dict(typed))  # type: ignore[misc]
    made.__doc__ = cleandoc(kind.__doc__ or "")
    return made


def _typed(kind: type) -> Iterator[tuple[str, Any]]:
    """Names and types, in the order and with the precedence of `document`."""
    own, inlined = dict[str, Any](), dict[str, Any]()
    for name, hint, mark in _entries(kind):
        if isinstance(mark, Inline):
            some = {each: _type_of(_attribute_type(hint, each)) for each in mark.names}
            inlined = (some or dict(_typed(hint))) | inlined
        elif mark not in (Mark.LEFT_OUT, Mark.AT_TOP):
            own[name] = _type_of(hint if mark is None else _marked_type(hint, mark))
    yield from (inlined | own).items()


def _marked_type(hint: Any, mark: _Mark) -> Any:
    """The type of the part of a value that JSON has, by its mark."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else ()
    if NoneType in options:
        (kind, *_) = (each for each in options if each is not NoneType)
        return _marked_type(kind, mark) | None
    if get_origin(hint) in (tuple, list):
        return list[_marked_type(get_args(hint)[0], mark)]  # type: ignore[misc]  # computed
    return _attribute_type(hint, mark.attribute) if isinstance(mark, As) else str


def _attribute_type(kind: type, name: str) -> Any:
    """The type of a field or property of JSON, without its mark; `kind` need not mark it."""
    attribute = vars(kind).get(name)
    if isinstance(attribute, property) and attribute.fget is not None:
        return get_type_hints(attribute.fget)["return"]
    hint, mark = _without_mark(get_type_hints(kind, include_extras=True)[name])
    return hint if mark is None else _marked_type(hint, mark)


def _type_of(hint: Any) -> Any:
    """The type of what `_plain` returns of a value of type `hint`."""
    if isinstance(hint, type) and is_dataclass(hint):
        return document_type(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal or not inner:
        return hint
    types = [each if each is ... else _type_of(each) for each in inner]
    if origin in (Union, UnionType):
        return Union[tuple(types)]  # noqa: UP007  # of computed types
    if origin is tuple and inner[-1] is not ...:
        return tuple[tuple(types)]  # type: ignore[misc]  # computed
    if origin is not Annotated and issubclass(origin, Mapping):
        return dict[str, types[1]]  # type: ignore[valid-type]  # computed
    return types[0] if origin is Annotated else list[types[0]]  # type: ignore[valid-type]
