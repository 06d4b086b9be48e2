"""Changes to this machine that the script of a run has not undone yet, by its state file.

The file is bash that `advisor.launch.shell` describes: variables and functions, then a line
``undos[N]=COMMAND`` for each change, and ``undos[N]=:`` once that is undone.
"""

import os
import re
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from advisor.measure.process import processes_of, unowned


def state_home() -> Path:
    """Return the user's folder for states, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "advisor"


def state_file(device: str) -> Path:
    """Return the state file of a device of this machine, a UUID or ``"cpu"``."""
    return state_home() / "gpus" / f"{socket.gethostname()}-{device}.sh"


def lock_file(state: Path) -> Path:
    """Return the file that the script which wrote `state` locks while it lives."""
    return state.with_name(f"{state.name}.lock")


def left_states() -> tuple[Path, ...]:
    """Return the state files of this machine whose scripts were killed before they undid all."""
    paths = sorted(state_file("*").parent.glob(state_file("*").name))
    locks = {lock_file(path): path for path in paths if left_in(path)}
    return tuple(locks[lock] for lock in unowned(locks))


def left_in(path: Path) -> list[str]:
    """Return the changes in a state file that are not undone, the jobs' mark first.

    There are none if the file is gone, or the machine has restarted since.
    """
    text = _text(path)
    if f"# boot {boot_id()}" not in text.splitlines():
        return []
    undos = {}
    for line in re.findall(r"^undos\[\d+\]=.*$", text, re.MULTILINE):
        number, _, command = " ".join(shlex.split(line)).partition("=")
        undos[number] = command
    return [f"jobs {variable(path, 'mark')}", *(each for each in undos.values() if each != ":")]


def variable(path: Path, name: str) -> str:
    """Return the value of a variable in a state file; empty without it."""
    match = re.search(rf'^declare -- {name}="(.*)"$', _text(path), re.MULTILINE)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else ""


def jobs_left(left: Sequence[str]) -> list[int]:
    """Return the living processes of the jobs in `left`, from `left_in`."""
    marks = [line.partition(" ")[2] for line in left if line.startswith("jobs ")]
    return [pid for mark in marks for pid in processes_of("ADVISOR_MARK", f"{mark}-*")]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def boot_id() -> str:
    """Return the kernel's name for this start of the machine; empty if the kernel has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
