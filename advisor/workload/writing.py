"""Writes records whole or not at all; needs the standard library only."""

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile

from advisor.errors import AdvisorError, InvalidInput
from advisor.workload.calibration import Calibration
from advisor.workload.files import kind_of, reason_of
from advisor.workload.profile import Profile
from advisor.workload.run import Run


def writable(path: Path) -> Path:
    """Where writing to `path` puts its text: at the end of its links. Makes nothing.

    Ask before hours of work whose result goes there; writing asks again.

    Raises:
        InvalidInput: Something is there that is no regular file, as ``/dev/stdout`` mostly is; or
            it is where this process's own output goes; or a part of `path` is no folder.
        AdvisorError: Its folder cannot be written.
    """
    try:
        with suppress(FileNotFoundError):
            # Of the path as given: what stands behind /dev/stdout may bear no other name.
            _refuse_no_file(path, path.stat())
        target = Path(os.path.realpath(path))
        folder = next(each for each in target.parents if each.exists())
        with TemporaryFile(dir=folder):
            return target
    except NotADirectoryError:
        raise InvalidInput(f"{path}: part of it is no folder. Choose another path.") from None
    except (OSError, ValueError) as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None


def writable_folder(path: Path) -> Path:
    """`path`, a folder in which files can be written, there already or not; likewise."""
    writable(path / "new")
    return path


def _refuse_no_file(path: Path, there: os.stat_result) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise InvalidInput(
            f"{path}: it is {kind_of(there)}, and only a regular file is replaced. Choose another "
            f"path."
        )
    if any(os.path.samestat(there, own) for own in _own_outputs()):
        raise InvalidInput(
            f"{path}: this command's own output goes there already. Choose another path."
        )


def _own_outputs() -> Iterable[os.stat_result]:
    for descriptor in (1, 2):
        with suppress(OSError):  # closed
            yield os.fstat(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Put `text` into `path` at once, so that no reader ever finds half of it.

    A link stays, and the file that it points to is replaced; one that was there keeps its mode.

    Raises:
        InvalidInput: Something is there that is no regular file.
        AdvisorError: The folder cannot be written.
    """
    target = writable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=".", delete=False
        ) as draft:
            try:
                draft.write(text)
                draft.flush()
                Path(draft.name).chmod(mode)
                os.replace(draft.name, target)  # noqa: PTH105 - one word for one system call
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(draft.name).unlink()
                raise
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None


def profile_text(profile: Profile) -> str:
    """`profile` as JSON, one line, numbers as short as they round-trip."""
    return json.dumps(asdict(profile), separators=(",", ":"), allow_nan=False) + "\n"


def calibration_text(calibration: Calibration) -> str:
    """`calibration` as JSON, indented for a person to read."""
    return json.dumps(asdict(calibration), indent=1, allow_nan=False) + "\n"


def run_line(run: Run) -> str:
    """`run` as one line of JSON Lines."""
    return json.dumps(asdict(run), separators=(",", ":"), allow_nan=False) + "\n"


def append_run(path: Path, run: Run) -> None:
    """Add `run` to the JSON Lines file `path`; see `append_line`."""
    append_line(path, run_line(run))


def append_line(path: Path, line: str) -> None:
    """Add `line` to the file `path` in one write, so that no line is ever half there.

    Raises:
        InvalidInput: Something is there that is no regular file.
        AdvisorError: The file cannot be written.
    """
    target = writable(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab", buffering=0) as lines:
            lines.write(line.encode())
    except OSError as error:
        raise AdvisorError(f"{path}: {reason_of(error)}. Choose another path.") from None
