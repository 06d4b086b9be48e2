"""A TOML table read strictly: what is missing, unknown or out of range is refused with its key."""

from math import isfinite
from typing import Any

from advisor.errors import InvalidInput


class Table:
    """The keys of one table, each taken once; `close` refuses what nobody took.

    Args:
        where: What the table is called in messages, e.g. ``"degrees.2"``; empty for the document.
        content: As `tomllib` gave it.

    Raises:
        InvalidInput: `content` is no table.
    """

    def __init__(self, where: str, content: Any) -> None:
        if not isinstance(content, dict):
            raise InvalidInput(f"{where}: a table is wanted here, got {content!r}")
        self._where = where
        self._content = dict(content)
        self._taken: list[str] = []

    def key(self, name: str) -> str:
        """`name` as messages have it."""
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
        """An array; empty where it is not there."""
        value = self._value(name, [])
        if not isinstance(value, list):
            raise InvalidInput(f"{self.key(name)} must be an array, got {value!r}")
        return value

    def limits(self, name: str) -> tuple[float, ...]:
        """MPS limits, per cent; empty where they are not there."""
        values = self.array(name)
        for value in values:
            if type(value) not in (int, float) or not 0 < value <= 100:
                raise InvalidInput(
                    f"{self.key(name)}: a limit is a per cent in (0, 100], got {value!r}"
                )
        return tuple(values)

    def table(self, name: str) -> "Table":
        """A table; empty where it is not there."""
        return Table(self.key(name), self._value(name, {}))

    def names(self) -> tuple[str, ...]:
        """All keys."""
        return tuple(self._content)

    def has(self, name: str) -> bool:
        """Whether `name` is given."""
        return name in self._content

    def close(self) -> None:
        """See that every key was taken.

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
