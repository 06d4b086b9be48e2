"""The processes of users' scripts that are measured, by their session and by the mark of each.

A process that a script starts in a session of its own is no member of the script's, and outlives
it; so do those below a shell, where whoever measures them is killed.
"""

import os
from contextlib import suppress
from pathlib import Path

MARK = "ADVISOR_SCRIPT"
"""The variable that names the folder made for a script."""


def scripts_within(folder: Path) -> tuple[int, ...]:
    """Pids of the living processes of scripts whose folders lie in `folder`, or are it."""
    whole = f"{MARK}={folder}".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and int(path.name) != os.getpid():
            with suppress(OSError):  # it has just ended, or is another user's
                variables = (path / "environ").read_bytes().split(b"\0")
                if any(each == whole or each.startswith(whole + b"/") for each in variables):
                    found.append(int(path.name))
    return tuple(found)


def cpu_s_of(pid: int) -> float:
    """User and system time of a process (proc(5): stat, fields 14 and 15); 0 once it is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def session_members(leader: int) -> list[int]:
    """The pids of all living processes in the session of `leader` (proc(5): stat, field 6)."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(session) == leader and state not in "ZX":
                found.append(int(folder.name))
    return found
