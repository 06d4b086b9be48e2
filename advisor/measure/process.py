"""Processes of a run, and the folders and locks by which they are owned.

The kernel releases a lock when its owner dies, so the next run removes what a killed one left.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep, time
from types import FrameType

import psutil

from advisor.errors import AdvisorError, GpuUnavailable, clean
from advisor.files.reading import present_folder, reason_of
from advisor.hardware.machine import mps_processes
from advisor.measure.inside import VARIABLE

# What the interpreter prints last of an exception that was not caught; a rank may precede it.
_RAISED = re.compile(r"(?:\[rank\d+\]:\s*)?[\w.]*(?:Error|Exception|Interrupt): \S.*")
# A launcher prints these of itself, after a program that it started has failed.
_OF_LAUNCHERS = re.compile(r"subprocess\.CalledProcessError|.*ChildFailedError")
# Colours, movements of the cursor, links and character sets (ECMA-48, 5.4 and 8.3; ECMA-35).
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-Z=>])"
)


def plain(printed: bytes) -> bytes:
    """Return what a program `printed` without what is meant for the terminal."""
    return _ESCAPES.sub(b"", printed)


def tail(log: Path) -> str:
    """Return the plain end of a program's log; empty if there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
        return plain(file.read()).decode(errors="replace")
    return ""


def error_line(text: str) -> str:
    """Return the line of a program's output that best explains its end; empty without any.

    That of the last exception, else the last one that contains "error", else the last. Lines that a
    progress bar wrote over are left out.
    """
    shown = (line.rstrip().rpartition("\r")[2].strip() for line in text.split("\n"))
    lines = [line for line in shown if line]
    own = [line for line in lines if not _OF_LAUNCHERS.match(line)]
    raised = [line for line in own if _RAISED.fullmatch(line)]
    errors = raised or [line for line in own if "rror" in line] or lines
    return errors[-1][:300] if errors else ""


def wait_until(true: Callable[[], object], seconds: float) -> bool:
    """Return whether `true()` holds within `seconds`."""
    until = monotonic() + seconds
    while not true():
        if monotonic() > until:
            return False
        sleep(0.02)
    return True


def say(line: str) -> None:
    """Print a line of progress on stderr; a closed terminal does not stop the run."""
    with suppress(OSError):
        print(clean(line, keep="\n"), file=sys.stderr, flush=True)


MARK = "ADVISOR_SCRIPT"
"""The variable that names the folder made for a script."""


def processes_of(name: str, *values: str) -> list[int]:
    """Return this user's living processes with a variable `name` of one of `values`."""
    begins = tuple(each[:-1] for each in values if each.endswith("*"))
    return [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (value := (process.info["environ"] or {}).get(name)) is not None
        and (value in values or value.startswith(begins))
    ]


def scripts_within(folder: Path) -> tuple[int, ...]:
    """Return the pids of living processes of scripts whose folders are `folder` or lie in it."""
    pids = processes_of(MARK, str(folder), f"{folder}/*")
    return tuple(pid for pid in pids if pid != os.getpid())


def session_members(leader: int) -> list[int]:
    """Return the pids of all living processes in the session of `leader`."""
    pids = []
    for pid in psutil.pids():
        with suppress(ProcessLookupError, psutil.Error):  # the session first: reading takes longer
            if os.getsid(pid) == leader and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                pids.append(pid)
    return pids


def mps_within(folder: Path) -> tuple[int, ...]:
    """Return the pids of MPS daemons and servers whose pipes lie in `folder`."""
    pipes = ((each.pid, each.pipe_directory) for each in mps_processes())
    return tuple(pid for pid, path in pipes if path and Path(path).is_relative_to(folder))


def end_all(living: Callable[[], Sequence[int]]) -> None:
    """End the processes that `living` returns: politely, then by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in living():
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        wait_until(lambda: not living(), 3.0)


def end_within(folder: Path) -> None:
    """End every script whose folder lies in `folder`, then every MPS process whose pipes do."""
    end_all(lambda: scripts_within(folder))
    end_all(lambda: mps_within(folder))


FOLDER_PREFIX = "advisor-run-"


def temporary_base() -> Path:
    """Return the system's folder of temporary files; /tmp if that is too long for sockets."""
    base = gettempdir()
    # A socket's path has at most 107 bytes (sun_path, unix(7)); ours add some 50.
    return Path(base if len(os.fsencode(base)) <= 50 else "/tmp")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a new folder for this process alone, removed when the block ends."""
    base = temporary_base()
    try:
        folder = Path(mkdtemp(prefix=FOLDER_PREFIX, dir=base))
    except OSError as error:
        raise AdvisorError(f"{base}: {reason_of(error)}. Make room there, or set TMPDIR.") from None
    while (descriptor := locked(folder, os.O_DIRECTORY)) is None:
        sleep(0.01)  # another process looks whether it was left
    try:
        (folder / "owned").touch()
        yield folder
    finally:
        end_within(folder)  # one that an interrupt kept from being noted
        _remove(folder)
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove `folder`, also what a script or an overlay made unreadable in it."""
    for place, names, _ in os.walk(folder):  # it enters each only after it was yielded
        for inner in (Path(place, name) for name in names):
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def locked(path: Path, flags: int) -> int | None:
    """Yield a descriptor of the file or folder at `path`, locked, and still the one there.

    `flags` are those of open(2). None: another process holds the lock, which all processes share
    that inherit the descriptor: so flock(2), and no library that unlocks when the first lets go.
    """
    while True:
        descriptor = os.open(path, os.O_NOFOLLOW | flags, 0o644)
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


def unowned(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the paths of `paths` whose owners were killed, each locked until the next one."""
    for path in paths:
        with suppress(OSError):
            descriptor = locked(path, os.O_DIRECTORY if path.is_dir() else os.O_RDWR)
            if descriptor is None:
                continue
            try:
                yield path
            finally:
                os.close(descriptor)


def left_behind() -> Iterator[Path]:
    """Yield folders and lock files of killed runs, each locked until the next one."""
    base = temporary_base()
    for path in unowned([*base.glob(FOLDER_PREFIX + "*"), *base.glob("advisor-*.lock")]):
        # The owner of a new and empty folder may be about to lock it, within far less than 10 s.
        age_s = time() - path.stat().st_mtime
        if path.is_file() or any(path.iterdir()) or age_s >= 10:
            yield path


def sweep() -> tuple[Path, ...]:
    """Remove the folders and lock files of killed runs; end their scripts and MPS daemons."""
    removed = []
    for path in left_behind():
        if path.is_dir():
            end_within(path)
            _remove(path)
        else:
            path.unlink(missing_ok=True)
        removed.append(path)
    return tuple(removed)


@contextmanager
def gpu_lock(uuid: str, command: str) -> Iterator[Path]:
    """Lock the GPU `uuid` while the block runs; see `lock_gpu`."""
    path, descriptor = lock_gpu(uuid, command)
    try:
        yield path
    finally:
        # Before unlocking: afterwards the file might already be another run's.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def lock_gpu(uuid: str, command: str) -> tuple[Path, int]:
    """Lock the GPU `uuid` for the user's `command`: the lock's file, and its descriptor.

    The lock is held until every process that has the descriptor has ended or closed it.
    """
    path = temporary_base() / f"advisor-{uuid}.lock"
    descriptor, until = None, monotonic() + 2.0  # others may look whether it was left
    with suppress(PermissionError):  # another user's
        while descriptor is None and monotonic() < until:
            descriptor = locked(path, os.O_RDWR | os.O_CREAT)
            sleep(0.01 * (descriptor is None))
    if descriptor is None:
        owner = "another run, whose owner is not recorded"
        with suppress(OSError, ValueError, TypeError, KeyError):
            about = json.loads(path.read_text())
            owner = "{user}, process {pid} since {since}: {command}".format(**about)
        raise GpuUnavailable(
            f"{path}: this GPU is in use by {owner}. Wait for it, or use another GPU."
        )
    about = {
        "pid": os.getpid(),
        "user": psutil.Process().username(),
        "command": command,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(about).encode(), 0)
    return path, descriptor


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# The exit code that a shell reports for a command ended by Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT


def supervise(entry: str, document: str) -> int:
    """Run ``entry(document)`` in an inner process that cleans up, and return its exit code.

    The inner process has a session of its own, and holds the reading end of a pipe, its lifeline.
    When the outer process ends in any way, the lifeline closes and the inner process is
    interrupted, so its ``with`` blocks clean up. If the inner process is killed, its tenants die
    with it (`advisor.measure.launcher`), and the outer process sweeps. If both are killed, a third
    one sweeps, which does nothing else; if all three are, the next run does. `entry` is
    ``"module:function"``; an `AdvisorError` from it becomes a line on stderr and its exit code.
    """
    sweep()
    sweeper, held = start_own("sweep", start_new_session=True, output=subprocess.DEVNULL)
    inner, ours = start_own("inner", entry, document, start_new_session=True, keep=[held])
    with _interrupted_by_signals():
        try:
            code = inner.wait()
        except KeyboardInterrupt:
            os.close(ours)
            try:
                code = inner.wait(90)  # longer than it takes to end tenants, MPS and its server
            except subprocess.TimeoutExpired:
                os.killpg(inner.pid, signal.SIGKILL)
                code = inner.wait()
        finally:
            sweep()
            sweeper.kill()
            sweeper.wait()
    if code < 0:
        name = signal.Signals(-code).name
        say(f"error: the run was killed by {name}. Look for the cause in dmesg.")
        return AdvisorError.exit_code
    return code


def start_own(
    *words: str,
    start_new_session: bool = False,
    keep: Sequence[int] = (),
    output: int | None = None,
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start this module with `words`; return the process and our descriptor of its lifeline.

    In a new session, a terminal's Ctrl-C does not reach it. It inherits the descriptors `keep`.
    """
    lifeline, ours = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "advisor.measure.process", *words],
        stdin=lifeline,
        stdout=output,
        stderr=output,
        start_new_session=start_new_session,
        pass_fds=keep,
    )
    os.close(lifeline)
    return process, ours


def run_inner(entry: str, document: str) -> int:
    """Run ``entry(document)`` in the inner process, interrupted when the lifeline closes."""

    def watch_lifeline() -> None:
        while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    module, _, function = entry.partition(":")
    try:  # an interrupt may come during the imports, too
        with _interrupted_by_signals():
            threading.Thread(target=watch_lifeline, daemon=True).start()
            run: Callable[[str], int] = getattr(import_module(module), function)
            present_folder()
            return run(document)
    except AdvisorError as error:
        say(clean(f"error: {error}"))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted: all processes of the measurement have ended")
        return INTERRUPTED


@contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """Let the first of `_INTERRUPTS` interrupt the block, as Ctrl-C does, and ignore the others."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _INTERRUPTS:  # a second one must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(argv: Sequence[str]) -> int:
    """Run as the inner process of a command, its sweeper, or a server; return the exit code."""
    if argv[0] == "inner":
        return run_inner(*argv[1:])
    if argv[0] == "sweep":
        sys.stdin.read()  # until the supervisor and the inner process have ended
        sleep(0.5)  # the kernel closes the files of a killed process in turn, locks perhaps last
        sweep()
        return 0
    from advisor.measure.inside.program import serve

    module, _, name = argv[1].partition(":")
    serve(json.loads(os.environ[VARIABLE])["address"], getattr(import_module(module), name))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
