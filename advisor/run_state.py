"""Changes to this machine that the script of a run has not undone yet, by its state file."""

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from advisor.measure.process import processes_of, unowned

# Lines of a state file that inform, and name no change; see `advisor.launch.shell_state`.
_INFORMS = ("boot", "gpu", "script", "run", "job")


def state_home() -> Path:
    """The user's folder for states, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "advisor"


def left_states() -> tuple[Path, ...]:
    """The state files of this machine whose scripts were killed before they undid all."""
    paths = sorted((state_home() / "gpus").glob(f"{socket.gethostname()}-*"))
    return tuple(path for path in unowned(paths) if left_in(path))


def left_in(path: Path) -> list[str]:
    """The changes in a state file that are not undone; none if the machine has restarted since."""
    left: dict[str, None] = {}
    for line in state_lines(path):
        kind, _, rest = line.partition(" ")
        if kind == "boot" and rest != boot_id():
            return []
        if kind == "undone":
            left.pop(rest, None)
        elif kind not in _INFORMS:
            left[line] = None
    return list(left)


def jobs_left(left: Sequence[str]) -> list[int]:
    """The living processes of the jobs in `left`, from `left_in`."""
    marks = [line.partition(" ")[2] for line in left if line.startswith("jobs ")]
    return [pid for mark in marks for pid in processes_of("ADVISOR_MARK", f"{mark}-*")]


def state_lines(path: Path) -> list[str]:
    """All lines of a state file; none if it is gone."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def boot_id() -> str:
    """The kernel's name for this start of the machine; empty if the kernel has none."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
