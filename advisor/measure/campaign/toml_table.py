"""Reads TOML tables strictly, and the workloads that a campaign lists in them.

Missing, unknown and invalid values are refused with their key.
"""

from math import isfinite
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.measure.shared.run_list_file import workload_of
from advisor.workload.files import read_toml
from advisor.workload.spec import Workload


class Table:
    """The keys of one table, each read once; `close` refuses keys that were not read.

    Args:
        where: Name of the table in messages, e.g. ``"degrees.2"``; empty for the document.
        content: From `tomllib`.

    Raises:
        InvalidInput: `content` is not a table.
    """

    def __init__(self, where: str, content: Any) -> None:
        if not isinstance(content, dict):
            raise InvalidInput(f"{where}: must be a table, got {content!r}")
        self._where = where
        self._content = dict(content)
        self._taken: list[str] = []

    def key(self, name: str) -> str:
        """`name` with the table's name, for messages."""
        return f"{self._where}.{name}" if self._where else name

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(name, default)
        if not isinstance(value, str):
            raise InvalidInput(f"{self.key(name)} must be a string, got {value!r}")
        return value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._value(name, default)
        if type(value) is not int or not low <= value <= high:
            raise InvalidInput(
                f"{self.key(name)} must be a whole number from {low} to {high}, got {value!r}"
            )
        return value

    def number(self, name: str, low: float, high: float, default: float) -> float:
        """A number from `low` to `high`."""
        value = self._value(name, default)
        numeric = type(value) in (int, float) and isfinite(value)
        if not numeric or not low <= value <= high:
            raise InvalidInput(
                f"{self.key(name)} must be a number from {low:g} to {high:g}, got {value!r}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if type(value) is not bool:
            raise InvalidInput(f"{self.key(name)} must be true or false, got {value!r}")
        return value

    def array(self, name: str) -> list[Any]:
        """An array; empty if the key is missing."""
        value = self._value(name, [])
        if not isinstance(value, list):
            raise InvalidInput(f"{self.key(name)} must be an array, got {value!r}")
        return value

    def limits(self, name: str) -> tuple[float, ...]:
        """MPS limits, per cent; empty if the key is missing."""
        values = self.array(name)
        for value in values:
            if type(value) not in (int, float) or not 0 < value <= 100:
                raise InvalidInput(
                    f"{self.key(name)}: a limit is a per cent in (0, 100], got {value!r}"
                )
        return tuple(values)

    def table(self, name: str) -> "Table":
        """A table; empty if the key is missing."""
        return Table(self.key(name), self._value(name, {}))

    def names(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(self._content)

    def has(self, name: str) -> bool:
        """Whether `name` is given."""
        return name in self._content

    def close(self) -> None:
        """Check that every key was read.

        Raises:
            InvalidInput: One was not.
        """
        if unknown := sorted(self._content.keys() - set(self._taken)):
            known = ", ".join(dict.fromkeys(self._taken))
            raise InvalidInput(f"unknown key {self.key(unknown[0])!r}; known here: {known}")

    def _value(self, name: str, default: Any) -> Any:
        self._taken.append(name)
        value = self._content.get(name, default)
        if value is None:
            raise InvalidInput(f"{self.key(name)!r} is missing")
        return value


def listed_workloads(top: Table, folder: Path) -> tuple[tuple[Workload, ...], tuple[Workload, ...]]:
    """The workloads in the arrays `small` and `large`, or in the file that `include` names.

    Args:
        top: The plan.
        folder: That of the plan file.

    Raises:
        InvalidInput: An entry is not a workload, or is listed twice.
    """
    if not top.has("include"):
        return _both_sizes(top)
    if top.has("small") or top.has("large"):
        raise InvalidInput("workloads are either included or listed, not both")
    path = folder / top.text("include")
    listed = Table("", read_toml(path))
    try:
        found = _both_sizes(listed)
        listed.close()
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return found


def _both_sizes(table: Table) -> tuple[tuple[Workload, ...], tuple[Workload, ...]]:
    small, large = (
        tuple(_workload(each, f"{size}[{number}]") for number, each in enumerate(table.array(size)))
        for size in ("small", "large")
    )
    names = [each.name for each in small + large]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"workload {twins[0]!r} is listed twice")
    return small, large


def _workload(entry: Any, where: str) -> Workload:
    try:
        return workload_of(entry)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
