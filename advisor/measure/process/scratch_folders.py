"""The folder of a run, in which everything lies that must not outlive it.

A run holds a lock on it. The kernel releases a lock when its owner dies, so the next run can tell a
dead owner's folder from a live one's.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import time

from advisor.errors import AdvisorError
from advisor.measure.process.process_ends import end_mps_within, end_scripts_within
from advisor.workload.files import reason_of

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
    """A new folder for this process alone, removed when the block ends.

    Raises:
        AdvisorError: It cannot be made.
    """
    base = temporary_base()
    try:
        folder = Path(mkdtemp(prefix=FOLDER_PREFIX, dir=base))
    except OSError as error:
        raise AdvisorError(f"{base}: {reason_of(error)}. Make room there, or set TMPDIR.") from None
    try:
        with _locked(folder):
            (folder / "owned").touch()
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_folders() -> tuple[Path, ...]:
    """Remove the folders of killed owners, and end the scripts and MPS daemons they left.

    Returns:
        Those folders.
    """
    found = []
    for folder in left_folders():
        with suppress(OSError):
            end_scripts_within(folder)
            end_mps_within(folder)
            shutil.rmtree(folder, ignore_errors=True)
            found.append(folder)
    return tuple(found)


def left_folders() -> Iterator[Path]:
    """The folders of killed owners, each locked until the next is asked for."""
    for folder in temporary_base().glob(FOLDER_PREFIX + "*"):
        with suppress(OSError), _locked(folder):
            if not _is_new(folder):
                yield folder


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
