"""Runs a measurement so that everything it started is cleaned up, whichever process is killed.

`supervised` starts the run as an inner process, in a session of its own, that holds the reading
end of a pipe, the lifeline. When the outer process ends in any way, the lifeline closes and the
inner process is interrupted, so its ``with`` blocks clean up. If the inner process is killed
instead, its tenants die with it (`advisor.measure.process.pdeathsig`), and the outer process or
the next run removes folders, daemons and locks.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType

from advisor.errors import AdvisorError
from advisor.measure.process.run_locks import sweep
from advisor.terminal import clean
from advisor.workload.files import present_folder

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# The exit code that a shell reports for a command ended by Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT

# Longer than the timeouts for ending tenants, the MPS daemon and its server.
_TEARDOWN_S = 90.0

# One thread per tenant for every mathematics library that torch may use: a tenant has one core.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def supervised(entry: str, argv: Sequence[str]) -> int:
    """Run ``entry(argv)`` in an inner process that cleans up, and return its exit code.

    Args:
        entry: ``"module:function"``; the function takes words and returns an exit code. An
            `AdvisorError` from it becomes a line on stderr and that error's exit code.
        argv: The words of the command line after its name.
    """
    sweep()
    inner, ours = started_inner(entry, argv, start_new_session=True)
    try:
        _interrupt_on_signals()
        code = inner.wait()
    except KeyboardInterrupt:
        os.close(ours)
        code = _after_teardown(inner)
    finally:
        sweep()
    if code < 0:
        name = signal.Signals(-code).name
        print(f"error: the run was killed by {name}. Look for the cause in dmesg.", file=sys.stderr)
        return AdvisorError.exit_code
    return code


def started_inner(
    entry: str, argv: Sequence[str], *, start_new_session: bool = False, keep: Sequence[int] = ()
) -> "tuple[subprocess.Popen[bytes], int]":
    """Start a process that runs ``entry(argv)``; it, and our descriptor of its lifeline.

    Args:
        entry: As for `supervised`.
        argv: The words passed to it.
        start_new_session: Whether it leaves this process's session, so that a terminal's Ctrl-C
            does not reach it.
        keep: Descriptors that it inherits.
    """
    lifeline, ours = os.pipe()
    inner = subprocess.Popen(
        [sys.executable, "-m", "advisor.measure.process", entry, *argv],
        stdin=lifeline,
        env=os.environ | _ONE_THREAD,
        start_new_session=start_new_session,
        pass_fds=keep,
    )
    os.close(lifeline)
    return inner, ours


def _after_teardown(inner: "subprocess.Popen[bytes]") -> int:
    try:
        return inner.wait(_TEARDOWN_S)
    except subprocess.TimeoutExpired:
        os.killpg(inner.pid, signal.SIGKILL)
        return inner.wait()


def run_inner(entry: str, argv: Sequence[str]) -> int:
    """Run ``entry(argv)`` in the inner process, interrupted when the lifeline closes."""
    _interrupt_on_signals()
    threading.Thread(target=_watch_lifeline, daemon=True).start()
    module, _, function = entry.partition(":")
    run: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    try:
        present_folder()
        return run(argv)
    except AdvisorError as error:
        say(clean(f"error: {error}"))
        return error.exit_code
    except KeyboardInterrupt:
        say("interrupted: everything that was started has been ended")
        return INTERRUPTED


def say(line: str) -> None:
    """Print a line of progress on stderr; a closed terminal does not stop the run."""
    with suppress(OSError):
        print(clean(line, keep="\n"), file=sys.stderr, flush=True)


def _interrupt_on_signals() -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _INTERRUPTS:  # a second one must not interrupt the cleaning up
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _INTERRUPTS:
        signal.signal(number, interrupt)


def _watch_lifeline() -> None:
    while os.read(sys.__stdin__.fileno(), 1):  # type: ignore[union-attr]
        pass
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
