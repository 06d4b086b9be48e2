"""Products of small matrices, without threads that wait for each other."""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any


@cache
def _pools() -> Any:
    """The thread pools of the libraries at hand; to find them takes longer than to set them."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[None]:
    """Meanwhile numpy's products take one thread.

    On a machine with other work the threads of a small product wait for each other for several
    times as long as they save on an idle one.
    """
    limited: AbstractContextManager[None] = _pools().limit(limits=1, user_api="blas")
    return limited
