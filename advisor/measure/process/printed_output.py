"""What a program printed: its lines as a terminal shows them, and the one that tells of its end."""

import re

_LONGEST_LINE = 300
_LONGEST_UNFINISHED = 65_536
# What the interpreter says last of an exception that nobody caught; a rank's number may precede it.
_RAISED = re.compile(r"(?:\[rank\d+\]:\s*)?[\w.]*(?:Error|Exception|Interrupt): \S.*")
# Said by what started a program that failed, of itself.
_OF_LAUNCHERS = re.compile(r"subprocess\.CalledProcessError|.*ChildFailedError")


def ended_lines(printed: bytes) -> tuple[list[bytes], bytes]:
    """Lines that have ended, also those that a progress bar writes over, and what comes after."""
    *lines, rest = re.split(rb"[\r\n]", printed)
    return lines, rest[-_LONGEST_UNFINISHED:]


def shown_lines(text: str) -> list[str]:
    """The lines of `text` that hold anything, without what a progress bar wrote over."""
    lines = (line.rstrip().rpartition("\r")[2].strip() for line in text.split("\n"))
    return [line for line in lines if line]


def telling_line(text: str) -> str:
    """The line that tells most of how a program ended that printed `text`; empty without any.

    That of the last exception, else the last one that speaks of an error, else the last.
    """
    lines = shown_lines(text)
    own = [line for line in lines if not _OF_LAUNCHERS.match(line)]
    raised = [line for line in own if _RAISED.fullmatch(line)]
    errors = raised or [line for line in own if "rror" in line] or lines
    return errors[-1][:_LONGEST_LINE] if errors else ""
