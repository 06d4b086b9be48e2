"""Ends processes that lie within a folder: MPS daemons by their pipes, scripts by their mark."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from advisor.hardware.mps import mps_processes
from advisor.measure.process.script_processes import scripts_within


def end_mps_within(folder: Path) -> None:
    """End every MPS daemon and server whose pipes lie in `folder`."""
    _end_all(lambda: mps_within(folder))


def end_scripts_within(folder: Path) -> None:
    """End every process of a measured script whose folder lies in `folder`, or is it."""
    _end_all(lambda: scripts_within(folder))


def _end_all(found: Callable[[], Sequence[int]]) -> None:
    """End the processes that `found` finds, by request and else by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        for pid in found():
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        if wait_until(lambda: not found(), seconds=3):
            return


def mps_within(folder: Path) -> tuple[int, ...]:
    """The pids of MPS daemons and servers whose pipes lie in `folder`."""
    return tuple(
        each.pid
        for each in mps_processes()
        if each.pipe_directory and Path(each.pipe_directory).is_relative_to(folder)
    )


def wait_until(true: Callable[[], object], seconds: float) -> bool:
    """Whether `true()` holds within `seconds`."""
    until = monotonic() + seconds
    while not true():
        if monotonic() > until:
            return False
        sleep(0.02)
    return True
