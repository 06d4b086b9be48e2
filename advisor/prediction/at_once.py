"""Replays on several cores at once: what is compiled lets other threads run."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from advisor.running.cores import allowed_cores

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


@cache
def _workers(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix="replay")


def at_once(answer: Callable[[_Asked], _Answer], asked: Sequence[_Asked]) -> list[_Answer]:
    """What `answer` says of each of `asked`, in order; it asks nothing at once itself."""
    cores = len(allowed_cores())
    if min(cores, len(asked)) < 2:
        return [answer(each) for each in asked]
    return list(_workers(cores).map(answer, asked))
