"""Writes records completely or not at all; needs the standard library only."""

import json
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from errno import ENAMETOOLONG, ENOSPC
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError, InvalidInput
from advisor.files.reading import kind_of, reason_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def new_path(word: str) -> Path:
    """Return the file or folder called `word` on a command line, to be written: its parent exists.

    Otherwise a misspelt path would make folders unnoticed.
    """
    path = Path(word)
    with suppress(OSError, ValueError):  # of which writing says more
        if not path.parent.exists():
            raise InvalidInput(
                f"{path}: folder {path.parent} not found. Check the path, or make the folder: "
                f"`mkdir -p {shlex.quote(str(path.parent))}`."
            )
    return path


def writable(path: Path) -> Path:
    """Return the file to which writing to `path` goes, after following links; create nothing.

    Call it before long work whose result goes there; writing checks again.

    Raises:
        InvalidInput: It is not a regular file, this process's own output goes there, or no file
            can have that name.
        AdvisorError: Its folder cannot be written.
    """
    try:
        with suppress(FileNotFoundError):
            # Of the path as given: the target of /dev/stdout may have no other name.
            present = path.stat()
            if not stat.S_ISREG(present.st_mode):
                raise InvalidInput(
                    f"{path}: it is {kind_of(present)}, and only a regular file is replaced. "
                    f"Choose another path."
                )
            for descriptor in (1, 2):
                with suppress(OSError):  # closed
                    if os.path.samestat(present, os.fstat(descriptor)):
                        raise InvalidInput(
                            f"{path}: this command already writes its output there. Choose "
                            "another path."
                        )
        target = Path(os.path.realpath(path))
        folder = next(each for each in target.parents if each.exists())
        with TemporaryFile(dir=folder):
            return target
    except NotADirectoryError:
        raise InvalidInput(f"{path}: its parent is not a folder. Choose another path.") from None
    except (OSError, ValueError) as error:
        impossible = isinstance(error, ValueError) or error.errno == ENAMETOOLONG
        kind = InvalidInput if impossible else AdvisorError
        raise kind(f"{path}: {reason_of(error)}. Choose another path.") from None


def writable_folder(path: Path) -> Path:
    """Return `path`, checked as `writable` does to be a folder for files, existing or not."""
    writable(path / "new")
    return path


@contextmanager
def _target(path: Path) -> Iterator[Path]:
    """The file to which writing to `path` goes, in a folder that exists."""
    target = writable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield target
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` atomically, so that no reader finds a part of it.

    A link stays, and the file that it points to is replaced; an existing file keeps its mode.
    Errors are those of `writable`.
    """
    with _target(path) as target:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        with NamedTemporaryFile(dir=target.parent, prefix=".", delete=False) as draft:
            try:
                draft.write(content.encode() if isinstance(content, str) else content)
                draft.flush()
                Path(draft.name).chmod(mode)
                os.replace(draft.name, target)  # noqa: PTH105 - one word for one system call
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise


def append_record(path: Path, record: "DataclassInstance") -> None:
    """Add `record` to the JSON Lines file `path`; see `append_line`."""
    append_line(path, record_line(record))


def append_line(path: Path, line: str) -> None:
    """Append `line` to the file `path` in one write, whole or not at all; see `write_whole`."""
    with _target(path) as target, target.open("ab", buffering=0) as lines:
        before, text = lines.seek(0, os.SEEK_END), line.encode()
        if lines.write(text) < len(text):
            lines.truncate(before)
            raise OSError(ENOSPC, os.strerror(ENOSPC))


# Numbers of a list in indented JSON. No line ends inside a string, so none is taken for a list.
_NUMBERS = re.compile(r"\[\n[-+\d.,eE\s]+\]")


def json_text(document: object) -> str:
    """Return `document` as JSON for people, indented, with the numbers of a list on one line."""
    text = json.dumps(document, indent=1, allow_nan=False)
    return _NUMBERS.sub(lambda numbers: "".join(numbers[0].split()), text) + "\n"


def record_line(record: "DataclassInstance") -> str:
    """Return `record` as JSON in one line, with numbers as short as they round-trip."""
    return json.dumps(asdict(record), separators=(",", ":"), allow_nan=False) + "\n"


def record_text(record: "DataclassInstance") -> str:
    """Return `record` as JSON, indented for a person to read."""
    return json_text(asdict(record))
