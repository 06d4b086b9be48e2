"""A place in which a script runs and changes no file of the user's: under overlays, or a mirror.

Overlays over its folder and what is near it need a kernel that allows them. Elsewhere the script
runs in a mirror of its folder, a copy with links to large files, and what it could change through
these is named first and compared afterwards.
"""

import json
import os
import re
import stat
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

from advisor.errors import InvalidInput
from advisor.measure.mirror import mirror_folder
from advisor.measure.overlay import overlaid
from advisor.measure.process import say
from advisor.workload.reading import is_file, is_folder
from advisor.workload.spec import Script

# Entries that are looked at below a folder, those near its top first, and of one folder.
_MOST_SEEN, _MOST_SEEN_IN_ONE = 50_000, 10_000
_MOST_OVERLAYS, _MOST_NAMED = 32, 5


@dataclass(frozen=True, slots=True)
class Place:
    """The working folder of a script, and how it starts there.

    Attributes:
        working: Its working folder.
        launcher: Words before its command; without any, `working` has links that need a guard.
        exposed: The files of the user's that it could change all the same.
    """

    working: Path
    launcher: tuple[str, ...] = ()
    exposed: "Exposed | None" = None


def place_for(script: Script, base: Path) -> Place:
    """Choose where `script` runs; what it writes goes to `base`, a folder in one of this run's.

    Raises:
        InvalidInput: Its folder does not exist.
        AdvisorError: There is no room for a mirror.
    """
    folder = Path(script.folder)
    if not is_folder(folder):
        raise InvalidInput(f"{folder}: no such folder, and the script runs there")
    folder, base = folder.resolve(), base.resolve()
    around, run = _around(folder), base.parent
    beyond = _beyond(script, folder, around)
    safe = [each for each in (around, *beyond) if each.name and each not in run.parents]
    apart = [each for each in safe if not folder.is_relative_to(each)]
    for others in (safe, apart) if folder.name else ():
        folders = _outermost([folder, *others])
        folders.sort(key=lambda each: not folder.is_relative_to(each))  # the first one must work
        launcher, left = _overlays(folder, folders[:_MOST_OVERLAYS], base)
        if launcher:
            left += folders[_MOST_OVERLAYS:] + [each for each in beyond if each not in safe]
            return Place(folder, launcher, Exposed(left, left, run) if left else None)
    mirror, links = mirror_folder(folder, base)
    noted = [folder, *(each for each in (*beyond, around) if each in safe)]
    return Place(mirror, (), Exposed([*links, *beyond], noted, run))


def _around(folder: Path) -> Path:
    """The git repository that `folder` lies in, or else the folder around it."""
    return next((each for each in folder.parents if (each / ".git").exists()), folder.parent)


def _beyond(script: Script, folder: Path, around: Path) -> list[Path]:
    """Folders that links in `folder` and words of the command lead to, and a worktree's git."""
    words = [part for word in script.command[1:] for part in (word, word.partition("=")[2])]
    todo, folders = deque([str(folder)]), dict[Path, None]()

    def reach(path: Path) -> None:
        path = Path(os.path.realpath(path))  # of a circle, too
        if is_file(path):
            if not (os.access(path, os.W_OK) or os.access(path.parent, os.W_OK)):
                return
            path = path.parent
        if path not in folders and is_folder(path):
            folders[path] = None
            todo.append(str(path))

    for word in filter(None, words):
        reach(folder / word)
    for top in (folder, around):
        with suppress(OSError, ValueError):  # the .git of a worktree or a submodule is a file
            kept = Path(top, (top / ".git").read_text().removeprefix("gitdir:").strip())
            common = kept / "commondir"
            reach(kept / common.read_text().strip() if common.is_file() else kept)
    for entry in _entries(todo):
        if entry.is_symlink():
            reach(Path(entry.path))
    return [each for each in folders if not each.is_relative_to(folder)]


def _entries(todo: deque[str], without: Iterable[Path] = ()) -> Iterator[os.DirEntry[str]]:
    """Entries of the folders in `todo` and of those inside, which join it, within limits."""
    skipped = {*map(str, without)}
    left = _MOST_SEEN
    while todo and left > 0:
        with suppress(OSError), os.scandir(todo.popleft()) as entries:
            for entry in islice(entries, min(left, _MOST_SEEN_IN_ONE)):
                left -= 1
                if entry.path not in skipped and entry.name != "__pycache__":
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    yield entry


def _outermost(folders: Iterable[Path]) -> list[Path]:
    outer: list[Path] = []
    for each in sorted(set(folders), key=lambda each: len(each.parts)):
        if not any(each.is_relative_to(other) for other in outer):
            outer.append(each)
    return outer


def _overlays(
    working: Path, folders: Sequence[Path], base: Path
) -> tuple[tuple[str, ...], list[Path]]:
    """The words that start a program under overlays, and what has none; no words if not possible.

    The run's own files stay outside of them, and so do caches and settings in the home folder.
    """
    kept = [base.parent] if base.is_relative_to(folders[0]) else []
    if any(_home().is_relative_to(each) for each in folders):
        kept += [each for each in _settings() if not working.is_relative_to(each)]

    def words(folders: Sequence[Path]) -> list[str]:
        return overlaid(working, folders, Path(mkdtemp(prefix="o", dir=base)), kept)

    done = subprocess.run(words(folders), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return (), []
    left = [Path(each) for each in json.loads(done.stdout)]
    return tuple(words([each for each in folders if each not in left])), left


def _home() -> Path:
    return Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - pathlib may raise


def _settings() -> list[Path]:
    """The folders of caches and settings in the home folder, which outlive a measurement."""
    hidden = _home().glob(".*")
    return [each for each in hidden if each.is_dir() and not each.is_symlink()]


class Exposed:
    """Files of the user's that a script can change, as they were before it started."""

    def __init__(self, links: Sequence[Path], folders: Sequence[Path], run: Path) -> None:
        """Name `links`, once, and note the files in `folders` but those of this `run`."""
        self._before = dict(_states(folders, [run, *_settings()]))
        self._paths = {state[:2]: path for path, state in self._before.items()}
        self._written = set[str]()
        if links:
            _name_once(_listed(sorted(map(str, links))))

    def look(self, pids: Iterable[int]) -> None:
        """Note which of the files the processes `pids` have open for writing now."""
        for pid in pids if self._before else ():
            with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
                for each in descriptors:
                    with suppress(OSError):
                        about = each.stat()
                        path = self._paths.get((about.st_dev, about.st_ino))
                        if path is not None and _is_written(pid, each.name):
                            self._written.add(path)

    def changed(self) -> tuple[list[str], list[str]]:
        """The files that have changed: those that the script had open for writing, and others."""
        paths = [path for path, state in self._before.items() if _state(path) != state]
        written = [path for path in paths if path in self._written]
        return written, [path for path in paths if path not in self._written]

    def name_changes(self) -> bool:
        """Name the files that have changed; return whether the script wrote to one."""
        written, others = self.changed()
        if written:
            say(f"  changed by the script: {_listed(written)}")
        if others:
            say(
                f"  changed during the measurement, by the script or another program: "
                f"{_listed(others)}"
            )
        return bool(written)


_State = tuple[int, int, int, int]


def _state(path: str) -> _State | None:
    """Identity, size and time of the last change of a file; None of anything else."""
    with suppress(OSError):
        about = os.lstat(path)
        if stat.S_ISREG(about.st_mode):
            return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns
    return None


def _states(folders: Iterable[Path], without: Sequence[Path]) -> Iterator[tuple[str, _State]]:
    """The files in `folders`, or those that are files, and their states."""
    for folder in folders:
        inside = (each.path for each in _entries(deque([str(folder)]), without))
        for path in (str(folder), *inside):
            if state := _state(path):
                yield path, state


def _is_written(pid: int, descriptor: str) -> bool:
    """Whether a descriptor of a process can write; proc(5), fdinfo."""
    about = Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text()
    flags = re.search(r"^flags:\s*([0-7]+)", about, re.MULTILINE)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


@cache
def _name_once(links: str) -> None:
    """Name what a script could change; copies of it, and the next start, need no line."""
    say(
        f"  a program could change files of yours that no overlay covers: {links}. They are "
        f"compared afterwards."
    )
