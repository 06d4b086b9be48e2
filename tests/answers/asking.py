"""Ask the command line, in this process or in another, as a user without a GPU would."""

import gc
import io
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from tests.answers.questions import APART, BARE_JOBS

_DATA = Path(__file__).with_name("data")
_OWN = TemporaryDirectory(prefix="advisor-answers-", ignore_cleanup_errors=True)
_ENVIRONMENT = {
    "XDG_DATA_HOME": _OWN.name,
    "XDG_STATE_HOME": _OWN.name,
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "100",
}
_DEFAULTS = {  # of words that the machine would decide otherwise
    "--gpu": "h200-141gb",
    "--calibration": "none",
    "--host-cores": "64",
}


@dataclass(frozen=True)
class Printed:
    code: int
    out: str
    err: str


def ask(question: str) -> Printed:
    """What the command line prints; some questions are asked in a process of their own."""
    words = _words(question)
    return run_command(words) if question in APART else _here(words)


def run_command(words: list[str]) -> Printed:
    """What the command line prints in a process of its own."""
    with _environment():
        done = subprocess.run(
            [sys.executable, "-m", "advisor", *words], capture_output=True, text=True, check=False
        )
    return Printed(done.returncode, done.stdout, done.stderr)


def _words(question: str) -> list[str]:
    files = {path.stem: str(path) for path in _DATA.iterdir()} | _bare_jobs()
    words = [word.format_map(files) for word in question.split()]
    for option, value in _DEFAULTS.items():
        names_models = option == "--gpu" and ":" in question.partition("--gpus")[2]
        if option not in words and not names_models:
            words += [option, value]
    if words[0] != "export":
        words.append("--json")
    return words


@cache
def _bare_jobs() -> dict[str, str]:
    """Files of the jobs of which little is known, by name."""
    made = {}
    for name, numbers in BARE_JOBS.items():
        words = f"profile --from-numbers --name {name} {numbers} --out {_OWN.name}"
        printed = run_command(words.split())
        assert printed.code == 0, printed.err
        made[name] = str(Path(_OWN.name) / f"{name}.json")
    return made


def _here(words: list[str]) -> Printed:
    from advisor.__main__ import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    interrupt, often = signal.getsignal(signal.SIGINT), gc.get_threshold()
    try:
        with (
            _environment(),
            patch.object(sys, "argv", ["advisor", *words]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        signal.signal(signal.SIGINT, interrupt)
        gc.set_threshold(*often)
    return Printed(code, out.getvalue(), err.getvalue())


@contextmanager
def _environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ADVISOR_")}
    with patch.dict(os.environ, kept | _ENVIRONMENT, clear=True):
        yield
