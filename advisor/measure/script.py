"""A user's script: how it finds its hook, its processes, the count of its steps, why it ended."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePath
from threading import Event, Thread
from time import monotonic

import psutil

from advisor.errors import AdvisorError, InvalidInput, clean
from advisor.files.reading import is_file, reason_of
from advisor.files.records import parse_record
from advisor.files.units import MOST_COUNT, check_number
from advisor.measure.inside import FOLDER, RECORD_BYTES, VARIABLE, lacks_memory
from advisor.measure.launcher import tied_to_parent
from advisor.measure.own_files import Place
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
from advisor.workload.spec import Script, is_launcher, is_shell, program_of, python_of

# Programs that start Python; some find one that is not on PATH. Each has a wrapper in a folder that
# is first on PATH, in case that a script of the user's sets PYTHONPATH, or all variables.
_STARTERS = (
    "python",
    "python3",
    *(f"python3.{minor}" for minor in range(8, 20)),
    "ipython",
    "torchrun",
    "accelerate",
    "deepspeed",
    "uv",
    "conda",
    "mamba",
    "micromamba",
    "poetry",
    "pixi",
)
_WRAPPER = r"""#!/bin/sh
# Starts the next program of this name on PATH, with the hook of the folder above.
here=${0%/*} name=${0##*/}
case $PYTHONPATH: in
"${here%/*}:"*) ;;
*) export PYTHONPATH="${here%/*}${PYTHONPATH:+:$PYTHONPATH}" ;;
esac
[ -n "$ADVISOR_HOOK" ] || read -r ADVISOR_HOOK < "${here%/*}/settings"
export ADVISOR_HOOK
set -f
IFS=:
for folder in ${PATH#*"$here:"}; do
  [ ! -x "${folder:-.}/$name" ] || [ -d "${folder:-.}/$name" ] || exec "${folder:-.}/$name" "$@"
done
echo "$name: not on PATH" >&2
exit 127
"""


def hook_variables(
    folder: Path, settings: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, str]:
    """Make the `folder` of a program's hook; return the variables by which it attaches to torch.

    `settings` are as for `advisor.measure.inside.VARIABLE`; `environment` is the program's.
    """
    wrappers = folder / "bin"
    wrappers.mkdir(parents=True)
    targets = {
        "sitecustomize.py": FOLDER / "sitecustomize.py",
        "advisor_inside": FOLDER,
        "advisor": FOLDER.parents[1],  # for `advisor.step()`, and for our own commands
    }
    for name, target in targets.items():
        (folder / name).symlink_to(target)
    (folder / "settings").write_text(json.dumps(settings) + "\n")
    path = environment.get("PATH", os.defpath)
    for name in _STARTERS:
        if shutil.which(name, path=path):
            (wrappers / name).write_text(_WRAPPER)
            (wrappers / name).chmod(0o755)
    paths = ":".join(filter(None, [str(folder), environment.get("PYTHONPATH")]))
    return {VARIABLE: json.dumps(settings), "PYTHONPATH": paths, "PATH": f"{wrappers}:{path}"}


# Among Python's own options, in words that 0 separates, one that makes it ignore PYTHONPATH, or
# sitecustomize.
_ISOLATED = re.compile(r"[^\0]+(?:\0-[WX]\0[^\0]*|\0-[^\0]*)*?\0(-[bBdhiOqRsuvVx]*[IES])")


def why_unseen(processes: Iterable[psutil.Process], folder: Path) -> str | None:
    """Return a sentence on one of `processes` that uses torch without the hook in `folder`."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            words, own = process.cmdline(), process.environ().get("PYTHONPATH", "")
            lost = str(folder) not in own.split(":")
            isolated = _ISOLATED.match("\0".join(words))
            if (lost or isolated) and "libtorch" in Path(f"/proc/{process.pid}/maps").read_text():
                reason = (
                    f"{isolated[1]} hides it from the measurement. Leave that out"
                    if isolated
                    else f"its PYTHONPATH was replaced by {own!r}. Keep the old value: "
                    "PYTHONPATH=DIR:$PYTHONPATH"
                )
                return f"`{shlex.join(words)[:200]}` uses torch, but {reason}"
    return None


# How long it has after each request to end, the next of which is less polite.
_POLITE_S = 3.0

# Only the last lines of its output are needed: a log beyond so many bytes is emptied.
_LOG_BYTES = 2**24
_LOOK_S = 1.0

_PYTHON = re.compile(r"python[0-9.]*")
_REMEDIES = {
    ".py": "Start it as a program: -- python {}",
    ".ipynb": (
        "Convert it to a script, jupyter nbconvert --to script {}, and start that with python"
    ),
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
                    tied_to_parent(script.command, place.overlays),
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
        """Return the CPU seconds of its living processes, and of those that these waited for."""
        return sum(sum(each.cpu_times()[:4]) for each in self.processes())

    def resident_mib(self) -> float:
        """Return the memory of its processes on the host."""
        resident_bytes: int = sum(each.memory_info().rss for each in self.processes())
        return resident_bytes / 2**20

    def processes(self) -> Iterator[psutil.Process]:
        """Return its living processes, also those in sessions of their own."""
        for pid in {*session_members(self.pid), *scripts_within(self._folder)}:
            with suppress(psutil.Error):
                yield psutil.Process(pid)

    def how_it_ended(self) -> str:
        """Return its exit status, and the line that best explains it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        how = f"ended with exit status {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        line = self.error_line()
        return f"{how} and printed: {line}" if line else f"{how} and printed nothing"

    @property
    def exit_code(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    @property
    def out_of_memory(self) -> bool:
        """True if it failed and its output says that the device had no memory left."""
        return self.exit_code != 0 and lacks_memory(self.last_output())

    def error_line(self) -> str:
        """Return the line of its last output that best explains its end; empty without any."""
        return clean(error_line(self.last_output()))

    def last_output(self) -> str:
        """Return the end of its output."""
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
        raise InvalidInput(f"program {program} not found. {remedy}.")
    file = words[0] if words and _PYTHON.fullmatch(Path(program).name) else ""
    if file.endswith(".py") and not is_file(Path(script.folder, file)):
        raise InvalidInput(f"{file}: file not found in {script.folder}, where the script runs")


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


_PRINTED = {
    re.compile(r"^(?:\S*: )?EOFError\b|Inappropriate ioctl for device", re.MULTILINE): (
        "It reads its standard input, which is closed while advisor measures. Give the input as "
        "options, or from a file: -- bash -c 'python train.py < answers.txt'"
    ),
    re.compile(r"api_key not configured|wandb: .*[Ll]og in", re.MULTILINE): (
        "It asks for a login to Weights & Biases. Add --measure-env WANDB_MODE=disabled"
    ),
}
_NO_MODULE = re.compile(r"(?:\[rank\d+\]:\s*)?ModuleNotFoundError: No module named '(\w+).*")


def explain_end(script: Script, output: str) -> str | None:
    """Return a sentence on why `script`, which printed `output`, was not seen to train."""
    for pattern, remedy in _PRINTED.items():
        if pattern.search(output):
            return remedy
    module = _NO_MODULE.match(error_line(output))
    if module is None or any(
        Path(script.folder, name).exists() for name in (module[1], f"{module[1]}.py")
    ):
        return None  # or a module of its own
    python = python_of(script.command) or ""
    path = shutil.which(python, path=script.environment.get("PATH"))
    ours = path is not None and Path(path).parent == Path(sys.executable).parent
    return (
        f"{f'`{python}` is the Python of advisor itself. ' * ours}Start it by the Python that has "
        f"{module[1]}: `advisor profile -- /path/to/env/bin/python {script.file or 'train.py'}`"
    )


# What begins a loop of a shell.
_LOOP = re.compile(r"(?:^|[;&|]\s*)(?:for|while|until)\s|\bxargs\b")


def first_of_several(script: Script, parent: Sequence[str]) -> str | None:
    """Return a sentence if the program may train several times in turn, of which one is measured.

    `parent` is the command of the process that started the training; empty: it started itself.
    """
    texts, has_shell = list[str](), any(map(is_shell, script.command))
    for before, word in pairwise(("", *script.command)):
        if has_shell and before == "-c":
            texts.append(word)
        elif word.endswith(".sh"):
            with suppress(OSError, UnicodeDecodeError):
                texts.append(Path(script.folder, word).read_text())
    lines = [re.sub(r"(?:^|\s)#.*", "", line) for text in texts for line in text.splitlines()]
    parts = [part for line in lines for part in re.split(r"&&|\|\||;", line)]
    trainings = [part for part in parts if re.search(r"\bpython[0-9.]*\s|\btorchrun\s", part)]
    in_loop = bool(trainings) and any(map(_LOOP.search, lines))
    first, *others = [PurePath(word).name for word in parent] or [""]
    program = program_of(parent) if parent else None
    by_python = first.startswith("python") and program is not None and program.endswith(".py")
    launched = any(map(is_launcher, others[:1])) or not {"-m", "-c"}.isdisjoint(parent)
    if len(trainings) > 1 or in_loop or (by_python and not launched):
        return (
            "advisor measures the first training of this command. If others follow it, such as "
            "folds, profile each as a job"
        )
    return None
