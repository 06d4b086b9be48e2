"""Where data lies, shipped or the user's own, and how bytes of files that users name are read.

Needs the standard library only: all readers of users' files use it, also in measuring. Whatever is
no regular file, or too large, is refused before it is read.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, wraps
from pathlib import Path
from typing import Literal, TypeVar

from advisor.errors import InvalidInput

Kind = Literal["profiles", "models", "calibrations", "gpus"]

# The fitted model of all GPUs.
MODEL_FILE = "sharing.json"

_PACKAGE = Path(__file__).resolve().parent.parent


def beside_package(name: str) -> Path:
    """Path of shipped data: next to the package in a checkout, inside it in a wheel."""
    # In a checkout the packaged copy is stale: an editable install leaves one behind.
    in_checkout = (_PACKAGE.parent / "pyproject.toml").is_file()
    return _PACKAGE.parent / name if in_checkout else _PACKAGE / "_shipped" / name


def shown(path: Path) -> str:
    """`path` for messages; a file that came with the package is called shipped or bundled."""
    for kind in ("profiles", "models"):
        if path.is_relative_to(folder := beside_package(kind)):
            return f"the shipped {kind}, {path.relative_to(folder)}"
    return f"the bundled {path.name}" if path.is_relative_to(_PACKAGE) else str(path)


def profile_files(folder: Path) -> list[Path]:
    """The profile files in `folder`, those of one GPU; none if there is no such folder."""
    return sorted(folder.glob("*.json")) if is_folder(folder) else []


def user_folder(kind: Kind) -> Path:
    """The user's own folder of `kind`, by the XDG base directory specification."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "advisor" / kind


def cache_folder(kind: Literal["engine", "factors", "inductor"]) -> Path:
    """The folder for caches that outlive a run, by the same specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "advisor" / kind


# The largest file written here, a fitted model, has 2 MiB; a million arrivals in a CSV, 40 MiB.
MOST_BYTES = 128 * 2**20

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a user's regular file, `most` of them at most.

    Raises:
        InvalidInput: There is no such file, it is not a regular file or too large, or it cannot be
            read.
    """
    try:
        if not stat.S_ISREG((found := path.stat()).st_mode):
            raise InvalidInput(f"{shown(path)}: it is {kind_of(found)}. Name a regular file.")
        content = b""
        if (size := found.st_size) <= most:
            with path.open("rb") as file:
                content = file.read(most + 1)
            size = len(content)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{shown(path)}: {reason_of(error)}. Check the path.") from None
    if size > most:
        raise InvalidInput(f"{shown(path)}: it has more than {most // 2**20} MiB. Check the path.")
    return content


_Read = TypeVar("_Read")


def read_once(most: int) -> Callable[[Callable[[Path], _Read]], Callable[[Path], _Read]]:
    """Wraps a reader of files: a file is read again only after a change; `most` are cached."""

    def of(read: Callable[[Path], _Read]) -> Callable[[Path], _Read]:
        @lru_cache(most)
        def remembered(path: Path, _version: tuple[int, ...]) -> _Read:
            return read(path)

        @wraps(read)
        def found(path: Path) -> _Read:
            try:
                now = path.stat()
            except (OSError, ValueError):
                return read(path)  # which says what is wrong with it
            return remembered(path, (now.st_ino, now.st_size, now.st_mtime_ns))

        return found

    return of


@contextmanager
def located(where: object, remedy: str = "") -> Iterator[None]:
    """Errors raised in the block are prefixed with `where`, and end with `remedy`.

    Raises:
        InvalidInput: The block raised it.
    """
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}{remedy and f'. {remedy}'}") from None


def is_folder(path: Path) -> bool:
    """Whether it is a folder; a name that no file can have, since it is too long, names none."""
    with suppress(OSError):
        return path.is_dir()
    return False


def is_file(path: Path) -> bool:
    """Whether it is a regular file; as `is_folder`."""
    with suppress(OSError):
        return path.is_file()
    return False


def present_folder() -> Path:
    """The folder that this process is in, which other processes are started in too.

    Raises:
        InvalidInput: It was removed meanwhile.
    """
    try:
        return Path.cwd()
    except OSError:
        raise InvalidInput("the folder that you are in is gone. Change into another.") from None


def kind_of(found: os.stat_result) -> str:
    """The kind of file that `found` describes, in words."""
    return _KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")


def reason_of(error: OSError | ValueError) -> str:
    """Why the system refused a path, in words; a ValueError means an impossible path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
