"""A script's process: started in a working folder of its own, watched, and ended politely."""

import builtins
import io
import json
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from functools import partial
from math import isfinite
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import IO, Any

from advisor.errors import AdvisorError, InvalidInput, clean
from advisor.measure.pdeathsig import tied_to_parent
from advisor.measure.process import (
    MARK,
    cpu_s_of,
    end_scripts_within,
    error_line,
    session_members,
)
from advisor.measure.worker import TenantSetup, lacks_memory, without_mps
from advisor.workload.reading import MOST_COUNT, is_folder, reason_of
from advisor.workload.spec import Script

# A script and its settings are small; data sets and checkpoints are not.
_COPIED_BYTES, _COPIED_IN_ALL = 2**20, 2**26
_MOST_IN_A_FOLDER, _MOST_IN_ALL = 1000, 5000

_SKIPPED = ("__pycache__",)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def made_beside(original: Path, base: Path) -> Path:
    """A new folder below `base` with the contents of `original`, and what lies around that.

    Raises:
        OSError: `original` cannot be read, or `base` not be written.
    """
    original, base = original.resolve(), base.resolve()
    level = base / "around"
    level.mkdir(parents=True)
    *above, name = original.parts[1:] or ("root",)
    for folder, inner in zip(reversed(original.parents), (*above, name), strict=False):
        _link_beside(inner, folder, level, base)
        level /= inner
        if inner is not name:
            level.mkdir()
    mirror = base.joinpath("around", *above, name)
    _mirror(original, mirror, base)
    return mirror


def _link_beside(inner: str, folder: Path, level: Path, base: Path) -> None:
    """Link to `level` what lies in `folder` beside `inner`: a script reads ../data."""
    with suppress(OSError):  # it may do without what it cannot see
        for entry in _entries(folder, _MOST_IN_ALL) or ():
            if entry.name != inner and not base.is_relative_to(entry.path):
                (level / entry.name).symlink_to(entry.path)


def _entries(folder: Path, most: int | None = None) -> list[os.DirEntry[str]] | None:
    """What is in `folder`; None where that is more than `most`."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    return found if most is None or len(found) <= most else None


def _mirror(original: Path, mirror: Path, base: Path) -> None:
    """Fill the new folder `mirror` below `base`, what is near its top first, within the limits."""
    left, room = _MOST_IN_ALL, _COPIED_IN_ALL
    todo = deque([(original, mirror)])
    while todo:
        source, target = todo.popleft()
        entries = _entries(source) if target == mirror else _entries_made_anew(source, left)
        if entries is None:
            target.symlink_to(source.resolve())
            continue
        left -= len(entries)
        target.mkdir()
        for entry in entries:
            if entry.name in _SKIPPED or base.is_relative_to(entry.path):  # the mirror itself
                continue
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                todo.append((Path(entry.path), place))
            elif (size := _bytes_to_copy(entry)) <= min(room, _COPIED_BYTES):
                room -= size
                shutil.copy2(entry.path, place)
            else:
                place.symlink_to(os.path.realpath(entry.path))


def _entries_made_anew(folder: Path, left: int) -> list[os.DirEntry[str]] | None:
    """What is in `folder`; None where it is linked whole: it is large, or nobody may read it."""
    with suppress(PermissionError):
        return _entries(folder, min(left, _MOST_IN_A_FOLDER))
    return None


def _bytes_to_copy(entry: os.DirEntry[str]) -> int:
    """Bytes of a file that can be copied; of anything else more than are ever copied."""
    with suppress(OSError):  # a link that leads nowhere, or in a circle
        if entry.is_file() and os.access(entry.path, os.R_OK):
            return entry.stat().st_size
    return _COPIED_BYTES + 1


def guard_links(folder: Path) -> None:
    """See for the rest of this process that no Python in it writes to `folder` through a link.

    An audit hook would see more, and cost a step of ResNet-50 nearly 1 %: torch asks for thousands
    of identities, each an event.
    """
    # Partial objects, as the originals, become no methods where a class keeps them.
    builtins.open = io.open = partial(_opened, io.open, folder)
    os.open = partial(_opened_low, os.open, folder)


def _opened(opens: Callable[..., Any], folder: Path, file: Any, mode: str = "r", *arguments: Any,
            **named: Any) -> Any:  # fmt: skip
    if not {*"wax+"}.isdisjoint(mode):
        unlinked(file, folder, keep="w" not in mode)
    return opens(file, mode, *arguments, **named)


def _opened_low(opens: Callable[..., int], folder: Path, path: Any, flags: int, *arguments: Any,
                **named: Any) -> int:  # fmt: skip
    if flags & _WRITES:
        unlinked(path, folder, keep=not flags & os.O_TRUNC)
    return opens(path, flags, *arguments, **named)


def unlinked(path: object, folder: Path, *, keep: bool) -> None:
    """Where `path` is a link inside `folder`, put a copy there, or nothing unless to `keep` it."""
    if not isinstance(path, str | os.PathLike):
        return
    place = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link
    if not (place.is_symlink() and place.is_relative_to(folder)) or place.is_dir():
        return
    target = place.resolve()
    place.unlink()
    if keep and target.is_file():
        shutil.copyfile(target, place)


# How long it has after each request to end, the next of which is less polite.
_POLITE_S = 3.0

# What it prints is kept for its last lines alone: beyond so many bytes, what is there goes.
_LOG_BYTES, _TAIL_BYTES = 2**24, 4096
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
        working: The folder in which it runs; what it writes there is not kept.
        log: What it printed last.
        output: Its standard output and error, where they are not only logged.
    """

    def __init__(
        self,
        script: Script,
        setup: TenantSetup,
        folder: Path,
        added: Mapping[str, str],
        *,
        piped: bool = False,
    ) -> None:
        """Start it.

        Args:
            script: What is started.
            setup: Where.
            folder: New; for its working folder and its log.
            added: Variables beside those of the caller, the script and the setup.
            piped: Whether to hand on its output as it comes.

        Raises:
            InvalidInput: There is no such program or folder.
        """
        self.working = _working_folder(script, folder)
        self.log = folder / "output"
        _refuse_missing(script)
        hidden = {"CUDA_VISIBLE_DEVICES": ""} if setup.device == "cpu" else {}
        environment = without_mps(os.environ) | script.environment | hidden
        environment |= {**setup.environment, **added, MARK: str(folder)}
        self._folder, self._over = folder, Event()
        self._process = self._start(script.command, environment, piped=piped)
        Thread(target=self._bound_log, daemon=True).start()
        self.pid = self._process.pid
        self._interrupted = False
        self.exited = os.pidfd_open(self.pid)
        self.output: IO[bytes] | None = self._process.stdout
        self.pin(setup.cores)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], *, piped: bool
    ) -> "subprocess.Popen[bytes]":
        try:
            with self.log.open("ab") as log:
                return subprocess.Popen(
                    tied_to_parent(command),
                    cwd=self.working,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that all that it starts can be ended with it
                )
        except OSError as error:
            raise InvalidInput(f"{command[0]}: {reason_of(error)}") from None

    def _bound_log(self) -> None:
        while not self._over.wait(_LOOK_S):
            with suppress(OSError):
                if self.log.stat().st_size > _LOG_BYTES:
                    os.truncate(self.log, 0)

    def pin(self, cores: tuple[int, ...]) -> None:
        """Keep all its processes and threads to `cores`."""
        for process in session_members(self.pid):
            with suppress(OSError):  # it has just ended
                for thread in Path(f"/proc/{process}/task").iterdir():
                    os.sched_setaffinity(int(thread.name), cores)

    def how_it_ended(self) -> str:
        """Its exit status, and the line that tells most of why."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        how = f"ended with exit status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        line = self.error_line()
        return f"{how}; it said: {line}" if line else f"{how}, and printed nothing"

    @property
    def succeeded(self) -> bool:
        """Whether it has ended, with exit status 0."""
        return self._process.poll() == 0

    def error_line(self) -> str:
        """Of what it printed last, the line that tells most; empty if there is none."""
        return clean(error_line(self._last_words()))

    def _last_words(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace")

    def cpu_s(self) -> float:
        """CPU seconds of its living processes so far."""
        return sum(map(cpu_s_of, session_members(self.pid)))

    def resident_mib(self) -> float:
        """Memory of its processes on the host (proc(5): statm, field 2)."""
        pages = 0
        for process in session_members(self.pid):
            with suppress(OSError):
                pages += int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def out_of_memory(self) -> bool:
        """Whether it failed, and said that the device had no memory left."""
        return not self.succeeded and lacks_memory(self._last_words())

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C would, once."""
        if not self._interrupted:
            self._interrupted = True
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def end_by(self, deadline: float) -> None:
        """Interrupt it, and end by force what is left after `deadline`."""
        self.interrupt()
        self._wait_until(max(deadline, monotonic() + _POLITE_S))
        for how in (signal.SIGTERM, signal.SIGKILL):
            for process in session_members(self.pid):
                with suppress(ProcessLookupError):
                    os.kill(process, how)
            self._wait_until(monotonic() + _POLITE_S)
        end_scripts_within(self._folder)  # what left its session
        with suppress(subprocess.TimeoutExpired):  # the driver may hold on to it
            self._process.wait(_POLITE_S)
        self._over.set()
        os.close(self.exited)
        if self.output is not None:
            self.output.close()

    def _wait_until(self, deadline: float) -> None:
        while session_members(self.pid) and monotonic() < deadline:
            self._process.poll()  # or it would stay as a zombie
            sleep(0.02)


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
        return made_beside(original, folder)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise AdvisorError(
                f"{folder}: no room for a copy of {original}. Set TMPDIR to a folder with more."
            ) from None
        where = error.filename or folder
        raise AdvisorError(f"{where}: {reason_of(error)}. The script needs a folder.") from None


RECORD_BYTES = 512
"""A record is written in place into a file of this size, which needs no room on a full disk."""

PROGRESS = "ADVISOR_PROGRESS"
"""The variable that tells a job's processes where they count steps."""


def put(descriptor: int, record: dict[str, Any]) -> None:
    """Write `record` over the one before it."""
    os.pwrite(descriptor, json.dumps(record).encode().ljust(RECORD_BYTES)[:RECORD_BYTES], 0)


def blank(path: Path) -> Path:
    """A new file for a record, without one; its room on the disk is taken now.

    Raises:
        AdvisorError: It is there, or cannot be written.
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
    return path


def record_in(path: Path) -> dict[str, Any]:
    """The record in the file; empty where there is none that can be read."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class ProgressWriter:
    """Counts the steps of this process where whoever watches looks; does nothing if nobody does."""

    def __init__(self) -> None:
        self._descriptor: int | None = None
        self._more: dict[str, Any] = {}
        if path := os.environ.get(PROGRESS):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def report(self, steps: int, **more: Any) -> None:
        """Write that so many are done now; `more` stays until it is given anew."""
        self._more |= more
        if self._descriptor is not None:
            put(self._descriptor, {"steps": steps, "at": monotonic()} | self._more)


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """What a job said last.

    Attributes:
        steps: Done since it began.
        at_s: When it said so, on the machine's monotonic clock, which no clock change moves.
        allocated_mib: Most that its tensors held; None: not said.
        reserved_mib: Most that its allocator held; None: not said.
        versions: ``torch``, ``cuda`` and ``timm``, as far as it said.
        sms: SMs that its context may use; None: not said.
    """

    steps: int
    at_s: float
    allocated_mib: float | None = None
    reserved_mib: float | None = None
    versions: tuple[tuple[str, str | None], ...] = ()
    sms: int | None = None


def progress_in(path: Path) -> ReportedProgress | None:
    """What the job that writes `path` said last; None: nothing that can be true."""
    found = record_in(path)
    steps, at_s = found.get("steps"), _number(found.get("at"))
    if type(steps) is not int or not 0 <= steps <= MOST_COUNT or at_s is None:
        return None
    memory, sms = found.get("memory"), found.get("sms")
    held = memory if isinstance(memory, dict) else {}
    allocated, reserved = _number(held.get("allocated_mib")), _number(held.get("reserved_mib"))
    if allocated is None or reserved is None or allocated > reserved:
        allocated = reserved = None
    known_sms = sms if type(sms) is int and 0 < sms < 10_000 else None
    return ReportedProgress(
        steps, at_s, allocated, reserved, _versions(found.get("versions")), known_sms
    )


def _versions(found: Any) -> tuple[tuple[str, str | None], ...]:
    pairs = found.items() if isinstance(found, dict) else ()
    return tuple((name, value) for name, value in pairs if value is None or isinstance(value, str))


def _number(found: Any) -> float | None:
    """`found` as a number of at least 0 that a clock or a memory can have."""
    if type(found) not in (int, float) or not 0 <= found < 1e15 or not isfinite(found):
        return None
    return float(found)
