"""Writes records completely or not at all; needs the standard library only."""

import json
import os
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from errno import ENOSPC
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import TYPE_CHECKING

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.reading import kind_of, reason_of

if TYPE_CHECKING:
    from advisor.workload.calibration import Calibration
    from advisor.workload.profile import Profile
    from advisor.workload.run import Run


def new_path(word: str) -> Path:
    """The file or folder called `word` on a command line, to be written: its parent is there.

    Else a misspelt path would make folders unnoticed.

    Raises:
        InvalidInput: The parent does not exist.
    """
    path = Path(word)
    with suppress(OSError, ValueError):  # of which writing says more
        if not path.parent.exists():
            raise InvalidInput(
                f"{path}: there is no folder {path.parent}. Check the path, or make it first: "
                f"`mkdir -p {shlex.quote(str(path.parent))}`."
            )
    return path


def writable(path: Path) -> Path:
    """The file to which writing to `path` goes, after following links; creates nothing.

    Called before long work whose result goes there; writing checks again.

    Raises:
        InvalidInput: It is there and not a regular file, as ``/dev/stdout`` mostly is; or this
            process's own output goes there; or a part of `path` is not a folder.
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
            if any(os.path.samestat(present, own) for own in _own_outputs()):
                raise InvalidInput(
                    f"{path}: this command's own output goes there already. Choose another path."
                )
        target = Path(os.path.realpath(path))
        folder = next(each for each in target.parents if each.exists())
        with TemporaryFile(dir=folder):
            return target
    except NotADirectoryError:
        raise InvalidInput(f"{path}: part of it is not a folder. Choose another path.") from None
    except (OSError, ValueError) as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None


def writable_folder(path: Path) -> Path:
    """`path`, checked as `writable` does to be a folder for files, existing or not."""
    writable(path / "new")
    return path


def _own_outputs() -> Iterable[os.stat_result]:
    for descriptor in (1, 2):
        with suppress(OSError):  # closed
            yield os.fstat(descriptor)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` to `path` atomically, so that no reader finds a part of it.

    A link stays, and the file that it points to is replaced; an existing file keeps its mode.

    Raises:
        InvalidInput: `path` is not a regular file.
        AdvisorError: The folder cannot be written.
    """
    target = writable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        with NamedTemporaryFile(dir=target.parent, prefix=".", delete=False) as draft:
            try:
                draft.write(content.encode() if isinstance(content, str) else content)
                draft.flush()
                Path(draft.name).chmod(mode)
                os.replace(draft.name, target)  # noqa: PTH105 - one word for one system call
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(draft.name).unlink()
                raise
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None


def profile_text(profile: "Profile") -> str:
    """`profile` as JSON, one line, numbers as short as they round-trip."""
    return json.dumps(asdict(profile), separators=(",", ":"), allow_nan=False) + "\n"


def calibration_text(calibration: "Calibration") -> str:
    """`calibration` as JSON, indented for a person to read."""
    return json.dumps(asdict(calibration), indent=1, allow_nan=False) + "\n"


def run_line(run: "Run") -> str:
    """`run` as one line of JSON Lines."""
    return json.dumps(asdict(run), separators=(",", ":"), allow_nan=False) + "\n"


def append_run(path: Path, run: "Run") -> None:
    """Add `run` to the JSON Lines file `path`; see `append_line`."""
    append_line(path, run_line(run))


def append_line(path: Path, line: str) -> None:
    """Append `line` to the file `path` in one write, whole or not at all.

    Raises:
        InvalidInput: `path` is not a regular file.
        AdvisorError: The file cannot be written.
    """
    target = writable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab", buffering=0) as lines:
            before, text = lines.seek(0, os.SEEK_END), line.encode()
            if lines.write(text) == len(text):
                return
            lines.truncate(before)
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None
    raise AdvisorError(f"{path}: {os.strerror(ENOSPC)}. Choose another path.")
