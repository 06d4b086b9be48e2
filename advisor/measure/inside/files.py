"""Keeps the files of a user's folder as they are while a program runs in a mirror of it."""

import builtins
import io
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guard_links(folder: Path) -> None:
    """Replace `open` for the rest of this process: it copies a link in `folder` before it writes.

    An audit hook would catch more writes, and cost a step of ResNet-50 nearly 1 %.
    """
    # Partial objects, as the originals, become no methods where a class keeps them.
    builtins.open = io.open = partial(_open, io.open, folder)
    os.open = partial(_open_low, os.open, folder)


def _open(
    opens: Callable[..., Any],
    folder: Path,
    file: Any,
    mode: str = "r",
    *arguments: Any,
    **named: Any,
) -> Any:
    if not {*"wax+"}.isdisjoint(mode):
        replace_link(file, folder, keep="w" not in mode)
    return opens(file, mode, *arguments, **named)


def _open_low(
    opens: Callable[..., int], folder: Path, path: Any, flags: int, *arguments: Any, **named: Any
) -> int:
    if flags & _WRITES:
        makes_it_anew = os.O_CREAT | os.O_TRUNC
        replace_link(path, folder, keep=flags & makes_it_anew != makes_it_anew)
    return opens(path, flags, *arguments, **named)


def replace_link(path: object, folder: Path, *, keep: bool) -> None:
    """Replace `path` by a copy if it is a link inside `folder`, or remove it unless to `keep`."""
    if not isinstance(path, str | os.PathLike):
        return
    place = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow the link
    if not (place.is_symlink() and place.is_relative_to(folder)) or place.is_dir():
        return
    target = place.resolve()
    place.unlink()
    if keep and target.is_file():
        shutil.copyfile(target, place)
