"""The one folder in which a run keeps everything that must not outlive it.

Its name says who owns it, so that whoever comes next can tell a dead owner's folder from a
live one's.
"""

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep

from advisor.gpu.mps_processes import mps_processes

_NAME = re.compile(r"advisor-run-(?P<pid>\d+)-(?P<born>\d+)-.*")

# A Unix socket's path has at most 107 bytes (sun_path, unix(7)); ours add some 50.
_LONGEST_BASE = 50


def temporary_base() -> Path:
    """The system's folder of temporary files; /tmp where that is too long for sockets."""
    base = gettempdir()
    return Path(base if len(os.fsencode(base)) <= _LONGEST_BASE else "/tmp")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder of this process alone, gone when the block ends."""
    prefix = f"advisor-run-{os.getpid()}-{_born(os.getpid())}-"
    folder = Path(mkdtemp(prefix=prefix, dir=temporary_base()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_folders() -> None:
    """Remove the folders of owners that were killed, and end the MPS daemons they left."""
    for folder in temporary_base().glob("advisor-run-*"):
        match = _NAME.fullmatch(folder.name)
        if match is None or _born(int(match["pid"])) == int(match["born"]):
            continue
        with suppress(OSError):
            if folder.lstat().st_uid == os.geteuid():
                end_mps_within(folder)
                shutil.rmtree(folder, ignore_errors=True)


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
    """Whether `true` became so within `seconds`."""
    until = monotonic() + seconds
    while not true():
        if monotonic() > until:
            return False
        sleep(0.02)
    return True


def _born(pid: int) -> int | None:
    """When the kernel started `pid`, in its ticks since boot; None where no such process runs.

    A pid is used again after its process ended; a pid with this number is not.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may hold anything; field 22 is the 20th after it (proc(5)).
    state, *rest = stat.rpartition(")")[2].split()
    return None if state == "Z" else int(rest[18])
