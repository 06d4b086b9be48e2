"""Lets the caller of a search see that it goes on, and end it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_WATCH: ContextVar[Callable[[], None] | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Callable[[], None]) -> Iterator[None]:
    """Call `watch` at each step of the searches in this block and thread; its errors end them."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def step() -> None:
    """Count a step of a search: some milliseconds of work or less."""
    if (watch := _WATCH.get()) is not None:
        watch()
