"""The lock of a run on its GPU, so that no two runs measure each other.

The kernel releases a lock when its owner dies, so the next run can tell a dead owner's lock file
from a live one's.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from time import monotonic, sleep

from advisor.errors import GpuUnavailable
from advisor.measure.process.scratch_folders import sweep_folders, temporary_base


@contextmanager
def gpu_lock(uuid: str, command: str) -> Iterator[Path]:
    """Lock the GPU `uuid` while the block runs; the kernel releases it if this process is killed.

    Raises:
        GpuUnavailable: Another run holds the lock; the message names it.
    """
    path, descriptor = lock_gpu(uuid, command)
    try:
        yield path
    finally:
        unlock_gpu(path, descriptor)


def lock_gpu(uuid: str, command: str) -> tuple[Path, int]:
    """Lock the GPU `uuid`: the lock's file, and the descriptor that holds it.

    It is held until every process that has the descriptor has ended or closed it.

    Args:
        uuid: The GPU.
        command: The user's command line.

    Raises:
        GpuUnavailable: Another run holds the lock; the message names it.
    """
    path = _lock_path(uuid)
    descriptor = _locked_lock(path)
    owner = {
        "pid": os.getpid(),
        "user": _user(),
        "command": command,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(owner).encode(), 0)
    return path, descriptor


def unlock_gpu(path: Path, descriptor: int) -> None:
    """Give back what `lock_gpu` returned."""
    # Before unlocking: afterwards the file might already be another run's.
    path.unlink(missing_ok=True)
    os.close(descriptor)


def _lock_path(uuid: str) -> Path:
    return temporary_base() / f"advisor-{uuid}.lock"


def sweep_locks() -> tuple[Path, ...]:
    """Remove the lock files of runs that were killed.

    Returns:
        Those files.
    """
    found = []
    for path in left_locks():
        path.unlink(missing_ok=True)
        found.append(path)
    return tuple(found)


def left_locks() -> Iterator[Path]:
    """The lock files of runs that were killed, each locked until the next is asked for."""
    for path in temporary_base().glob("advisor-*.lock"):
        with suppress(OSError, GpuUnavailable):
            descriptor = _locked_lock(path, create=False)
            try:
                yield path
            finally:
                os.close(descriptor)


def _locked_lock(path: Path, *, create: bool = True) -> int:
    """A descriptor of the lock file at `path`, locked."""
    until = monotonic() + 0.5
    try:
        while (descriptor := locked_file(path, os.O_CREAT if create else 0, 0o644)) is None:
            with suppress(FileNotFoundError):
                if path.stat().st_size > 0 or monotonic() > until:
                    raise _owned(path)
            sleep(0.01)  # another process looks whether it was left, or has just made it
    except PermissionError:
        raise _owned(path) from None
    return descriptor


def locked_file(path: Path, flags: int, mode: int) -> int | None:
    """A descriptor of the file at `path`, locked, and still the file there; None: another has it.

    Args:
        path: A regular file.
        flags: Of open(2), beside those for reading and writing.
        mode: Of a new file.

    Raises:
        OSError: It cannot be opened.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | flags, mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # The owner before us may have removed the file between our opening and locking it.
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _owned(path: Path) -> GpuUnavailable:
    try:
        owner = json.loads(path.read_text())
        by = "{user}, process {pid} since {since}: {command}".format(**owner)
    except (OSError, ValueError, TypeError, KeyError):
        by = "another run, which has not said whose it is"
    return GpuUnavailable(f"{path}: this GPU is in use by {by}. Wait for it, or use another GPU.")


def _user() -> str:
    try:
        return getuser()
    except (KeyError, OSError):  # a uid without a name, as in some containers
        return str(os.getuid())


def sweep() -> None:
    """Remove what killed runs left behind: folders, MPS daemons and lock files."""
    sweep_folders()
    sweep_locks()
