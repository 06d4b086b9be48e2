"""A mirror of a folder for a script to run in: a copy, with links to what is large."""

import os
import re
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.workload.reading import reason_of

_FICLONE = 0x40049409  # of linux/fs.h
# Of a mirror: what it copies of data, a file and in all, and of all else; more is linked.
_DATA_BYTES, _DATA_IN_ALL, _COPIED_IN_ALL = 2**20, 2**26, 2**30
_MOST_IN_A_FOLDER, _MOST_IN_ALL = 1000, 5000
_DATA = re.compile(
    r"\.(arrow|avi|bmp|feather|flac|gif|gz|jpe?g|lmdb|mdb|mkv|mp[34]|np[yz]|ogg|parquet|png|tar|"
    r"tfrecord|tiff?|wav|webp|xz|zip|zst)",
    re.IGNORECASE,
)


def mirror_folder(original: Path, base: Path) -> tuple[Path, list[Path]]:
    """Make a folder below `base` with the contents of `original`, and with its surroundings.

    Return it, and what in `original` it only links to: large files, folders beyond the limits
    above, and git's. All around the original, up to the root, are links, too. A write to a link
    would reach the original: `advisor.measure.inside.files` puts a copy in its place first.
    """
    level = base / "around"
    inside = original.parts[1:] or ("root",)
    mirror = level.joinpath(*inside)
    try:
        for folder, inner in zip(reversed(original.parents), inside, strict=False):
            level.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # a script that reads ../data may do without what is not there
                entries = _sorted(folder)
                for entry in entries if len(entries) <= _MOST_IN_ALL else ():
                    if entry.name != inner and not base.is_relative_to(entry.path):
                        (level / entry.name).symlink_to(entry.path)
            level /= inner
        mirror.parent.mkdir(parents=True, exist_ok=True)
        return mirror, list(_fill(mirror, original, base))
    except OSError as error:
        raise AdvisorError(
            f"{error.filename or base}: {reason_of(error)}. The script needs a copy of its "
            f"folder: make room, or set TMPDIR to a folder with more."
        ) from None


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _fill(mirror: Path, original: Path, base: Path) -> Iterator[Path]:
    """Copy or link `original` to `mirror`, entries near its top first; yield what is linked."""
    left, copies = _MOST_IN_ALL, _Copies(base)
    todo = deque([(original, mirror)])
    while todo:
        source, target = todo.popleft()
        linked = target != mirror and not os.access(source, os.R_OK)
        entries = [] if linked else _sorted(source)
        if linked or (target != mirror and len(entries) > min(left, _MOST_IN_A_FOLDER)):
            target.symlink_to(source.resolve())
            yield source
            continue
        left -= len(entries)
        target.mkdir()
        for entry in entries:
            if entry.name == "__pycache__" or base.is_relative_to(entry.path):  # the mirror itself
                continue
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                todo.append((Path(entry.path), place))
            elif entry.is_symlink() and (inner := _inside(entry.path, original)) is not None:
                place.symlink_to(mirror / inner)
            elif not copies.copy(entry, place):
                place.symlink_to(os.path.realpath(entry.path))
                yield Path(entry.path)


def _inside(path: str, folder: Path) -> Path | None:
    """Return the target of a link, relative to `folder`; None if it leads out."""
    target = Path(os.path.realpath(path))  # of a circle, too
    return target.relative_to(folder) if target.is_relative_to(folder) else None


class _Copies:
    """Copies of files, until the room for them is used up; those that share blocks need none."""

    def __init__(self, base: Path) -> None:
        self._shares_blocks = True
        self._rooms = {
            True: _DATA_IN_ALL,
            False: min(_COPIED_IN_ALL, shutil.disk_usage(base).free // 4),
        }

    def copy(self, entry: os.DirEntry[str], place: Path) -> bool:
        """Copy a file if that is possible and cheap; return whether it was."""
        try:  # or a link that leads nowhere, or in a circle
            if not (entry.is_file() and os.access(entry.path, os.R_OK)):
                return False
            size = entry.stat().st_size
        except OSError:
            return False
        if self._shares_blocks and self._clone(entry.path, place):
            return True
        data = _DATA.fullmatch(Path(entry.name).suffix) is not None
        if size > min(self._rooms[data], _DATA_BYTES if data else size):
            return False
        self._rooms[data] -= size
        shutil.copy2(entry.path, place)
        return True

    def _clone(self, source: str, place: Path) -> bool:
        try:
            with Path(source).open("rb") as original, place.open("wb") as copy:
                ioctl(copy, _FICLONE, original.fileno())
        except OSError:  # nor can other files share theirs
            place.unlink(missing_ok=True)
            self._shares_blocks = False
            return False
        shutil.copystat(source, place)
        return True
