"""A working copy of a script's folder, so that what the script writes does not reach its own files.

The folder is made anew: directories as such, small files copied, large ones linked. What a script
writes by a relative path then lands here. Writing to a linked file would reach the original, so
`guard_links`, in the script's process, puts a copy in a link's place before Python opens it to
write, and before torch saves to it. Directories beyond the limits below, mostly data, are linked
whole: what is written inside them is written to the original.
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
    around = base / "around"
    around.mkdir(parents=True)
    if original.parent != original:
        with suppress(OSError):  # a script reads ../data, and may do without what it cannot see
            for entry in _entries(original.parent):
                if entry.name != original.name and not base.is_relative_to(entry.path):
                    (around / entry.name).symlink_to(entry.path)
    mirror = around / (original.name or "root")
    _mirror(original, mirror, base)
    return mirror


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    return found if len(found) <= _MOST_IN_A_FOLDER else []


def _mirror(original: Path, mirror: Path, base: Path) -> None:
    """Fill the new folder `mirror` below `base`, what is near its top first, within the limits."""
    made = copied_bytes = 0
    todo = deque([(original, mirror)])
    while todo:
        source, target = todo.popleft()
        entries = [each for each in _entries(source) if each.name not in _SKIPPED]
        made += len(entries)
        if target != mirror and (not entries or made > _MOST_IN_ALL):
            target.symlink_to(source.resolve())
            continue
        target.mkdir()
        for entry in entries:
            place = target / entry.name
            if base.is_relative_to(entry.path):  # the mirror itself
                continue
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                todo.append((Path(entry.path), place))
                continue
            size = entry.stat().st_size if entry.is_file() else _COPIED_BYTES + 1
            if size <= _COPIED_BYTES and copied_bytes + size <= _COPIED_IN_ALL:
                copied_bytes += size
                shutil.copy2(entry.path, place)
            else:
                place.symlink_to(os.path.realpath(entry.path))


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
