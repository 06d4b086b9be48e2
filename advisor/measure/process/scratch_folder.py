"""The folder in which a run keeps everything that must not outlive it.

Its owner holds a lock on it. The kernel releases that lock when the owner dies, so the next run
can tell a dead owner's folder from a live one's.
"""

import fcntl
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep, time

from advisor.hardware.mps_processes import mps_processes

FOLDER_PREFIX = "advisor-run-"

# A Unix socket's path has at most 107 bytes (sun_path, unix(7)); ours add some 50.
_LONGEST_BASE = 50

# Far more than passes between making a folder and locking it.
_NEW_FOLDER_S = 10.0


def temporary_base() -> Path:
    """The system's folder of temporary files; /tmp if that path is too long for sockets."""
    base = gettempdir()
    return Path(base if len(os.fsencode(base)) <= _LONGEST_BASE else "/tmp")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder for this process alone, removed when the block ends."""
    folder = Path(mkdtemp(prefix=FOLDER_PREFIX, dir=temporary_base()))
    try:
        with _locked(folder):
            (folder / "owned").touch()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_folders() -> None:
    """Remove the folders of killed owners, and end the MPS daemons they left."""
    for folder in temporary_base().glob(FOLDER_PREFIX + "*"):
        with suppress(OSError), _locked(folder):
            if not _is_new(folder):
                end_mps_within(folder)
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises `OSError` if another process holds the lock, or `folder` is not ours."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _is_new(folder: Path) -> bool:
    """Whether its owner may be about to lock it."""
    return not any(folder.iterdir()) and time() - folder.stat().st_mtime < _NEW_FOLDER_S


def end_mps_within(folder: Path) -> None:
    """End every MPS daemon and server whose pipes lie in `folder`."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in mps_within(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        if wait_until(lambda: not mps_within(folder), seconds=3):
            return


def mps_within(folder: Path) -> tuple[int, ...]:
    """The pids of MPS daemons and servers whose pipes lie in `folder`."""
    return tuple(
        each.pid
        for each in mps_processes()
        if each.pipe_directory and Path(each.pipe_directory).is_relative_to(folder)
    )


def wait_until(true: Callable[[], object], seconds: float) -> bool:
    """Whether `true()` holds within `seconds`."""
    until = monotonic() + seconds
    while not true():
        if monotonic() > until:
            return False
        sleep(0.02)
    return True
