"""How far something is that takes minutes, on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from advisor.cli.output import aside

Tell = Callable[[int, int, str], None]
"""Told how many parts of how many are done, and what is being done."""


@contextmanager
def progress() -> Iterator[Tell]:
    """A bar while the block runs, where somebody watches at a terminal; else a line for each part.

    Yields:
        What to call at the start of each part, and at the end of the last.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, now: aside(f"{done}/{total} {now}")
        return
    with _bar() as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, now: bar.update(
            task, completed=done, total=total, description=now
        )


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True, markup=False, emoji=False)
    return Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
