"""Work on several cores at once: what is compiled lets other threads run."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from advisor.running.cores import allowed_cores

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@cache
def _workers(cores: int, what: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix=what)


def at_once(answer: Callable[[_Asked], _Answer], asked: Sequence[_Asked]) -> list[_Answer]:
    """What `answer` says of each of `asked`, in order; it asks nothing at once itself."""
    cores = len(allowed_cores())
    if min(cores, len(asked)) < 2:
        return [answer(each) for each in asked]
    return list(_workers(cores, "replay").map(answer, asked))


def begun(
    answer: Callable[[_Asked], _Answer], asked: Sequence[_Asked]
) -> Callable[[], list[_Answer]]:
    """As `at_once`, while the caller goes on: what is returned waits for the answers.

    `answer` may ask at once itself, but begin nothing.
    """
    cores = len(allowed_cores())
    if cores < 2:
        return lambda: [answer(each) for each in asked]
    coming = [_workers(cores, "ahead").submit(answer, each) for each in asked]
    return lambda: [each.result() for each in coming]
