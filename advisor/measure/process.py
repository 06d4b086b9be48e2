"""The lock of a run on its GPU, so that no two runs measure each other.

The kernel releases a lock when its owner dies, so the next run can tell a dead owner's lock file
from a live one's.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from getpass import getuser
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep, time
from types import FrameType

from advisor.errors import AdvisorError, GpuUnavailable, clean
from advisor.hardware.mps import mps_processes
from advisor.workload.reading import present_folder, reason_of

_LONGEST_LINE = 300
_LONGEST_UNFINISHED = 65_536
# What the interpreter says last of an exception that nobody caught; a rank's number may precede it.
_RAISED = re.compile(r"(?:\[rank\d+\]:\s*)?[\w.]*(?:Error|Exception|Interrupt): \S.*")
# Said by what started a program that failed, of itself.
_OF_LAUNCHERS = re.compile(r"subprocess\.CalledProcessError|.*ChildFailedError")


def ended_lines(printed: bytes) -> tuple[list[bytes], bytes]:
    """Lines that have ended, also those that a progress bar writes over, and what comes after."""
    *lines, rest = re.split(rb"[\r\n]", printed)
    return lines, rest[-_LONGEST_UNFINISHED:]


def shown_lines(text: str) -> list[str]:
    """The lines of `text` that hold anything, without what a progress bar wrote over."""
    lines = (line.rstrip().rpartition("\r")[2].strip() for line in text.split("\n"))
    return [line for line in lines if line]


def telling_line(text: str) -> str:
    """The line that tells most of how a program ended that printed `text`; empty without any.

    That of the last exception, else the last one that speaks of an error, else the last.
    """
    lines = shown_lines(text)
    own = [line for line in lines if not _OF_LAUNCHERS.match(line)]
    raised = [line for line in own if _RAISED.fullmatch(line)]
    errors = raised or [line for line in own if "rror" in line] or lines
    return errors[-1][:_LONGEST_LINE] if errors else ""


MARK = "ADVISOR_SCRIPT"
"""The variable that names the folder made for a script."""


def scripts_within(folder: Path) -> tuple[int, ...]:
    """Pids of the living processes of scripts whose folders lie in `folder`, or are it."""
    whole = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            with suppress(OSError):  # it has just ended, or is another user's
                variables = (path / "environ").read_bytes().split(b"\0")
                if any(each == whole or each.startswith(whole + b"/") for each in variables):
                    found.append(int(path.name))
    return tuple(found)


def cpu_s_of(pid: int) -> float:
    """User and system time of a process (proc(5): stat, fields 14 and 15); 0 once it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def session_members(leader: int) -> list[int]:
    """The pids of all living processes in the session of `leader` (proc(5): stat, field 6)."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.append(int(folder.name))
    return found


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
        "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),  # noqa: UP017
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


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# The exit code that a shell reports for a command ended by Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT

# Longer than the timeouts for ending tenants, the MPS daemon and its server.
_TEARDOWN_S = 90.0

# One thread per tenant for every mathematics library that torch may use: a tenant has one core.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def supervised(entry: str, argv: Sequence[str]) -> int:
    """Run ``entry(argv)`` in an inner process that cleans up, and return its exit code.

    Args:
        entry: ``"module:function"``; the function takes words and returns an exit code. An
            `AdvisorError` from it becomes a line on stderr and that error's exit code.
        argv: The words of the command line after its name.
    """
    sweep()
    inner, ours = started_inner(entry, argv, start_new_session=True)
    try:
        _interrupt_on_signals()
        code = inner.wait()
    except KeyboardInterrupt:
        os.close(ours)
        code = _after_teardown(inner)
    finally:
        sweep()
    if code < 0:
        name = signal.Signals(-code).name
        print(f"error: the run was killed by {name}. Look for the cause in dmesg.", file=sys.stderr)
        return AdvisorError.exit_code
    return code


def started_inner(
    entry: str, argv: Sequence[str], *, start_new_session: bool = False, keep: Sequence[int] = ()
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start a process that runs ``entry(argv)``; it, and our descriptor of its lifeline.

    Args:
        entry: As for `supervised`.
        argv: The words passed to it.
        start_new_session: Whether it leaves this process's session, so that a terminal's Ctrl-C
            does not reach it.
        keep: Descriptors that it inherits.
    """
    lifeline, ours = os.pipe()
    inner = subprocess.Popen(
        [sys.executable, "-m", "advisor.measure", "inner", entry, *argv],
        stdin=lifeline,
        env=os.environ | _ONE_THREAD,
        start_new_session=start_new_session,
        pass_fds=keep,
    )
    os.close(lifeline)
    return inner, ours


def _after_teardown(inner: "subprocess.Popen[bytes]") -> int:
    try:
        return inner.wait(_TEARDOWN_S)
    except subprocess.TimeoutExpired:
        os.killpg(inner.pid, signal.SIGKILL)
        return inner.wait()


def run_inner(entry: str, argv: Sequence[str]) -> int:
    """Run ``entry(argv)`` in the inner process, interrupted when the lifeline closes."""
    _interrupt_on_signals()
    threading.Thread(target=_watch_lifeline, daemon=True).start()
    module, _, function = entry.partition(":")
    run: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    try:
        present_folder()
        return run(argv)
    except AdvisorError as error:
        say(clean(f"error: {error}"))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted: everything that was started has been ended")
        return INTERRUPTED


def say(line: str) -> None:
    """Print a line of progress on stderr; a closed terminal does not stop the run."""
    with suppress(OSError):
        print(clean(line, keep="\n"), file=sys.stderr, flush=True)


def _interrupt_on_signals() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _INTERRUPTS:  # a second one must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _INTERRUPTS:
        signal.signal(number, interrupt)


def _watch_lifeline() -> None:
    while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
