"""Output of commands: answers on stdout, everything else on stderr, no control sequences.

The streams may be closed, full, or unable to encode some characters.
"""

import codecs
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from advisor.documents import answer_document
from advisor.errors import clean
from advisor.files.writing import json_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from advisor.run.watched import Shown


_Answered = TypeVar("_Answered")

_LINE = "\n"
# Width of output that is no terminal, and the least width that is laid out for.
_ENDLESS, _NARROWEST = 100_000, 20
# A run is printed as often where nothing of it starts or ends.
_SHOWN_S = 5.0

# Replacements, of equal width, for characters that the encoding of a stream lacks.
_PLAIN = str.maketrans("·…×–—’“”", '.~x--\'""')  # noqa: RUF001 - these are meant
_ERRORS = "advisor-plain"


def ready() -> None:
    """Prepare the streams so that writing to them fails cleanly, or not at all.

    A closed stream is opened, so that no other file gets its number: writing to stdout then fails
    as before, and writing to stderr is lost.
    """
    _open(0, "stdin", os.O_RDONLY, "r")
    _open(1, "stdout", os.O_RDONLY, "w")
    _open(2, "stderr", os.O_WRONLY, "w")
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _open(number: int, name: str, how: int, mode: str) -> None:
    if getattr(sys, name) is not None:
        return
    nowhere = os.open(os.devnull, how)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
    setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(sign if sign.isascii() else "?" for sign in text), error.end


def forget_stdout() -> None:
    """Discard what stdout has not written yet, and all that follows."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def show(report: "RenderableType") -> None:
    """Print `report` as wide as the terminal or ``COLUMNS``; unlimited where there is neither.

    A longer command stays on one line, so that it can be copied. There are no colours if stdout is
    no terminal, or ``NO_COLOR`` is set.
    """
    console = _console()
    with console.capture() as captured:
        console.print(_Clean(report), crop=False)
    text = captured.get()
    if console.width == _ENDLESS:
        text = _LINE.join(line.rstrip(" ") for line in text.split(_LINE))
    _write(text)


def show_answer(
    answer: _Answered, as_json: bool, report: "Callable[[_Answered], RenderableType]"
) -> None:
    """Print `answer` as one JSON document, or as a `report`: a text unchanged, others laid out.

    Warnings name what is doubtful about its profiles.
    """
    if (standing := getattr(answer, "standing", None)) is not None:
        warn(standing.doubts)
    if as_json:
        show_json(answer)
    elif isinstance(shown := report(answer), str):
        show_text(shown)
    else:
        show(shown)


def show_text(text: str, end: str = _LINE) -> None:
    """Print `text` unchanged, for people or a shell."""
    _write(clean(text, keep="\n\t") + end)


def show_json(answer: Any) -> None:
    """Print a record or a mapping as one JSON document."""
    _write(json_text(answer if isinstance(answer, Mapping) else answer_document(answer)))


def warn(lines: Iterable[object]) -> None:
    """Print each of `lines` as a warning on stderr."""
    for line in lines:
        aside(f"warning: {line}")


def leave_out(*reasons: str) -> None:
    """Warn about each file that is left out."""
    warn(f"left out: {why}" for why in reasons)


def aside(line: str, keep: str = "") -> None:
    """Print a line on stderr, even if nobody can read it."""
    with suppress(OSError):
        print(clean(line, keep=keep), file=sys.stderr, flush=True)


def _console() -> "Console":
    from advisor.report.format import ReportConsole

    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        width: int | None = max(int(columns), _NARROWEST)
    else:
        width = None if sys.stdout.isatty() else _ENDLESS
    return ReportConsole(width=width, highlight=False, markup=False, emoji=False)


class _Clean:
    """A report without control sequences, whatever its source; colours stay."""

    def __init__(self, report: "RenderableType") -> None:
        self._report = report

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for part in console.render(self._report, options):
            yield part if part.control else Segment(clean(part.text, keep=_LINE), part.style)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader that leaves early ends the command well
        forget_stdout()
        raise typer.Exit from None


@contextmanager
def live() -> "Iterator[Callable[[Sequence[Shown]], None]]":
    """Show runs while the block runs: in place on a terminal, else their lines now and then."""
    if sys.stdout.isatty():
        from rich.live import Live
        from rich.text import Text

        with Live(console=_console(), auto_refresh=False) as table:
            yield lambda runs: table.update(_Clean(Text(_LINE.join(map(str, runs)))), refresh=True)
        return
    shown_s, states = 0.0, list[tuple[str, ...]]()

    def show(runs: "Sequence[Shown]") -> None:
        nonlocal shown_s, states
        now = [run.states for run in runs]
        if now != states or monotonic() - shown_s > _SHOWN_S:
            shown_s, states = monotonic(), now
            show_text(_LINE.join(map(str, runs)))

    yield show


Advance = Callable[[int, int, str], None]
"""Arguments: the number of parts done, the number of all parts, and the part in words."""


@contextmanager
def progress() -> Iterator[Advance]:
    """Show progress while the block runs: a bar on a terminal, else a line for each part.

    Yields:
        A function to call at the start of each part, and at the end of the last.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, now: aside(f"{done}/{total} {now}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True, markup=False, emoji=False)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, now: bar.update(
            task, completed=done, total=total, description=now
        )
