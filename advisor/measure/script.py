"""A user's script: its processes, and the count of its steps."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import psutil

from advisor.errors import AdvisorError, InvalidInput, clean
from advisor.measure.inside import RECORD_BYTES, lacks_memory
from advisor.measure.own_files import Place
from advisor.measure.pdeathsig import tied_to_parent
from advisor.measure.process import (
    MARK,
    end_all,
    end_within,
    error_line,
    scripts_within,
    session_members,
    tail,
    wait_until,
)
from advisor.workload.profile import Memory
from advisor.workload.reading import MOST_COUNT, check_number, is_file, reason_of
from advisor.workload.records import parse_record
from advisor.workload.spec import Script

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
        exited: A descriptor that becomes readable when `pid`, its first process, has ended.
        log: Its last output.
        output: Its standard output and error, if they are piped.
    """

    def __init__(
        self,
        script: Script,
        folder: Path,
        environment: Mapping[str, str],
        *,
        place: Place,
        piped: bool,
        writable: bool,
    ) -> None:
        """Start `script` at its `place`; its log lies in `folder`, which is new.

        If `piped`, its output comes by a pipe, for the caller to log; if `writable`, so does its
        input. `environment` is set on top of its own variables and the caller's without MPS.
        """
        _refuse_missing(script)
        variables = {**without_mps(os.environ), **script.environment, **environment}
        self.log = folder / "output"
        self._folder, self._over, self._interrupted = folder, Event(), False
        self._exposed = place.exposed
        try:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [*place.launcher, *tied_to_parent(script.command)],
                    cwd=place.working,
                    env={**variables, MARK: str(folder), "PWD": str(place.working)},
                    stdin=subprocess.PIPE if writable else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # so that all that it starts can be ended with it
                )
        except OSError as error:
            raise InvalidInput(f"{script.command[0]}: {reason_of(error)}") from None
        Thread(target=self._look_after, daemon=True).start()
        self.pid = self._process.pid
        self.exited = os.pidfd_open(self.pid)
        self.output = self._process.stdout

    def write_line(self, line: str) -> None:
        """Write `line` to its standard input."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, which will be seen
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def _look_after(self) -> None:
        """Keep its log short, and see which files of the user's it writes to."""
        while not self._over.wait(_LOOK_S):
            if self._exposed:
                self._exposed.look(session_members(self.pid))
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
        return self._process.poll()

    @property
    def out_of_memory(self) -> bool:
        """True if it failed and its output says that the device had no memory left."""
        return self.exit_code != 0 and lacks_memory(self.last_output())

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
        if self._exposed:
            self._exposed.look(each.pid for each in self.processes())
        self.interrupt()
        left_s = max(deadline - monotonic(), _POLITE_S)
        wait_until(lambda: not session_members(self.pid), left_s)
        end_all(lambda: session_members(self.pid))
        end_within(self._folder)  # processes that left its session
        with suppress(subprocess.TimeoutExpired):  # the driver may hold on to it
            self._process.wait(_POLITE_S)
        self._over.set()
        os.close(self.exited)
        for pipe in (self._process.stdin, self.output):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()


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
    if file.endswith(".py") and not is_file(Path(script.folder, file)):
        raise InvalidInput(f"{file}: no such file in {script.folder}, where it is to run")


def create_progress(path: Path) -> None:
    """Make a new, blank file for the progress of a job; its room on the disk is taken now."""
    try:
        path.touch(0o600, exist_ok=False)
        with path.open("r+b", buffering=0) as file:
            file.write(b" " * RECORD_BYTES)
            os.fsync(file.fileno())
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Make room, or choose another.") from None


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """The last report of a job, as `advisor.measure.inside.program.StepCounter` writes it.

    `at` is on the machine's monotonic clock; `memory` is None if it has not used a GPU.
    """

    steps: int
    at: float
    memory: Memory | None = None
    versions: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("steps", self.steps, MOST_COUNT)
        check_number("at", self.at, MOST_COUNT)


def read_progress(path: Path) -> ReportedProgress | None:
    """Return the last report of the job that writes `path`; None without one that can be true."""
    try:
        with path.open("rb") as file:
            return parse_record(ReportedProgress, file.read(RECORD_BYTES), str(path))
    except (OSError, InvalidInput):
        return None
