"""Products of small matrices, without threads that wait for each other."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock
from typing import Any


@cache
def _pools() -> Any:
    """The thread pools of the libraries at hand; to find them takes longer than to set them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# Held by whoever asked first: what others ask meanwhile holds already.
_HELD = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Meanwhile numpy's products take one thread.

    On a machine with other work the threads of a small product wait for each other for several
    times as long as they save on an idle one. To ask for it takes as long as a small product, so
    who makes many of them asks once, around them all.
    """
    if not _HELD.acquire(blocking=False):
        yield
        return
    try:
        with _pools().limit(limits=1, user_api="blas"):
            yield
    finally:
        _HELD.release()


def fitting_in_one_thread() -> AbstractContextManager[object]:
    """From this call on, until its end as a context, no library takes more than one thread.

    For hundreds of small systems: threads that wait for each other take up to 50 times longer.
    Threads of libraries are found only once these are there, and fitting needs scipy.
    """
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[object] = threadpool_limits(1)
    return limited
