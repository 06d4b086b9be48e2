"""The folder of a run, in which everything lies that must not outlive it, and the lock on its GPU.

A run holds locks on both, so that no two runs measure each other. The kernel releases a lock when
its owner dies, so the next run can tell a dead owner's folder and lock file from a live one's.
"""

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep, time

from advisor.errors import AdvisorError, GpuUnavailable
from advisor.hardware.mps import mps_processes
from advisor.measure.process.script_processes import scripts_within
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


def end_mps_within(folder: Path) -> None:
    """End every MPS daemon and server whose pipes lie in `folder`."""
    _end_all(lambda: mps_within(folder))


def end_scripts_within(folder: Path) -> None:
    """End every process of a measured script whose folder lies in `folder`, or is it."""
    _end_all(lambda: scripts_within(folder))


def _end_all(found: Callable[[], Sequence[int]]) -> None:
    """End the processes that `found` finds, by request and else by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in found():
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        if wait_until(lambda: not found(), seconds=3):
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


def lock_gpu(uuid: str, command: str, run: str | None = None) -> tuple[Path, int]:
    """Lock the GPU `uuid`: the lock's file, and the descriptor that holds it.

    It is held until every process that has the descriptor has ended or closed it.

    Args:
        uuid: The GPU.
        command: The user's command line.
        run: Id of the run that it is held for; None: it is held for this process.

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
        "run": run,
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(owner).encode(), 0)
    return path, descriptor


def unlock_gpu(path: Path, descriptor: int) -> None:
    """Give back what `lock_gpu` returned."""
    # Before unlocking: afterwards the file might already be another run's.
    path.unlink(missing_ok=True)
    os.close(descriptor)


def run_holding(uuid: str) -> str | None:
    """Id of the run for which the GPU `uuid` is locked, as its lock says; None: of none."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(_lock_path(uuid).read_text()).get("run")
        return found if isinstance(found, str) else None
    return None


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
