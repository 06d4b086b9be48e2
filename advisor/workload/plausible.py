"""Bounds of plausible numbers: values beyond them are typing errors or have a wrong unit.

Each bound is generous: at least ten times what any GPU, host or training job has today.
"""

from collections.abc import Iterable

from advisor.errors import InvalidInput

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

# Of one measured number, by the unit suffix of its name.
_MOST = {
    "_mib_s": 2.0**30,
    "_mib": 2.0**24,  # 16 TiB
    "_mhz": 1e5,
    "_us": 1e6 * DAY_S,
    "_s": DAY_S,
    "_w": 1e4,
    "_j": 1e4 * DAY_S,
    "_pct": 100.0,
    "_share": 2.0,  # of cores: both clocks are read a little apart
}


def most_of(field: str) -> float:
    """The largest plausible value of the number called `field`, by its unit suffix."""
    return next(most for unit, most in _MOST.items() if field.endswith(unit))


def check(record: object, fields: Iterable[str], most: float | None = None) -> None:
    """Check that `fields` of `record` are from 0 to the most of their unit; None is not measured.

    Args:
        record: A measured record.
        fields: Names of its numbers.
        most: Replaces the bound by unit.

    Raises:
        InvalidInput: One is not.
    """
    for field in fields:
        value = getattr(record, field)
        if value is not None:
            check_number(field, value, most_of(field) if most is None else most)


def check_number(what: str, value: float, most: float, least: float = 0.0) -> None:
    """Check that `value` is from `least` to `most`.

    Raises:
        InvalidInput: It is not; the message calls it `what`.
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
    """Check that the scales and numbers of a fit's columns are plausible.

    Args:
        what: Their name in messages.
        scales: Divisors of the columns.
        most: The largest number in these columns, or weight of them.

    Raises:
        InvalidInput: They are not.
    """
    check_number(f"the smallest scale of {what}", min(scales), float("inf"), LEAST_SCALE)
    check_number(f"the largest number of {what}", most, MOST_SCALED)
