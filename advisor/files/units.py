"""Numbers with the units that people write: ``2h``, ``1:30:00``, ``10 %``, ``400 W``, ``2 EUR``."""

import re
from collections.abc import Mapping

from advisor.errors import InvalidInput, shortened

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


def watts(text: str) -> float:
    """Return the watts that `text` names: ``400``, ``400 W`` or ``0.4 kW``."""
    return amount(text, {"w": 1.0, "watt": 1.0, "watts": 1.0, "kw": 1e3}, "watts, such as 400")


def mebibytes(text: str) -> float:
    """Return the MiB that `text` names: ``5300``, ``5300 MiB`` or ``5.2 GiB``."""
    return amount(text, {"mib": 1.0, "gib": 1024.0}, "memory in MiB or GiB, such as 5300 or 5.2GiB")


_EUROS = ("€", "eur", "euro", "euros", "€/h", "eur/h", "eur/gpu-hour", "eur/gpu hour")


def euros(text: str) -> float:
    """Return the euros that `text` names: ``2``, ``2 EUR``, ``€2``."""
    return amount(text, dict.fromkeys(_EUROS, 1.0), "a price in EUR, such as 2.50")
