"""A place in which a script runs and changes no file of the user's: under overlays, or a mirror.

The mirror copies its folder, with links to large files; what the script could change through these
is named first and compared afterwards.
"""

import json
import os
import re
import shutil
import stat
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp

from advisor.errors import AdvisorError, InvalidInput
from advisor.files.reading import is_file, is_folder, reason_of
from advisor.measure.launcher import Overlays, tied_to_parent
from advisor.measure.process import say
from advisor.workload.spec import Script

# Entries that are looked at below a folder, those near its top first, and of one folder.
_MOST_SEEN, _MOST_SEEN_IN_ONE = 50_000, 10_000
_MOST_OVERLAYS, _MOST_NAMED = 32, 5


@dataclass(frozen=True, slots=True)
class Place:
    """The working folder of a script, and how it starts there.

    Attributes:
        working: Its working folder.
        overlays: Those under which it starts; without any, `working` has links that need a guard.
        exposed: The files of the user's that it could change all the same.
    """

    working: Path
    overlays: Overlays | None = None
    exposed: "Exposed | None" = None


def place_for(script: Script, base: Path) -> Place:
    """Choose where `script` runs; what it writes goes to `base`, a folder in one of this run's.

    Raises:
        InvalidInput: Its folder does not exist.
        AdvisorError: There is no room for a mirror.
    """
    folder = Path(script.folder)
    if not is_folder(folder):
        raise InvalidInput(f"folder {folder} not found, and the script runs there")
    folder, base = folder.resolve(), base.resolve()
    in_git = (each for each in folder.parents if (each / ".git").exists())
    around, run = next(in_git, folder.parent), base.parent
    beyond = _beyond(script, folder, around)
    safe = [each for each in (around, *beyond) if each.name and each not in run.parents]
    apart = [each for each in safe if not folder.is_relative_to(each)]
    for others in (safe, apart) if folder.name else ():
        folders = list[Path]()
        for each in sorted({folder, *others}, key=lambda each: len(each.parts)):
            if not any(each.is_relative_to(outer) for outer in folders):
                folders.append(each)
        folders.sort(key=lambda each: not folder.is_relative_to(each))  # the first one must work
        overlays, left = _overlays(folder, folders[:_MOST_OVERLAYS], base)
        if overlays is not None:
            left += folders[_MOST_OVERLAYS:] + [each for each in beyond if each not in safe]
            return Place(folder, overlays, Exposed(left, left, run) if left else None)
    mirror, links = mirror_folder(folder, base)
    noted = [folder, *(each for each in (*beyond, around) if each in safe)]
    return Place(mirror, None, Exposed([*links, *beyond], noted, run))


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


def _overlays(
    working: Path, folders: Sequence[Path], base: Path
) -> tuple[Overlays | None, list[Path]]:
    """The overlays of a program, None if they do not work here, and the folders without one."""
    kept = [base.parent] if base.is_relative_to(folders[0]) else []
    if any(_home().is_relative_to(each) for each in folders):
        kept += [each for each in _settings() if not working.is_relative_to(each)]

    def over(folders: Sequence[Path]) -> Overlays:
        room = mkdtemp(prefix="o", dir=base)
        return Overlays(str(working), room, [*map(str, folders)], [*map(str, kept)])

    tried = tied_to_parent([], over(folders))
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, []
    left = [Path(each) for each in json.loads(done.stdout)]
    return over([each for each in folders if each not in left]), left


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
                        if path is not None:  # fdinfo of proc(5)
                            text = Path(f"/proc/{pid}/fdinfo/{each.name}").read_text()
                            flags = re.search(r"^flags:\s*([0-7]+)", text, re.MULTILINE)
                            if flags and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY:
                                self._written.add(path)

    def changed(self) -> tuple[list[str], list[str]]:
        """Return the changed files: those that the script had open for writing, and others."""
        paths = [path for path, state in self._before.items() if _state(path) != state]
        written = [path for path in paths if path in self._written]
        return written, [path for path in paths if path not in self._written]

    def name_changes(self) -> bool:
        """Name the files that have changed; return whether the script wrote to one."""
        written, others = self.changed()
        if written:
            say(f"  changed by the script: {_listed(written)}")
        if others:
            why = "during the measurement, by the script or another program"
            say(f"  changed {why}: {_listed(others)}")
        return bool(written)


_State = tuple[int, int, int, int]


def _state(path: str) -> _State | None:
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


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_NAMED
    return ", ".join(paths[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


@cache
def _name_once(links: str) -> None:
    """Name what a script could change; copies of it, and the next start, need no line."""
    say(
        f"  a program may change files of yours that no overlay covers: {links}. advisor compares "
        "them afterwards."
    )


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
                continue
            end = Path(os.path.realpath(entry.path))  # of a circle, too
            if entry.is_symlink() and end.is_relative_to(original):
                place.symlink_to(mirror / end.relative_to(original))
            elif not copies.copy(entry, place):
                place.symlink_to(end)
                yield Path(entry.path)


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
