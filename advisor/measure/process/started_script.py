"""A script's process: started in a working folder of its own, watched, and ended politely."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Thread
from time import monotonic, sleep
from typing import IO

from advisor.errors import AdvisorError, InvalidInput
from advisor.measure.process.pdeathsig import tied_to_parent
from advisor.measure.process.printed_output import telling_line
from advisor.measure.process.process_ends import end_scripts_within
from advisor.measure.process.script_folder import made_beside
from advisor.measure.process.script_processes import MARK, cpu_s_of, session_members
from advisor.measure.process.tenant_handle import TenantHandle
from advisor.measure.process.worker import TenantSetup, lacks_memory, without_mps
from advisor.terminal import clean
from advisor.workload.files import is_folder, reason_of
from advisor.workload.spec import Script

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
        line = self.telling_line()
        return f"{how}; it said: {line}" if line else f"{how}, and printed nothing"

    @property
    def succeeded(self) -> bool:
        """Whether it has ended, with exit status 0."""
        return self._process.poll() == 0

    def telling_line(self) -> str:
        """Of what it printed last, the line that tells most; empty if there is none."""
        return clean(telling_line(self._last_words()))

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


class ScriptTenant(TenantHandle):
    """A program of the user's as a tenant, started by the request to load.

    Args:
        setup: Where it runs.
        script: What is started.
        folder: In which it gets a folder of its own; a short path.
    """

    def __init__(self, setup: TenantSetup, script: Script, folder: Path) -> None:
        super().__init__(setup)
        self._script = script
        self._folder = Path(mkdtemp(prefix="s", dir=folder))
        self._started: StartedScript | None = None

    @property
    def _running(self) -> StartedScript:
        if self._started is None:
            raise AdvisorError(f"{self._script.command[0]} was not started")
        return self._started

    def pin(self, cores: tuple[int, ...]) -> None:
        super().pin(cores)
        if self._started is not None:
            self._started.pin(cores)

    def end_by(self, deadline: float) -> None:
        if self._started is not None:
            self._started.end_by(deadline)
            self._started = None


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
