"""Worker processes that share out what takes minutes, and end at once with whoever started them."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

_Part = TypeVar("_Part")
_Done = TypeVar("_Done")


@contextmanager
def done_apart(
    work: Callable[[_Part], _Done],
    parts: Iterable[_Part],
    processes: int,
    begin: Callable[..., None] | None = None,
    told: tuple[Any, ...] = (),
) -> Iterator[Iterator[_Done]]:
    """`work` on each of `parts`, by processes that are started afresh.

    An interrupt is for this process alone, which ends them: theirs would be tracebacks.

    Args:
        work: A function of a module.
        parts: One after another; each is sent to a process.
        processes: How many.
        begin: What each does first.
        told: Its arguments.

    Yields:
        What came of each part, in order, as soon as it is there.
    """
    pool = ProcessPoolExecutor(processes, get_context("spawn"), begin, told)
    try:
        with _deaf():  # tasks start processes, which inherit this
            found = pool.map(work, parts)
        yield found
    except BaseException:
        for each in active_children():
            each.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore interrupts meanwhile; only a main thread can, and only it gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
