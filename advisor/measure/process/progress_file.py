"""Small records, such as steps done, that a job's processes overwrite and its watcher reads.

Each is one JSON object in a file of a fixed size, written by a single call; a reader that meets one
half written, or none, has None. What is read was written by a user's process: it is checked.
"""

import json
import os
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any

from advisor.errors import AdvisorError
from advisor.workload.files import reason_of
from advisor.workload.plausible import MOST_COUNT

RECORD_BYTES = 512
"""A record is written in place into a file of this size, which needs no room on a full disk."""

PROGRESS = "ADVISOR_PROGRESS"
"""The variable that tells a job's processes where they count steps."""


def put(descriptor: int, record: dict[str, Any]) -> None:
    """Write `record` over the one before it."""
    os.pwrite(descriptor, json.dumps(record).encode().ljust(RECORD_BYTES)[:RECORD_BYTES], 0)


def blank(path: Path) -> Path:
    """A new file for a record, without one; its room on the disk is taken now.

    Raises:
        AdvisorError: It is there, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(descriptor, b" " * RECORD_BYTES, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Make room, or choose another.") from None
    return path


def record_in(path: Path) -> dict[str, Any]:
    """The record in the file; empty where there is none that can be read."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class ProgressWriter:
    """Counts the steps of this process where whoever watches looks; does nothing if nobody does."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._more: dict[str, Any] = {}
        if path := os.environ.get(PROGRESS):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def report(self, steps: int, **more: Any) -> None:
        """Write that so many are done now; `more` stays until it is given anew."""
        self._more |= more
        if self._descriptor is not None:
            put(self._descriptor, {"steps": steps, "at": monotonic()} | self._more)


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """What a job said last.

    Attributes:
        steps: Done since it began.
        at_s: When it said so, on the machine's monotonic clock, which no clock change moves.
        allocated_mib: Most that its tensors held; None: not said.
        reserved_mib: Most that its allocator held; None: not said.
        versions: ``torch``, ``cuda`` and ``timm``, as far as it said.
        sms: SMs that its context may use; None: not said.
    """

    steps: int
    at_s: float
    allocated_mib: float | None = None
    reserved_mib: float | None = None
    versions: tuple[tuple[str, str | None], ...] = ()
    sms: int | None = None


def progress_in(path: Path) -> ReportedProgress | None:
    """What the job that writes `path` said last; None: nothing that can be true."""
    found = record_in(path)
    steps, at_s = found.get("steps"), _number(found.get("at"))
    if type(steps) is not int or not 0 <= steps <= MOST_COUNT or at_s is None:
        return None
    memory, sms = found.get("memory"), found.get("sms")
    held = memory if isinstance(memory, dict) else {}
    allocated, reserved = _number(held.get("allocated_mib")), _number(held.get("reserved_mib"))
    if allocated is None or reserved is None or allocated > reserved:
        allocated = reserved = None
    known_sms = sms if type(sms) is int and 0 < sms < 10_000 else None
    return ReportedProgress(
        steps, at_s, allocated, reserved, _versions(found.get("versions")), known_sms
    )


def _versions(found: Any) -> tuple[tuple[str, str | None], ...]:
    pairs = found.items() if isinstance(found, dict) else ()
    return tuple((name, value) for name, value in pairs if value is None or isinstance(value, str))


def _number(found: Any) -> float | None:
    """`found` as a number of at least 0 that a clock or a memory can have."""
    if type(found) not in (int, float) or not 0 <= found < 1e15 or not isfinite(found):
        return None
    return float(found)
