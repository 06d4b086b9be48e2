"""The state files of scripts that run plans: where they lie, and which of them a killed one left.

`advisor.launch.shell_state` says what stands in them.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from advisor.measure.process import locked_file

_INFORMS = ("boot", "gpu", "script", "run", "job")


def state_home() -> Path:
    """The user's folder for states, by the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "advisor"


def left_states() -> Iterator[Path]:
    """The state files of this machine whose scripts were killed before they undid all."""
    for path in sorted((state_home() / "gpus").glob(f"{socket.gethostname()}-*")):
        with suppress(OSError):
            descriptor = locked_file(path, 0, 0o600)
            if descriptor is not None:
                os.close(descriptor)
                if left_in(path):
                    yield path


def left_in(path: Path) -> list[str]:
    """The changes in a state file that are not undone; none where the machine was started since."""
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


def state_lines(path: Path) -> list[str]:
    """All lines of a state file; none where it is gone."""
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def processes_of(variable: str) -> list[int]:
    """The processes in whose environment a variable begins like this, ``NAME=VALUE``."""
    wanted, found = variable.encode(), []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):  # it has just ended, or is another user's
                variables = (path / "environ").read_bytes().split(b"\0")
                if any(each.startswith(wanted) for each in variables):
                    found.append(int(path.name))
    return found


def boot_id() -> str:
    """What tells this start of the machine from others; empty where the kernel does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
