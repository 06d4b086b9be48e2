"""One job of a run as processes: how it is started, whether it lives, how it ended."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from json import dumps
from pathlib import Path
from signal import SIGTERM, Signals
from time import monotonic

from advisor.errors import AdvisorError
from advisor.measure.execution.execution_plan import ExecutedJob
from advisor.measure.execution.run_folder import RunFolder
from advisor.measure.execution.run_processes import MARK, bears, born, marked, send
from advisor.measure.execution.run_state import Fate, JobState
from advisor.measure.process import job_keeper
from advisor.measure.process.hook_folder import hooked
from advisor.measure.process.printed_output import telling_line
from advisor.measure.process.progress_file import PROGRESS, blank, progress_in, record_in
from advisor.measure.process.worker import lacks_memory
from advisor.workload.files import present_folder

JOB_MARK = "ADVISOR_JOB"
"""The variable whose value is the job's number."""

GRACE_S = 30.0
"""Between asking a job to end and killing it: long enough to write a checkpoint."""

# More is no log that anybody reads.
_LOG_BYTES = 2**30
_TAIL_BYTES = 4096
# Keepers that this process started itself.
_CHILDREN: "dict[int, subprocess.Popen[bytes]]" = {}


@dataclass(frozen=True, slots=True)
class JobCommand:
    """What is run as a job.

    Attributes:
        words: Of its command.
        folder: Where it runs.
        environment: Variables that the user gave it.
        hooked: Whether its steps are counted by a hook in torch.
        throughput: Finds the pace in what it prints, where that tells of its steps.
    """

    words: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str]
    hooked: bool = False
    throughput: str | None = None


@dataclass(frozen=True, slots=True)
class JobSetting:
    """Where and with what a job is started.

    Attributes:
        environment: All of its variables but those of its command, and those that mark it.
        cores: Those that it is pinned to; empty: any.
        under_mps: Whether it is a client of MPS.
        lock: A descriptor that its keeper holds, and with it the lock on the GPU; None: there is
            none.
        grace_s: Between asking it to end and killing it.
    """

    environment: Mapping[str, str]
    cores: Sequence[int]
    under_mps: bool
    lock: int | None
    grace_s: float


def command_of(job: ExecutedJob, device_kind: str) -> JobCommand:
    """What is run for `job`: its script, or the zoo's trainer."""
    if job.script is not None:
        script = job.script
        return JobCommand(
            script.command, Path(script.folder), script.environment,
            hooked=script.by_steps, throughput=script.throughput,
        )  # fmt: skip
    name = dumps(asdict(job.workload), separators=(",", ":"))
    words = [sys.executable, "-m", "advisor.measure.execution.zoo_training", name]
    words += ["--device", device_kind]
    if job.steps is not None:
        words += ["--steps", str(job.steps)]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return JobCommand(tuple(words), present_folder(), threads)


@dataclass(frozen=True, slots=True)
class JobProcess:
    """A job of the run in `folder`."""

    job: ExecutedJob
    folder: RunFolder

    def start(self, command: JobCommand, setting: JobSetting) -> JobState:
        """Start it, kept by a process of its own that outlives this one.

        Raises:
            AdvisorError: Its files cannot be written.
        """
        number = self.job.number
        for path in (self.folder.progress(number), self.folder.end(number)):
            path.unlink(missing_ok=True)
            blank(path)
        spec = dumps(self._spec(command, setting))
        try:
            keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", job_keeper.__file__, spec, *command.words],
                env=self._environment(command, setting),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, pass_fds=[] if setting.lock is None else [setting.lock],
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise AdvisorError(f"{self.job.name}: cannot be started: {error}") from None
        _CHILDREN[keeper.pid] = keeper
        return JobState(
            number=number, phase="running", keeper=keeper.pid, born=born(keeper.pid),
            began_s=monotonic(),
        )  # fmt: skip

    def _spec(self, command: JobCommand, setting: JobSetting) -> dict[str, object]:
        """What its keeper is asked to do; see `job_keeper.Keeper`."""
        return {
            "end": str(self.folder.end(self.job.number)),
            "log": str(self.folder.log(self.job.number, self.job.name)),
            "folder": str(command.folder), "cores": list(setting.cores),
            "mps": setting.under_mps, "grace_s": setting.grace_s, "log_bytes": _LOG_BYTES,
            "paced": command.throughput and {
                "throughput": command.throughput, "batch": self.job.workload.batch,
                "progress": str(self.folder.progress(self.job.number)),
            },
        }  # fmt: skip

    def _environment(self, command: JobCommand, setting: JobSetting) -> dict[str, str]:
        given = dict(setting.environment) | dict(command.environment)
        if command.hooked:
            given |= hooked(self.folder.hook, {"count": True}, given.get("PYTHONPATH"))
        if command.throughput is not None:
            given["PYTHONUNBUFFERED"] = "1"  # what it prints is read at once
        return given | {
            MARK: self.folder.path.name,
            JOB_MARK: str(self.job.number),
            PROGRESS: str(self.folder.progress(self.job.number)),
        }

    def found_again(self, state: JobState) -> JobState:
        """The state of a job that was about to be started when its starter ended."""
        births = [(at, pid) for pid in self.processes() if (at := born(pid)) is not None]
        if births:  # its keeper is the oldest
            at, pid = min(births)
            return replace(state, keeper=pid, born=at, began_s=monotonic())
        if self._end():
            return replace(state, keeper=0, born=0, began_s=monotonic())  # it has ended since
        return replace(state, phase="waiting")

    def now(self, state: JobState) -> JobState:
        """`state` as it is now, of a job that was running."""
        alive = state.keeper_lives
        if "status" not in self._end() and alive:
            return state
        if (child := _CHILDREN.pop(state.keeper or 0, None)) is not None:
            child.wait()  # it ends as soon as it has said so
        end = self._end()  # it may have been written between
        progress = progress_in(self.folder.progress(self.job.number))
        at_s = end.get("at")
        fate, detail = self._fate(end)
        return replace(
            state,
            phase="ended",
            ended_s=float(at_s) if isinstance(at_s, int | float) else monotonic(),
            steps=None if progress is None else progress.steps,
            fate=fate,
            detail=detail,
        )

    def _end(self) -> dict[str, object]:
        return record_in(self.folder.end(self.job.number))

    def _fate(self, end: Mapping[str, object]) -> tuple[Fate, str | None]:
        status = end.get("status")
        if type(status) is not int:
            return "died", "the process that kept it was killed"
        if end.get("asked"):
            how = " by force: it did not end when asked" if end.get("forced") else ""
            return "stopped", f"was ended{how}"
        if status == 0:
            return "done", None
        said = self.last_words()
        fate: Fate = "out-of-memory" if lacks_memory(said) else "died"
        return fate, _how(status, str(end.get("detail") or ""), said)

    def last_words(self) -> str:
        """The end of its log."""
        try:
            with self.folder.log(self.job.number, self.job.name).open("rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
                return log.read(_TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def processes(self) -> tuple[int, ...]:
        """Pids of all that came of it and still live."""
        mark = f"{JOB_MARK}={self.job.number}".encode()
        return tuple(pid for pid in marked(self.folder.path.name) if bears(pid, mark))

    def ask_to_end(self, state: JobState) -> None:
        """Ask it to end; its keeper kills what is left after the grace."""
        if state.keeper and state.keeper_lives:
            send([state.keeper], SIGTERM)


def _how(status: int, detail: str, said: str) -> str:
    if detail:
        return detail
    line = telling_line(said)
    last = f": {line}" if line else ""
    if status >= 0:
        return f"ended with exit status {status}{last}"
    try:
        name = Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    kernel = "; where nobody did, the kernel may have, for memory: see dmesg"
    return f"killed by {name}" + (kernel if name == "SIGKILL" else last)
