"""Starts a command tied to its parent, with overlays over folders if asked for.

Runs as a script of the standard library alone: it mounts the overlays (docs.kernel.org, overlayfs)
in a mount namespace of its own, becomes the command, and the kernel signals that if we die.
"""

import ctypes
import errno
import json
import os
import re
import signal
import stat
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

# Of linux/sched.h and linux/mount.h.
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_BIND, _RECURSIVE, _SLAVE = 0x1000, 0x4000, 0x80000

_MOST_SEEN = 5000


def die_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send `how` to this process when its parent dies in any way.

    Children do not inherit it. A parent that died before the call is not noticed.
    """
    set_signal = 1  # PR_SET_PDEATHSIG of linux/prctl.h
    if ctypes.CDLL(None, use_errno=True).prctl(set_signal, int(how), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "a process could not be tied to its parent")


@dataclass(frozen=True, slots=True)
class Overlays:
    """Overlays over `folders` for a command that runs in `working`.

    Writes go to `room`, a folder; `keep` stay as they are.
    """

    working: str
    room: str
    folders: Sequence[str]
    keep: Sequence[str]


def tied_to_parent(command: Sequence[str], overlays: Overlays | None = None) -> list[str]:
    """Return the words that run `command` so that SIGTERM reaches it when its parent ends.

    An empty command tries the overlays: it prints as JSON what could not be overlaid, and fails if
    the first folder could not.
    """
    settings = {"parent": os.getpid(), "overlays": overlays and asdict(overlays)}
    words = [json.dumps(settings), *command]
    return [sys.executable, "-I", str(Path(__file__).resolve()), *words]


def _call(function: str, *arguments: object) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = (os.fsencode(each) for each in (source, target, kind))
    _call("mount", *words, ctypes.c_ulong(flags), options.encode())


def _enter_namespace() -> None:
    """Give this process mounts of its own; a user who may not has that in a user namespace."""
    try:
        _call("unshare", _NEW_MOUNTS)
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        if user == 0:  # it would lose its rights to the files of others
            raise
        _call("unshare", _NEW_MOUNTS | _NEW_USERS)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _mount("none", "/", "none", _RECURSIVE | _SLAVE)


def _holds_others(folder: str) -> bool:
    """Whether the user may write to a file or folder in `folder` of another owner or group.

    In a namespace of the user's, which has no other owners, an overlay refuses that.
    """
    own, todo, left = (os.geteuid(), os.getegid()), deque([folder]), _MOST_SEEN
    while todo and left > 0:
        with suppress(OSError), os.scandir(todo.popleft()) as entries:
            for entry in islice(entries, left):
                left -= 1
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(about.st_mode):
                    todo.append(entry.path)
                others = (about.st_uid, about.st_gid) != own and not entry.is_symlink()
                if others and os.access(entry.path, os.W_OK):
                    return True
    return False


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(path.startswith(each.rstrip("/") + "/") for each in folders)


def _mounts_within(folders: Sequence[str]) -> list[str]:
    """Return the mount points of other file systems inside `folders`, outer ones first."""
    with Path("/proc/self/mountinfo").open("rb") as file:
        points = [line.split()[4] for line in file]
    octal = re.compile(rb"\\([0-7]{3})")  # a space and some others
    paths = {os.fsdecode(octal.sub(lambda m: bytes([int(m[1], 8)]), each)) for each in points}
    return sorted(each for each in paths if _within(each, folders))


def _overlay(lower: int, target: str, room: Path) -> None:
    if _within(str(room), [target]):  # old kernels do not refuse that
        raise OSError(
            errno.ELOOP, ("the files that the script writes would lie among those that it reads")
        )
    upper, work = room / "upper", room / "work"
    for layer in (upper, work):
        layer.mkdir(parents=True)
    about = os.stat(lower)
    with suppress(PermissionError):
        os.chown(upper, about.st_uid, about.st_gid)
    upper.chmod(stat.S_IMODE(about.st_mode))
    # With redirect_dir a folder can be renamed. Both kinds of attributes mark what was replaced.
    options = "redirect_dir=on"
    try:
        os.setxattr(work, "trusted.overlay.advisor", b"y")
    except OSError:  # only the root of all namespaces may
        os.setxattr(work, "user.overlay.advisor", b"y")
        options = "userxattr"
    places = [os.open(each, os.O_PATH) for each in (upper, work)]
    layers = zip(("lowerdir", "upperdir", "workdir"), (lower, *places), strict=True)
    # Paths may contain commas and colons; descriptors do not.
    words = [*(f"{name}=/proc/self/fd/{each}" for name, each in layers), options]
    try:
        _mount("overlay", target, "overlay", 0, ",".join(words))
    finally:
        for each in places:
            os.close(each)


def mount_overlays(folders: Sequence[str], room: Path, keep: Sequence[str]) -> list[str]:
    """Mount overlays over `folders`, the first of which must work; return what has none.

    Other file systems inside `folders` get overlays too, or else stay visible as they are.
    """
    inner = [each for each in _mounts_within(folders) if not _within(each + "/", keep)]
    opened = {}
    for path in (*folders, *inner, *keep):
        with suppress(OSError):  # a mount of another user's
            opened[path] = os.open(path, os.O_PATH)
    first, *others = folders
    try:
        _overlay(opened[first], first, room / "0")
    except OSError:  # not each file system can hold what is written: one inside `first`, an overlay
        if os.geteuid() != 0:
            raise
        _mount("tmpfs", str(room), "tmpfs")
        _overlay(opened[first], first, room / "0")
    left = []
    for number, path in enumerate([*others, *(each for each in inner if each in opened)], 1):
        try:
            _overlay(opened[path], path, room / str(number))
        except OSError:
            left.append(path)
            if path in inner:
                _mount(f"/proc/self/fd/{opened[path]}", path, "none", _BIND)
    for path in keep:
        _mount(f"/proc/self/fd/{opened[path]}", path, "none", _BIND | _RECURSIVE)
    return left


def _enter(overlays: Overlays, *, trying: bool) -> None:
    """Mount `overlays`, and go to the working folder; only try and print if `trying`."""
    folders = overlays.folders
    others = [*filter(_holds_others, folders)] if trying and os.geteuid() != 0 else []
    if folders[0] in others:
        sys.exit("error: files of others")
    _enter_namespace()
    mounted = [each for each in folders if each not in others]
    left = others + mount_overlays(mounted, Path(overlays.room), overlays.keep)
    os.chdir(overlays.working)
    if trying:
        if os.access(".", os.W_OK):
            probe = Path(f".advisor-{os.getpid()}")
            probe.mkdir()
            probe.rmdir()
        print(json.dumps(left))


if __name__ == "__main__":
    terms, program = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        if terms["overlays"] is not None:
            _enter(Overlays(**terms["overlays"]), trying=not program)
        if program:
            die_with_parent(signal.SIGTERM)
            if os.getppid() == terms["parent"]:  # or it died before
                os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"error: {error}")
