"""The processes of a run, found by the mark that each of them inherits in its environment.

A pid alone names no process for long: with it goes the moment of its birth, in clock ticks since
the machine started, which no clock change moves (proc(5), starttime).
"""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from advisor.measure.process.process_ends import wait_until

MARK = "ADVISOR_RUN"
"""The variable whose value is the run's id."""

_PROC = Path("/proc")


def boot_id() -> str:
    """What tells this start of the machine from others; empty where the kernel does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def born(pid: int) -> int | None:
    """When the process was born, in ticks; None if there is none, or it has ended."""
    with suppress(OSError, IndexError, ValueError):
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def marked(run_id: str) -> tuple[int, ...]:
    """Every living process of the run but this one, by pid."""
    mark = f"{MARK}={run_id}".encode()
    found = (int(path.name) for path in _PROC.iterdir() if path.name.isdigit())
    living = (pid for pid in found if pid != os.getpid() and bears(pid, mark))
    return tuple(sorted(pid for pid in living if born(pid) is not None))


def bears(pid: int, variable: bytes) -> bool:
    """Whether the environment of the process has the `variable`, ``NAME=VALUE``."""
    with suppress(OSError):
        return variable in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return False


def send(pids: Iterable[int], how: signal.Signals) -> None:
    """Send `how` to each that still lives."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, how)


def end_marked(run_id: str, grace_s: float) -> tuple[int, ...]:
    """End every process of the run: asked first, stopped and killed after the grace.

    Returns:
        Those that even so live on: the kernel does not let them end.
    """
    send(marked(run_id), signal.SIGTERM)
    if wait_until(lambda: not marked(run_id), grace_s):
        return ()

    def killed() -> bool:
        left = marked(run_id)
        send(left, signal.SIGSTOP)
        send(left, signal.SIGKILL)
        return not left

    wait_until(killed, 10)
    return marked(run_id)
