"""Writes and reads ``profiles/<gpu>/evaluation.json``, and lists differences between two."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from advisor.workload.files import read_bytes
from advisor.workload.records import parse_record
from research.figures import Figures
from research.files import rounded

# More digits than any document shows, and far above what the order of a sum changes.
_FORM = ".6g"

# Of a share 0.3 points; of what has a unit, or is more than 1, as much of its value. Processors
# differ by far less than this, and no reader tells it apart.
TOLERANCE = 0.003

_UNITS = ("_s", "_mib", "_w", "_j")
_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Moved:
    """A figure that is another one now.

    Attributes:
        where: Names it, outermost part first.
    """

    where: str
    before: object
    now: object

    def __str__(self) -> str:
        return f"{self.where}: {self.before} -> {self.now}"


def figures_text(figures: Figures) -> str:
    """`figures` as JSON: a line for each record, numbers with six significant digits."""
    parts = (f"{json.dumps(name)}: {_lines(part)}" for name, part in _document(figures).items())
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parse_figures(text: str | bytes, where: str) -> Figures:
    """The figures in the JSON `text`, which messages call `where`.

    Raises:
        InvalidInput: It has no figures of this version.
    """
    return parse_record(Figures, text, where, "Write it again: `make report`.")


def read_figures(path: Path) -> Figures:
    """The figures in the file `path`.

    Raises:
        InvalidInput: There is no such file, or it has no figures of this version.
    """
    return parse_figures(read_bytes(path), str(path))


def moved(before: Figures, now: Figures) -> tuple[Moved, ...]:
    """What is another figure `now`, by more than `TOLERANCE` where it is a number."""
    return tuple(_moved("", False, _document(before), _document(now)))


def _document(figures: Figures) -> dict[str, Any]:
    document: dict[str, Any] = rounded(asdict(figures), _FORM)
    return document


def _lines(part: Any) -> str:
    """`part` on one line, or on one for each record in it."""
    match part:
        case [{}, *_]:
            return "[\n" + ",\n".join(map(_line, part)) + "\n]"
        case {}:
            records = (f"{json.dumps(name)}: {_line(each)}" for name, each in part.items())
            return "{\n" + ",\n".join(records) + "\n}"
        case _:
            return _line(part)


def _line(part: Any) -> str:
    return json.dumps(part, separators=(",", ":"), allow_nan=False)


def _moved(where: str, unit: bool, before: Any, now: Any) -> Iterator[Moved]:
    match before, now:
        case {}, {}:
            for name in {**before, **now}:
                inner = f"{where}.{name}".lstrip(".")
                has_unit = unit or name.endswith(_UNITS)
                values = before.get(name, _NOTHING), now.get(name, _NOTHING)
                yield from _moved(inner, has_unit, *values)
        case [*_], [*_] if len(before) == len(now):
            for place, each in enumerate(zip(before, now, strict=True)):
                yield from _moved(f"{where}[{_name(each[1], place)}]", unit, *each)
        case (int() | float(), int() | float()) if _near(before, now, unit):
            return
        case _ if before != now:
            yield Moved(where, before, now)


def _name(record: Any, place: int) -> str:
    """What a record calls itself: its first words."""
    first = next(iter(record.values()), None) if isinstance(record, dict) else None
    return first if isinstance(first, str) else str(place)


def _near(before: float, now: float, unit: bool) -> bool:
    size = max(abs(before), abs(now))
    return abs(before - now) <= TOLERANCE * (size if unit else max(1.0, size))
