"""Explains why a program ended without a step, if its command or its output shows it."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePath

from advisor.measure.process import error_line
from advisor.workload.spec import Script, is_launcher, is_shell, program_of, python_of

_PRINTED = {
    re.compile(r"^(?:\S*: )?EOFError\b|Inappropriate ioctl for device", re.MULTILINE): (
        "It reads its standard input, which is closed while it is measured. Give what it asks for "
        "as options, or from a file: -- bash -c 'python train.py < answers.txt'"
    ),
    re.compile(r"api_key not configured|wandb: .*[Ll]og in", re.MULTILINE): (
        "It wants to log in to Weights & Biases. Add --measure-env WANDB_MODE=disabled"
    ),
}
_ONE = "Give the command of a single one, e.g. -- python train.py --lr 0.1"
_SWEEP = f"{{}} starts trainings of several settings. {_ONE}"
_ELSEWHERE = "{} starts the training elsewhere and returns. Give the command that it runs there"
# By program, and by its first word if it does other things, too.
_STARTERS = {
    "wandb sweep": _SWEEP,
    "wandb agent": _SWEEP,
    "optuna": _SWEEP,
    "nnictl": _SWEEP,
    "sbatch": _ELSEWHERE,
    "qsub": _ELSEWHERE,
    "bsub": _ELSEWHERE,
    "ray job": _ELSEWHERE,
    "kubectl": _ELSEWHERE,
    "screen": _ELSEWHERE,
    "tmux": _ELSEWHERE,
}
_SWEEPING_FILE = re.compile(r".*(sweep|grid_?search|hyperopt|random_?search).*\.(py|sh)", re.DOTALL)

_NO_MODULE = re.compile(r"(?:\[rank\d+\]:\s*)?ModuleNotFoundError: No module named '(\w+).*")

# An ampersand that ends a command, not one of && or of a redirection.
_BACKGROUND = re.compile(r"(?<![&<>|\\])&(?![&>\d])")


def explain_end(script: Script, output: str) -> str | None:
    """Return a sentence on why `script`, which printed `output`, was not seen to train."""
    for pattern, remedy in _PRINTED.items():
        if pattern.search(output):
            return remedy
    if match := _NO_MODULE.match(error_line(output)):
        return _by_another_python(script, match[1])
    lines = [re.sub(r"(?:^|\s)#.*", "", line) for line in _shell_lines(script)]
    waits = any(re.search(r"\bwait\b", line) for line in lines)
    if any(map(_BACKGROUND.search, lines)) and not waits:
        return (
            "Its program goes on in the background, and the shell returns. Add wait at the end, or "
            "leave the & out"
        )
    commands: list[Sequence[str]] = [script.command]
    for part in (part for line in lines for part in re.split(r"&&|\|\||;", line)):
        with suppress(ValueError):  # a part of a longer text
            commands.append(shlex.split(part))
    return next(filter(None, map(_reason, commands)), None)


def _by_another_python(script: Script, module: str) -> str | None:
    """Return the remedy for a script whose Python lacks `module`; None for a module of its own."""
    if any(Path(script.folder, name).exists() for name in (module, f"{module}.py")):
        return None
    python = python_of(script.command) or ""
    path = shutil.which(python, path=script.environment.get("PATH"))
    ours = path is not None and Path(path).parent == Path(sys.executable).parent
    return (
        f"{f'`{python}` is the Python of advisor itself. ' * ours}Start it by the Python that has "
        f"{module}: `advisor profile -- /path/to/env/bin/python {script.file or 'train.py'}`"
    )


# What begins a loop of a shell.
_LOOP = re.compile(r"(?:^|[;&|]\s*)(?:for|while|until)\s|\bxargs\b")


def first_of_several(script: Script, parent: Sequence[str]) -> str | None:
    """Return a sentence if the program may train several times in turn, of which one is measured.

    `parent` is the command of the process that started the training; empty: it started itself.
    """
    lines = [re.sub(r"(?:^|\s)#.*", "", line) for line in _shell_lines(script)]
    parts = [part for line in lines for part in re.split(r"&&|\|\||;", line)]
    trainings = [part for part in parts if re.search(r"\bpython[0-9.]*\s|\btorchrun\s", part)]
    in_loop = bool(trainings) and any(map(_LOOP.search, lines))
    first, *others = [PurePath(word).name for word in parent] or [""]
    program = program_of(parent) if parent else None
    by_python = first.startswith("python") and program is not None and program.endswith(".py")
    launched = any(map(is_launcher, others[:1])) or not {"-m", "-c"}.isdisjoint(parent)
    if len(trainings) > 1 or in_loop or (by_python and not launched):
        return (
            "advisor measures the first training that this command starts. If others follow it, as "
            "folds do, each is a job of its own"
        )
    return None


def _shell_lines(script: Script) -> Iterator[str]:
    """Lines of the shell in its command: a file's, or those after ``-c``."""
    has_shell = any(map(is_shell, script.command))
    for before, word in pairwise(("", *script.command)):
        if has_shell and before == "-c":
            yield from word.splitlines()
        elif word.endswith(".sh"):
            with suppress(OSError, UnicodeDecodeError):
                yield from Path(script.folder, word).read_text().splitlines()


def _reason(words: Sequence[str]) -> str | None:
    """Why the command of these words is no training."""
    program = program_of(words) if words else None
    until = words.index(program) + 1 if program in words else len(words)
    names = [PurePath(word).name for word in words]
    for name, following in pairwise((*names, "")[: until + 1]):
        for key in (name, f"{name} {following}"):
            if key in _STARTERS:
                return _STARTERS[key].format(key)
    if "--multirun" in words[until:] or ("-m" in words[until:] and "," in " ".join(words[until:])):
        return f"--multirun starts trainings of several settings. {_ONE}, without it"
    if program is not None and _SWEEPING_FILE.fullmatch(program):
        return _SWEEP.format(program)
    return None
