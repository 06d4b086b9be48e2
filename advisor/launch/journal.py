"""The journal of how the MIG instances of a GPU are changed, so that this can be undone.

A file for each GPU in the user's data folder: a line that says who, then a line an event, on the
disk before the act that it tells of::

    with journal(uuid, "advisor run") as log:
        entry = log.intend(ChangedMig(before=..., ours=...))
        ...                       # make instances
        ...                       # put back those of before
        log.undone(entry)

The file goes once nothing is left to undo. Its lock, which the kernel releases when the owner dies
in any way, tells what a dead one left from what a live one still does. Processes and MPS daemons
have the folder of their run for this: `advisor.measure.execution`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from advisor.errors import AdvisorError, GpuUnavailable, InvalidInput
from advisor.launch.machine_changes import ChangedMig, Owner, this_process
from advisor.measure.process.journal_files import journal_file
from advisor.measure.process.run_locks import locked_file
from advisor.workload.files import read_bytes, reason_of
from advisor.workload.records import parse_record

_REMEDY = "Compare `nvidia-smi mig -lgi` with what it tells of, and remove the file."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A line of the journal; `change` is None where the change was undone."""

    entry: int
    change: ChangedMig | None


class Journal:
    """An open journal, its lock held; made by `journal` and `taken_over`.

    Attributes:
        owner: Process that began it.
        left: Changes that are not undone, by entry, in the order in which they were intended.
        damaged: Why lines cannot be read. A torn last line does not count: its change was never
            begun.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.left: dict[int, ChangedMig] = {}
        self.damaged: list[str] = []
        self._descriptor = descriptor
        self._entries = 0
        content = read_bytes(path)
        whole = content.rfind(b"\n") + 1
        os.ftruncate(descriptor, whole)
        first, *lines = content[:whole].splitlines() or [b""]
        self.owner = parse_record(Owner, first, f"{path}, line 1", _REMEDY)
        for number, line in enumerate(lines, start=2):
            self._read(number, line)
        if not self.owner.in_this_boot:  # which no instance outlives
            self.left.clear()

    def intend(self, change: ChangedMig) -> int:
        """Write down a change that is about to be made.

        Returns:
            The entry, for `undone`.

        Raises:
            AdvisorError: It cannot be written; then the change must not be made.
        """
        self._entries += 1
        try:
            self._append(_Event(entry=self._entries, change=change))
        except OSError as error:
            raise AdvisorError(
                f"{self.path}: {reason_of(error)}. Nothing is begun that could not be undone: make "
                f"room there, or set XDG_DATA_HOME."
            ) from None
        self.left[self._entries] = change
        return self._entries

    def undone(self, entry: int) -> None:
        """Write down that the change of `entry` was undone.

        Fails silently: undoing a change twice does no harm.
        """
        self.left.pop(entry, None)
        with suppress(OSError):
            self._append(_Event(entry=entry, change=None))

    def sweep(self) -> None:
        """Remove the file, unless a change is left, or lines could not be read."""
        if not self.left and not self.damaged:
            with suppress(OSError):
                self.path.unlink()

    def _append(self, event: _Event) -> None:
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            _written(self._descriptor, event)
        except OSError:
            with suppress(OSError):  # half a line would spoil the next
                os.ftruncate(self._descriptor, end)
            raise

    def _read(self, number: int, line: bytes) -> None:
        try:
            event = parse_record(_Event, line, f"{self.path}, line {number}", _REMEDY)
        except InvalidInput as error:
            self.damaged.append(str(error))
            return
        self._entries = max(self._entries, event.entry)
        if event.change is None:
            self.left.pop(event.entry, None)
        else:
            self.left[event.entry] = event.change


@contextmanager
def journal(gpu: str, command: str) -> Iterator[Journal]:
    """The journal of a GPU while the block runs; it still holds what a dead owner left.

    Args:
        gpu: UUID of the whole GPU.
        command: For messages; holds no secrets.

    Raises:
        GpuUnavailable: A live process holds it.
        AdvisorError: The data folder cannot be written.
        InvalidInput: Its file is damaged.
    """
    path = journal_file(gpu)
    with ExitStack() as ends:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if (descriptor := locked_file(path, os.O_APPEND | os.O_CREAT, 0o600)) is None:
                raise GpuUnavailable(
                    f"another run changes the MIG instances of {gpu}. Wait for it."
                )
            ends.callback(os.close, descriptor)
            log = _begun(path, descriptor, this_process(gpu, command))
        except OSError as error:
            raise AdvisorError(
                f"{path}: {reason_of(error)}. What is begun must be written down there first: make "
                f"it writable, or set XDG_DATA_HOME."
            ) from None
        ends.callback(log.sweep)
        yield log


@contextmanager
def taken_over(path: Path) -> Iterator[Journal | None]:
    """The journal at `path`; None if its owner lives, or it is empty.

    Raises:
        AdvisorError: It cannot be opened.
        InvalidInput: Its file is damaged.
    """
    try:
        descriptor = locked_file(path, os.O_APPEND, 0o600)
    except FileNotFoundError:
        descriptor = None
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Run this as the file's owner.") from None
    with ExitStack() as ends:
        log = None
        if descriptor is not None:
            ends.callback(os.close, descriptor)
            if _has_owner(path):
                log = Journal(path, descriptor)
                ends.callback(log.sweep)
            else:
                path.unlink()
        yield log


def _begun(path: Path, descriptor: int, owner: Owner) -> Journal:
    if _has_owner(path) and (log := Journal(path, descriptor)).owner.in_this_boot:
        return log
    os.ftruncate(descriptor, 0)
    _written(descriptor, owner)
    _sync(path.parent)
    return Journal(path, descriptor)


def _has_owner(path: Path) -> bool:
    """Whether the file names its owner; it does not if the owner died before its first change."""
    return b"\n" in read_bytes(path)


def _written(descriptor: int, record: Owner | _Event) -> None:
    line = json.dumps(asdict(record), separators=(",", ":")).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]
    os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
