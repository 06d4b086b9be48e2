"""Numbers in files and words: the bounds of their types, and the units that people write."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from advisor.errors import InvalidInput, shortened

DAY_S = 86_400.0
_MOST_FLOAT = 1e308
# A kernel launch alone takes some microseconds.
LEAST_STEP_S = 1e-9
MOST_EPOCH_S = 366 * DAY_S
# From the first job of a trace to the last, and until a deadline.
MOST_WAIT_S = 10 * MOST_EPOCH_S
# Shares of an epoch, and epochs of a single step.
LEAST_EPOCHS, MOST_EPOCHS = 1e-9, 1e9
# Examples, classes, tokens, steps: exact as a double too.
MOST_COUNT = 10**15
MOST_CORES = MOST_SMS = 2**16
# A worker is a process with a core of its own.
MOST_LOADER_WORKERS = 1024
# Of a kernel. CUDA's largest grid has 2**63 blocks, and nothing fills the first hundredth of it;
# a block has 1024 threads, an SM 32 blocks.
MOST_BLOCKS, MOST_THREADS, MOST_RESIDENT_BLOCKS, MOST_STREAMS = 2**48, 2**14, 2**10, 2**31

# Of the log of a factor by which a prediction is corrected, or may be off: 5e8.
MOST_LOG = 20.0
# Of scaled or weighted numbers in a fit: columns lie within some tens of their scales.
MOST_SCALED, LEAST_SCALE = 1e6, 1e-18
# Of an error of a prediction, in spreads from the fit.
MOST_SPREADS = 1e3

# At least ten times what any GPU, host or training job has today.
MOST_MIB = 2.0**24  # 16 TiB
MOST_W = 1e4


@dataclass(frozen=True, slots=True)
class Within:
    """Marks the type of a number that a file may have from `least` to `most` only."""

    least: float
    most: float

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(source) | {"ge": self.least, "le": self.most}


Share = Annotated[float, Within(0.0, 1.0)]
Percent = Annotated[float, Within(0.0, 100.0)]
Seconds = Annotated[float, Within(0.0, DAY_S)]
Length = Annotated[float, Within(LEAST_STEP_S, DAY_S)]
"""Seconds of what did take time."""
Mib = Annotated[float, Within(0.0, MOST_MIB)]
MibPerSecond = Annotated[float, Within(0.0, 2.0**30)]
Watts = Annotated[float, Within(0.0, MOST_W)]
Joules = Annotated[float, Within(0.0, MOST_W * DAY_S)]
Mhz = Annotated[int, Within(0, 1e5)]
Sms = Annotated[int, Within(0, MOST_SMS)]
Count = Annotated[int, Within(0, MOST_COUNT)]
Positive = Annotated[int, Within(1, MOST_COUNT)]
Schema = Annotated[int, Within(1, 1)]
"""The version of a file; `refuse_newer` explains a newer one."""


def check(record: object, fields: Iterable[str], most: float) -> None:
    """Check that the numbers `fields` of `record` are from 0 to `most`; None is not checked."""
    for field in fields:
        if (value := getattr(record, field)) is not None:
            check_number(field, value, most)


def check_number(what: str, value: float, most: float, least: float = 0.0) -> None:
    """Check that `value` is from `least` to `most`; messages call it `what`.

    Raises:
        InvalidInput: It is not.
    """
    if not least <= value < float("inf"):
        # The least of what is above 0 says something only of what is between them.
        positive = 0 < least < 1 and not 0 < value < float("inf")
        bound = "above 0" if positive else f"at least {least:g}"
        raise InvalidInput(f"{what} must be finite and {bound}, got {value}")
    if value > most:
        # A whole number may be beyond all that a float holds.
        got = f"{float(value):,.12g}" if value < _MOST_FLOAT else "one of hundreds of digits"
        raise InvalidInput(f"{what} must be at most {most:,.12g}, got {got}; check its unit")


def check_scaled(what: str, scales: Iterable[float], most: float) -> None:
    """Check the scales of a fit's columns, and `most`, the largest number in them."""
    check_number(f"the smallest scale in {what}", min(scales), float("inf"), LEAST_SCALE)
    check_number(f"the largest number in {what}", most, MOST_SCALED)


# A comma before three digits may separate thousands.
_NUMBER = r"(?:\d+(?:\.\d*|,(?:\d\d?|\d{4,})(?!\d))?|\.\d+)(?:[eE][+-]?\d+)?"
_AMOUNT = re.compile(rf"(?P<sign>[€$]?)\s*(?P<number>{_NUMBER})\s*(?P<unit>[^\d\s.].*)?")
_OF_A_TIME = re.compile(rf"({_NUMBER})\s*([a-z]+)\s*")
# Slurm's and most logs': days, hours, minutes and seconds.
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d(?:\.\d+)?)")

_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    "ms": 1e-3,
}


def amount(text: str, units: Mapping[str, float], expected: str) -> float:
    """Return the number in `text`, which is `expected`, times the factor of its unit, if any.

    Raises:
        InvalidInput: It is not a number from 0 in one of these `units`.
    """
    match = _AMOUNT.fullmatch(text.strip())
    unit = "" if match is None else (match["sign"] or match["unit"] or "").strip().lower()
    if match is None or (match["sign"] and match["unit"]) or unit not in {"", *units}:
        raise InvalidInput(f"expected {expected}, got {shortened(text)}")
    return _number(match["number"]) * units.get(unit, 1.0)


def _number(text: str) -> float:
    return float(text.replace(",", "."))


def seconds(text: str) -> float:
    """Return the seconds that `text` names: ``90``, ``90s``, ``15 min``, ``1h30m``, ``1:30:00``."""
    words = text.strip().lower()
    if match := _CLOCK.fullmatch(words):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        return 86_400 * days + 3600 * hours + 60 * minutes + rest
    parts = _OF_A_TIME.findall(words)
    if len(parts) > 1 and not _OF_A_TIME.sub("", words) and {u for _, u in parts} <= {*_SECONDS}:
        return sum(_number(number) * _SECONDS[unit] for number, unit in parts)
    return amount(text, _SECONDS, "seconds, or a time with a unit such as 90s, 15min, 2h")


def share(text: str) -> float:
    """Return the share that `text` names: ``0.1`` or ``10 %``."""
    return amount(text, {"%": 0.01, "percent": 0.01}, "a share, such as 0.1 or 10%")


def watts(text: str, expected: str = "watts, such as 400") -> float:
    """Return the watts that `text` names: ``400``, ``400 W`` or ``0.4 kW``."""
    return amount(text, {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3}, expected)


def mebibytes(text: str) -> float:
    """Return the MiB that `text` names: ``5300``, ``5300 MiB`` or ``5.2 GiB``."""
    return amount(text, {"mib": 1.0, "gib": 1024.0}, "memory in MiB or GiB, such as 5300 or 5.2GiB")


_EUROS = ("€", "eur", "euro", "euros", "€/h", "eur/h", "eur/gpu-hour", "eur/gpu hour")


def euros(text: str) -> float:
    """Return the euros that `text` names: ``2``, ``2 EUR``, ``€2``."""
    return amount(text, dict.fromkeys(_EUROS, 1.0), "a price in EUR, such as 2.50")
