"""The training program in a command: `torchrun --nproc_per_node 1 train.py` runs `train.py`."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

_PYTHON = r"python[0-9.]*t?|pypy[0-9.]*"
_SHELL = r"bash|dash|ksh|zsh|sh"
# Programs that do what a file says under a name, by which it is called.
_RUNNER = r"make|gmake|just|task|tox|nox|inv|invoke"
_WITH_VALUE = ("-C", "-f", "-j", "-e", "-s")  # options of these that a value follows
# Programs that start the one that is meant: no profile is called after them.
_LAUNCHER = re.compile(
    rf"{_PYTHON}|{_SHELL}|env|nohup|time|nice|ionice|setsid|exec|timeout|stdbuf|taskset|numactl|"
    r"sudo|xvfb-run|torchrun|accelerate|deepspeed|colossalai|composer|horovodrun|mpirun|mpiexec|"
    r"srun|uv|uvx|conda|mamba|micromamba|pixi|poetry|pipenv|pdm|hatch|rye|apptainer|singularity|"
    rf"docker|podman|{_RUNNER}"
)
_SETTING = re.compile(r"-.*|[A-Za-z_]\w*=.*", re.DOTALL)  # an option, or a variable of env
_MODULE = re.compile(r"[A-Za-z_][\w.]*")
# Launchers that start a program by the Python that its command names, or that is next to them.
_AS_NAMED = "env|nohup|time|nice|ionice|setsid|timeout|stdbuf|taskset|numactl"
_NEXT_TO = "torchrun|accelerate|deepspeed"
# Modules that run the program that follows them.
_LAUNCHING_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "cProfile",
    "profile",
    "pdb",
    "trace",
    "coverage",
    "debugpy",
    "kernprof",
)


def is_launcher(word: str) -> bool:
    """Return whether `word` is a program that starts the one that is meant, e.g. ``python3``."""
    return _LAUNCHER.fullmatch(PurePath(word).name) is not None


def is_shell(word: str) -> bool:
    """Return whether `word` is a shell, e.g. ``/bin/bash``."""
    return re.fullmatch(_SHELL, PurePath(word).name) is not None


def program_of(command: Sequence[str]) -> str | None:
    """Return the file, module or program that a command trains by; None if it names only code."""
    launcher = before = ""
    for word in command:
        if is_launcher(word):
            launcher = PurePath(word).name
        elif launcher and before in ("-m", "--module") and _MODULE.fullmatch(word):
            if word not in _LAUNCHING_MODULES:
                return word
        elif before == "-c" and is_shell(launcher):
            return _program_of_line(word)
        elif before == "-c" and re.fullmatch(_PYTHON, launcher):
            return None
        elif _is_program(launcher, before, word):
            return word
        before = word
    return None if is_launcher(command[0]) else command[0]


def python_of(command: Sequence[str]) -> str | None:
    """Return the Python that a command names; None if it names none, or uv or a shell chooses."""
    program = program_of(command)
    for word in command:
        name = PurePath(word).name
        if re.fullmatch(_PYTHON, name):
            return word
        if re.fullmatch(_NEXT_TO, name):
            return str(PurePath(word).with_name("python"))
        if word == program or (is_launcher(word) and not re.fullmatch(_AS_NAMED, name)):
            return None
    return None


def _is_program(launcher: str, before: str, word: str) -> bool:
    """Whether `word`, after the word `before`, is the file or the target that `launcher` starts."""
    if _SETTING.fullmatch(word):
        return False
    if re.fullmatch(_RUNNER, launcher):
        return before not in _WITH_VALUE
    return bool(launcher) and word.endswith((".py", ".sh"))


def _program_of_line(line: str) -> str | None:
    """The program that a line of a shell starts, e.g. ``cd here && python train.py``."""
    try:
        return program_of(["sh", *shlex.split(line, comments=True)])
    except ValueError:  # a quote that is not closed
        return None
