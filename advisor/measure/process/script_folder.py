"""A working copy of a script's folder, so that what the script writes does not reach its own files.

The folder is made anew: directories as such, small files copied, large ones linked. What a script
writes by a relative path then lands here. Writing to a linked file would reach the original, so
`guard_links`, in the script's process, puts a copy in a link's place before Python opens it to
write, and before torch saves to it. Directories in it beyond the limits below, mostly data, are
linked whole: what is written inside them is written to the original. Around the folder lies what
lies around the original, up to the root, as links.
"""

import builtins
import io
import os
import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

# A script and its settings are small; data sets and checkpoints are not.
_COPIED_BYTES, _COPIED_IN_ALL = 2**20, 2**26
_MOST_IN_A_FOLDER, _MOST_IN_ALL = 1000, 5000

_SKIPPED = ("__pycache__",)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def made_beside(original: Path, base: Path) -> Path:
    """A new folder below `base` with the contents of `original`, and what lies around that.

    Raises:
        OSError: `original` cannot be read, or `base` not be written.
    """
    original, base = original.resolve(), base.resolve()
    level = base / "around"
    level.mkdir(parents=True)
    *above, name = original.parts[1:] or ("root",)
    for folder, inner in zip(reversed(original.parents), (*above, name), strict=False):
        _link_beside(inner, folder, level, base)
        level /= inner
        if inner is not name:
            level.mkdir()
    mirror = base.joinpath("around", *above, name)
    _mirror(original, mirror, base)
    return mirror


def _link_beside(inner: str, folder: Path, level: Path, base: Path) -> None:
    """Link to `level` what lies in `folder` beside `inner`: a script reads ../data."""
    with suppress(OSError):  # it may do without what it cannot see
        for entry in _entries(folder, _MOST_IN_ALL) or ():
            if entry.name != inner and not base.is_relative_to(entry.path):
                (level / entry.name).symlink_to(entry.path)


def _entries(folder: Path, most: int | None = None) -> list[os.DirEntry[str]] | None:
    """What is in `folder`; None where that is more than `most`."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    return found if most is None or len(found) <= most else None


def _mirror(original: Path, mirror: Path, base: Path) -> None:
    """Fill the new folder `mirror` below `base`, what is near its top first, within the limits."""
    left, room = _MOST_IN_ALL, _COPIED_IN_ALL
    todo = deque([(original, mirror)])
    while todo:
        source, target = todo.popleft()
        entries = _entries(source) if target == mirror else _entries_made_anew(source, left)
        if entries is None:
            target.symlink_to(source.resolve())
            continue
        left -= len(entries)
        target.mkdir()
        for entry in entries:
            if entry.name in _SKIPPED or base.is_relative_to(entry.path):  # the mirror itself
                continue
            place = target / entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                todo.append((Path(entry.path), place))
            elif (size := _bytes_to_copy(entry)) <= min(room, _COPIED_BYTES):
                room -= size
                shutil.copy2(entry.path, place)
            else:
                place.symlink_to(os.path.realpath(entry.path))


def _entries_made_anew(folder: Path, left: int) -> list[os.DirEntry[str]] | None:
    """What is in `folder`; None where it is linked whole: it is large, or nobody may read it."""
    with suppress(PermissionError):
        return _entries(folder, min(left, _MOST_IN_A_FOLDER))
    return None


def _bytes_to_copy(entry: os.DirEntry[str]) -> int:
    """Bytes of a file that can be copied; of anything else more than are ever copied."""
    with suppress(OSError):  # a link that leads nowhere, or in a circle
        if entry.is_file() and os.access(entry.path, os.R_OK):
            return entry.stat().st_size
    return _COPIED_BYTES + 1


def guard_links(folder: Path) -> None:
    """See for the rest of this process that no Python in it writes to `folder` through a link.

    An audit hook would see more, and cost a step of ResNet-50 nearly 1 %: torch asks for thousands
    of identities, each an event.
    """
    # Partial objects, as the originals, become no methods where a class keeps them.
    builtins.open = io.open = partial(_opened, io.open, folder)
    os.open = partial(_opened_low, os.open, folder)


def _opened(opens: Callable[..., Any], folder: Path, file: Any, mode: str = "r", *arguments: Any,
            **named: Any) -> Any:  # fmt: skip
    if not {*"wax+"}.isdisjoint(mode):
        unlinked(file, folder, keep="w" not in mode)
    return opens(file, mode, *arguments, **named)


def _opened_low(opens: Callable[..., int], folder: Path, path: Any, flags: int, *arguments: Any,
                **named: Any) -> int:  # fmt: skip
    if flags & _WRITES:
        unlinked(path, folder, keep=not flags & os.O_TRUNC)
    return opens(path, flags, *arguments, **named)


def unlinked(path: object, folder: Path, *, keep: bool) -> None:
    """Where `path` is a link inside `folder`, put a copy there, or nothing unless to `keep` it."""
    if not isinstance(path, str | os.PathLike):
        return
    place = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link
    if not (place.is_symlink() and place.is_relative_to(folder)) or place.is_dir():
        return
    target = place.resolve()
    place.unlink()
    if keep and target.is_file():
        shutil.copyfile(target, place)
