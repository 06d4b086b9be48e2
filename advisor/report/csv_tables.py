"""Tables as CSV: keys end in their unit, numbers are plain, an unknown value is an empty cell."""

from collections.abc import Iterable, Mapping
from csv import DictWriter
from io import StringIO

from advisor.prediction.prediction import LEVELS, Interval


def csv_text(rows: Iterable[Mapping[str, object]]) -> str:
    """Return `rows`, which have equal keys, as CSV."""
    first, *others = rows
    file = StringIO()
    table = DictWriter(file, first.keys(), lineterminator="\n")
    table.writeheader()
    table.writerows((first, *others))
    return file.getvalue()


def range_columns(name: str, unit: str, value: Interval | None) -> dict[str, float | None]:
    """Return a column for the median and each end of a 90 % interval, e.g. ``time_p05_s``."""
    return {
        "_".join(filter(None, (name, level, unit))): None if value is None else value.at(level)
        for level in LEVELS
    }
