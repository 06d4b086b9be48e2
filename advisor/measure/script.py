"""A user's script: a copy of its folder to run in, its process, and the count of its steps."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import IO, Any, cast

import psutil

from advisor.errors import AdvisorError, InvalidInput, clean
from advisor.measure.inside.program import RECORD_BYTES
from advisor.measure.inside.routines import lacks_memory
from advisor.measure.pdeathsig import tied_to_parent
from advisor.measure.process import (
    MARK,
    end_within,
    error_line,
    scripts_within,
    session_members,
    tail,
)
from advisor.workload.reading import MOST_COUNT, is_folder, reason_of
from advisor.workload.spec import Script

# A script and its settings are small; data sets and checkpoints are not.
_COPIED_BYTES, _COPIED_IN_ALL = 2**20, 2**26
_MOST_IN_A_FOLDER, _MOST_IN_ALL = 1000, 5000


def mirror_folder(original: Path, base: Path) -> Path:
    """Make a folder below `base` with the contents of `original`, and with its surroundings.

    Small files are copied; large files, large folders and the surroundings are links.

    What a script writes by a relative path lands in the copy. A write to a linked file would reach
    the original, so `advisor.measure.inside.files` puts a copy in the link's place first. Folders
    beyond the limits above, mostly data, are linked whole: what a script writes inside them is
    written to the original. Around the copy lies what lies around the original, up to the root, as
    links.

    Raises:
        OSError: `original` cannot be read, or `base` not be written.
    """
    original, base = original.resolve(), base.resolve()
    level = base / "around"
    inside = original.parts[1:] or ("root",)
    for folder, inner in zip(reversed(original.parents), inside, strict=False):
        level.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # a script that reads ../data may do without what it cannot see
            for entry in _entries(folder, _MOST_IN_ALL) or ():
                if entry.name != inner and not base.is_relative_to(entry.path):
                    (level / entry.name).symlink_to(entry.path)
        level /= inner
    level.parent.mkdir(parents=True, exist_ok=True)
    mirror = base.joinpath("around", *inside)
    _fill(mirror, original, base)
    return mirror


def _entries(folder: Path, most: int | None = None) -> list[os.DirEntry[str]] | None:
    """The entries of `folder`; None if there are more than `most`."""
    with os.scandir(folder) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    return entries if most is None or len(entries) <= most else None


def _fill(mirror: Path, original: Path, base: Path) -> None:
    """Copy or link `original` to `mirror`, entries near its top first, within the limits."""
    left, room = _MOST_IN_ALL, _COPIED_IN_ALL
    todo = deque([(original, mirror)])
    while todo:
        source, target = todo.popleft()
        entries = None
        if target == mirror:
            entries = _entries(source)
        else:
            with suppress(PermissionError):
                entries = _entries(source, min(left, _MOST_IN_A_FOLDER))
        if entries is None:  # large, or not readable
            target.symlink_to(source.resolve())
            continue
        left -= len(entries)
        target.mkdir()
        for entry in entries:
            if entry.name == "__pycache__" or base.is_relative_to(entry.path):  # the mirror itself
                continue
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                todo.append((Path(entry.path), place))
            elif (size := _bytes_to_copy(entry)) <= min(room, _COPIED_BYTES):
                room -= size
                shutil.copy2(entry.path, place)
            else:
                place.symlink_to(os.path.realpath(entry.path))


def _bytes_to_copy(entry: os.DirEntry[str]) -> int:
    """Bytes of a file that can be copied; of anything else more than are ever copied."""
    with suppress(OSError):  # a link that leads nowhere, or in a circle
        if entry.is_file() and os.access(entry.path, os.R_OK):
            return entry.stat().st_size
    return _COPIED_BYTES + 1


# How long it has after each request to end, the next of which is less polite.
_POLITE_S = 3.0

# Only the last lines of its output are needed: a log beyond so many bytes is emptied.
_LOG_BYTES = 2**24
_LOOK_S = 1.0

_PYTHON = re.compile(r"python[0-9.]*")
_REMEDIES = {
    ".py": "Start it as you do: -- python {}",
    ".ipynb": "Make a script of it, jupyter nbconvert --to script {}, and start that with python",
}


class StartedScript:
    """A running script, with all processes that it starts.

    Attributes:
        pid: Its first process.
        exited: A descriptor that becomes readable when that has ended.
        log: Its last output.
        output: Its standard output and error, if they are piped, too.
    """

    def __init__(
        self, script: Script, folder: Path, *, mirrored: bool, piped: bool,
        environment: Mapping[str, str], hidden: Mapping[str, str], writable: bool = False,
    ) -> None:  # fmt: skip
        """Start `script` in a mirror of its folder, or else in `folder`, new, where its log lies.

        If `piped`, its output comes by a pipe, for the caller to log; if `writable`, so does its
        input. `environment` is set on top of the caller's variables, without those of MPS, and its
        own; so is `hidden`, below those.
        """
        working = _working_folder(script, folder) if mirrored else folder
        _refuse_missing(script)
        variables = {**without_mps(os.environ), **script.environment, **hidden}
        variables |= {**environment, MARK: str(folder)}
        self.log = folder / "output"
        self._folder, self._over = folder, Event()
        try:
            with self.log.open("ab") as log:
                self._process = psutil.Popen(
                    tied_to_parent(script.command), cwd=working, env=variables,
                    stdin=subprocess.PIPE if writable else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else log, stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that all that it starts can be ended with it
                )  # fmt: skip
        except OSError as error:
            raise InvalidInput(f"{script.command[0]}: {reason_of(error)}") from None
        Thread(target=self._bound_log, daemon=True).start()
        self.pid: int = self._process.pid
        self._interrupted = False
        self.exited = os.pidfd_open(self.pid)
        self.output: IO[bytes] | None = self._process.stdout

    def write_line(self, line: str) -> None:
        """Write `line` to its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which will be seen
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _bound_log(self) -> None:
        while not self._over.wait(_LOOK_S):
            with suppress(OSError):
                if self.log.stat().st_size > _LOG_BYTES:
                    os.truncate(self.log, 0)

    def cpu_s(self) -> float:
        """CPU seconds of its living processes so far, and of those that these waited for."""
        return sum(sum(each.cpu_times()[:4]) for each in self.processes())

    def resident_mib(self) -> float:
        """Memory of its processes on the host."""
        resident_bytes: int = sum(each.memory_info().rss for each in self.processes())
        return resident_bytes / 2**20

    def processes(self) -> Iterator[psutil.Process]:
        """Its living processes, also those in sessions of their own."""
        for pid in {*session_members(self.pid), *scripts_within(self._folder)}:
            with suppress(psutil.Error):
                yield psutil.Process(pid)

    def how_it_ended(self) -> str:
        """Its exit status, and the line that best explains it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        how = f"ended with exit status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        line = self.error_line()
        return f"{how}; it printed: {line}" if line else f"{how}, and printed nothing"

    @property
    def exit_code(self) -> int | None:
        """Its exit status; None while it runs."""
        return cast("int | None", self._process.poll())

    @property
    def succeeded(self) -> bool:
        """True once it has ended with exit status 0."""
        return self.exit_code == 0

    @property
    def out_of_memory(self) -> bool:
        """True if it failed and its output says that the device had no memory left."""
        return not self.succeeded and lacks_memory(self.last_output())

    def error_line(self) -> str:
        """The line of its last output that best explains its end; empty if there is none."""
        return clean(error_line(self.last_output()))

    def last_output(self) -> str:
        """The end of what it printed."""
        return tail(self.log)

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C would, once."""
        if not self._interrupted:
            self._interrupted = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def end_by(self, deadline: float) -> None:
        """Interrupt it, and end by force all processes that are left after `deadline`."""
        self.interrupt()
        self._wait_until(max(deadline, monotonic() + _POLITE_S))
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in session_members(self.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, how)
            self._wait_until(monotonic() + _POLITE_S)
        end_within(self._folder)  # processes that left its session
        with suppress(subprocess.TimeoutExpired):  # the driver may hold on to it
            self._process.wait(_POLITE_S)
        self._over.set()
        os.close(self.exited)
        for pipe in (self._process.stdin, self.output):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _wait_until(self, deadline: float) -> None:
        while session_members(self.pid) and monotonic() < deadline:
            self._process.poll()  # or it would stay as a zombie
            sleep(0.02)


def without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out the caller's own MPS settings, which would change how tenants share."""
    return {name: value for name, value in environment.items() if not name.startswith("CUDA_MPS_")}


def _refuse_missing(script: Script) -> None:
    program, *words = script.command
    own = Path(script.folder, program) if "/" in program else program
    if shutil.which(own, path=script.environment.get("PATH")) is None:
        remedy = _REMEDIES.get(Path(program).suffix, "Check the command").format(program)
        raise InvalidInput(f"{program}: there is no such program to start. {remedy}.")
    file = words[0] if words and _PYTHON.fullmatch(Path(program).name) else ""
    if file.endswith(".py") and not Path(script.folder, file).is_file():
        raise InvalidInput(f"{file}: no such file in {script.folder}, where it is to run")


def _working_folder(script: Script, folder: Path) -> Path:
    original = Path(script.folder)
    if not is_folder(original):
        raise InvalidInput(f"{original}: no such folder, and the script runs there")
    try:
        return mirror_folder(original, folder)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise AdvisorError(
                f"{folder}: no room for a copy of {original}. Set TMPDIR to a folder with more."
            ) from None
        where = error.filename or folder
        raise AdvisorError(f"{where}: {reason_of(error)}. The script needs a folder.") from None


def create_progress(path: Path) -> None:
    """Make a new, blank file for the progress of a job; its room on the disk is taken now.

    Raises:
        AdvisorError: It exists, or cannot be written.
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


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """The last report of a job; None: not reported.

    Attributes:
        steps: Done since it began.
        at_s: When it reported, on the machine's monotonic clock, which no clock change moves.
        allocated_mib: Most that its tensors held.
        reserved_mib: Most that its allocator held.
        versions: ``torch``, ``cuda`` and ``timm``, as far as it reported them.
        sms: SMs that its context may use.
    """

    steps: int
    at_s: float
    allocated_mib: float | None = None
    reserved_mib: float | None = None
    versions: tuple[tuple[str, str | None], ...] = ()
    sms: int | None = None


def read_progress(path: Path) -> ReportedProgress | None:
    """The last report of the job that writes `path`; None if there is none that can be true.

    A user's process wrote the file, so each field is checked. A report that is half written counts
    as none.
    """
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    steps, at_s = record.get("steps"), _number(record.get("at"))
    if type(steps) is not int or not 0 <= steps <= MOST_COUNT or at_s is None:
        return None
    memory, versions, sms = (record.get(name) for name in ("memory", "versions", "sms"))
    held = memory if isinstance(memory, dict) else {}
    allocated, reserved = _number(held.get("allocated_mib")), _number(held.get("reserved_mib"))
    if allocated is None or reserved is None or allocated > reserved:
        allocated = reserved = None
    named = versions.items() if isinstance(versions, dict) else ()
    texts = tuple((name, text) for name, text in named if text is None or isinstance(text, str))
    seen_sms = sms if type(sms) is int and 0 < sms < 10_000 else None
    return ReportedProgress(steps, at_s, allocated, reserved, texts, seen_sms)


def _number(value: Any) -> float | None:
    """`value` if a clock or a memory can have it; else None."""
    return float(value) if type(value) in (int, float) and 0 <= value < 1e15 else None
