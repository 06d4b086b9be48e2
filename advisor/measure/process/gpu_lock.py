"""One lock per GPU, so that two runs never measure each other."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path

from advisor.errors import GpuUnavailable
from advisor.measure.process.scratch_folder import temporary_base


@contextmanager
def gpu_lock(uuid: str, command: str) -> Iterator[Path]:
    """Lock the GPU `uuid` while the block runs; the kernel releases it if this process is killed.

    Raises:
        GpuUnavailable: Another run holds the lock; the message names it.
    """
    path = temporary_base() / f"advisor-{uuid}.lock"
    descriptor = _locked(path)
    try:
        owner = {
            "pid": os.getpid(),
            "user": _user(),
            "command": command,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(owner).encode(), 0)
        yield path
    finally:
        # Before unlocking: afterwards the file might already be another run's.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def sweep_locks() -> None:
    """Remove the lock files of runs that were killed."""
    for path in temporary_base().glob("advisor-*.lock"):
        with suppress(OSError, GpuUnavailable):
            descriptor = _locked(path, create=False)
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(path: Path, *, create: bool = True) -> int:
    """A descriptor of the file at `path`, locked, and still the file at `path`."""
    while True:
        descriptor = _opened(path, os.O_CREAT if create else 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise _owned(path) from None
        # The owner before us may have removed the file between our opening and locking it.
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _opened(path: Path, create: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | create, 0o644)
    except PermissionError:
        raise _owned(path) from None


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
